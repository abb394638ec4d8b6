"""What a consumer gets to see of a log: records, in order, without markers or aborted ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from siltstone.cli.kcat import ConsumedRecord, Range, StartKind
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import AbortedFilter, Isolation, ReadResult
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import Batch

READ_BYTES: Final = 1 << 20


class StartLog(Protocol):
    """What must be known of a log to begin somewhere in it."""

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that may be asked for."""
        ...

    def find_offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at or after a time; None if there is none."""
        ...


class PartitionStream(ABC):
    """Reads one partition from a starting point on, as far as there is something to read."""

    def __init__(self, partition: TopicPartition, wanted: Range, next_offset: int) -> None:
        self.partition = partition
        self.is_done = False  # the time to stop at has come
        self.next_offset = next_offset
        self._stop_ms = wanted.stop_ms

    @abstractmethod
    def read(self) -> Iterator[ConsumedRecord] | None:
        """Go on with the next part of the log, which may hide all of its records; None at the end.

        The part counts as read once the iterator is exhausted.
        """

    def _visible_records(
        self, batches: Iterable[Batch], aborted: Sequence[AbortedTxn]
    ) -> Iterator[ConsumedRecord]:
        hidden = AbortedFilter(aborted)
        for batch in batches:
            if not hidden.hides(batch):
                yield from self._records(batch)
            if self.is_done:
                return
            self.next_offset = batch.header.next_offset

    def _records(self, batch: Batch) -> Iterator[ConsumedRecord]:
        for record in batch.iter_records():
            if record.offset < self.next_offset:
                continue  # A batch comes whole, also if it begins before the wanted offset.
            if self._stop_ms is not None and record.timestamp_ms >= self._stop_ms:
                self.is_done = True
                return
            yield ConsumedRecord(
                self.partition.topic,
                self.partition.partition,
                batch.header.timestamp_type,
                record,
            )


class FileStream(PartitionStream):
    """Reads a log directory."""

    def __init__(
        self, reader: LogReader, partition: TopicPartition, wanted: Range, isolation: Isolation
    ) -> None:
        log = reader.get_log(partition)
        super().__init__(partition, wanted, find_start(log, wanted, end_offset(log, isolation)))
        self._reader = reader
        self._isolation = isolation

    def read(self) -> Iterator[ConsumedRecord] | None:
        """Go on with the next part of the log."""
        log = self._reader.get_log(self.partition)
        # Retention may have overtaken us since the last time.
        self.next_offset = max(self.next_offset, log.log_start_offset)
        if self.next_offset >= end_offset(log, self._isolation):
            return None
        result = log.read(self.next_offset, READ_BYTES, self._isolation)
        return None if result.slice is None else self._read(result)

    def _read(self, result: ReadResult) -> Iterator[ConsumedRecord]:
        assert result.slice is not None
        position = result.slice.position

        def batches() -> Iterator[Batch]:
            nonlocal position
            for batch in result.batches():
                yield batch
                position += batch.header.size_bytes

        try:
            yield from self._visible_records(batches(), result.aborted)
        except DecodeError as error:
            raise CorruptBatchError(result.slice.file.path, position, error.reason) from error


def end_offset(log: PartitionLog, isolation: Isolation) -> int:
    """Return the offset up to which a consumer may read."""
    if isolation is Isolation.COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def find_start(log: StartLog, wanted: Range, end: int) -> int:
    """Return the offset to begin at, which may be one where nothing is left, or nothing yet."""
    start = log.log_start_offset
    match wanted.start:
        case StartKind.BEGINNING:
            return start
        case StartKind.END:
            return end
        case StartKind.TAIL:
            return max(start, end - wanted.value)
        case StartKind.OFFSET:
            return min(max(start, wanted.value), end)
        case StartKind.TIME:
            found = log.find_offset_by_timestamp(wanted.value)
            return end if found is None else min(found.offset, end)
