"""What a consumer gets to see of a log that a broker owns."""

from collections.abc import Iterator

from siltstone.cli.kcat import ConsumedRecord, Range
from siltstone.cli.record_stream import READ_BYTES, PartitionStream, find_start
from siltstone.cli.remote_log import RemoteLog
from siltstone.errors import OffsetOutOfRangeError, TruncatedDataError
from siltstone.log.reading import Isolation
from siltstone.records.batch import Batch, iter_batches


class RemoteStream(PartitionStream):
    """Reads through a broker."""

    def __init__(self, log: RemoteLog, wanted: Range, isolation: Isolation) -> None:
        start = find_start(log, wanted, log.end_offset(isolation))
        super().__init__(log.partition, wanted, start)
        self._log = log
        self._isolation = isolation

    def read(self) -> Iterator[ConsumedRecord] | None:
        """Go on with the next part of the log."""
        try:
            fetched = self._log.fetch(self.next_offset, READ_BYTES, self._isolation)
        except OffsetOutOfRangeError:
            # Retention has overtaken us; what lies above the end would be no log of this topic.
            if self.next_offset >= self._log.log_start_offset:
                raise
            self.next_offset = self._log.log_start_offset
            return iter(())
        if not fetched.records:
            return None
        return self._visible_records(_whole_batches(fetched.records), fetched.aborted)


def _whole_batches(records: bytes) -> Iterator[Batch]:
    """Yield the batches of an answer; Kafka may cut off the last."""
    try:
        for _, batch in iter_batches(records):
            batch.check_crc()
            yield batch
    except TruncatedDataError:
        return
