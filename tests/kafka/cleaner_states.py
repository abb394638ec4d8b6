"""What a pass has left, told for both sides in the same words, and held against each other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, PassResult
from siltstone.log import filenames
from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import Batch, iter_batches
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from tests.kafka.clean_ops import (
    KafkaPass,
)
from tests.kafka.states import LogState

TIME_ENTRY_BYTES: Final = 12


SEGMENT_FILES: Final = (
    filenames.LOG,
    filenames.OFFSET_INDEX,
    filenames.TIME_INDEX,
    filenames.TRANSACTION_INDEX,
)


Side = Literal["ours", "kafka"]


SEEN: Final[Counter[str]] = Counter()
"""What the random logs have met; `test_the_random_logs_met_everything` looks at it in the end."""


@dataclass(frozen=True)
class Files:
    """The files of all segments of a log, by base offset and extension, in memory."""

    contents: Mapping[tuple[int, str], bytes]

    @classmethod
    def read(cls, directory: Path) -> "Files":
        """Read a directory in which nothing waits for its deletion."""
        contents = {}
        for path in directory.iterdir():
            file = filenames.parse_segment_file(path.name)
            if file is not None and file.extension in SEGMENT_FILES:
                assert not file.suffix, path
                contents[file.base_offset, file.extension] = path.read_bytes()
        return cls(contents)

    def replaced(self, directory: Path, result: PassResult) -> "Files":
        """Give what there would be if a pass, whose files are in a directory, were committed."""
        contents = dict(self.contents)
        for group in result.groups:
            if group.is_unchanged:
                continue
            for base_offset in group.base_offsets:
                for extension in SEGMENT_FILES:
                    contents.pop((base_offset, extension), None)
            for output in group.outputs:
                for file in output.files:
                    data = (directory / file.name).read_bytes()
                    contents[output.base_offset, file.extension] = data
        return Files(contents)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return tuple(sorted(base for base, extension in self.contents if extension == ".log"))

    def segment(self, base_offset: int) -> dict[str, bytes]:
        return {
            extension: data
            for (base, extension), data in self.contents.items()
            if base == base_offset
        }

    def batches(self) -> Iterator[Batch]:
        for base_offset in self.base_offsets:
            for _, batch in iter_batches(self.contents[base_offset, ".log"]):
                batch.check_crc()
                yield batch

    def records_from(self, offset: int) -> list[Record]:
        return [
            record
            for batch in self.batches()
            if not batch.header.is_control
            for record in batch.iter_records()
            if record.offset >= offset
        ]


def without(snapshots: Mapping[int, bytes], gone: Set[int]) -> dict[int, bytes]:
    return {offset: data for offset, data in snapshots.items() if offset not in gone}


def batches(directory: Path) -> list[Batch]:
    return list(Files.read(directory).batches())


def values(directory: Path) -> list[bytes | None]:
    return [record.value for record in Files.read(directory).records_from(0)]


class Comparison:
    """What a pass of ours left, against what Kafka's did."""

    def __init__(
        self,
        plan: CleaningPlan,
        result: PassResult,
        kafka_pass: KafkaPass,
        before: Files,
        ours: Files,
        theirs: Files,
    ) -> None:
        self.plan, self.result, self.kafka_pass = plan, result, kafka_pass
        self.before, self.ours, self.theirs = before, ours, theirs

    def check(self) -> None:
        plan, groups = self.plan, self.result.groups
        assert plan.end_offset == self.kafka_pass.next_dirty_offset
        above = [base for base in self.before.base_offsets if base >= plan.end_offset]
        assert self.theirs.base_offsets == (*(group.base_offsets[0] for group in groups), *above)
        for group in groups:
            self._check_group(group)
        for base_offset in above:
            assert self.ours.segment(base_offset) == self.before.segment(base_offset)
        self._check_counts()

    def _check_counts(self) -> None:
        counts, theirs = self.result.counts, self.kafka_pass
        assert counts.bytes_read == theirs.bytes_read
        assert counts.records_kept + counts.markers_kept == theirs.messages_written
        assert counts.keyless_removed == theirs.invalid_messages_read
        SEEN.update(name for name, value in counts.as_dict().items() if value)
        SEEN["passes"] += 1
        SEEN["distant offsets"] += self.plan.end_offset - self.plan.sources[0].base_offset > 2**31

    def _check_group(self, group: GroupResult) -> None:
        base_offset = group.base_offsets[0]
        theirs = self.theirs.segment(base_offset)
        if group.is_unchanged:
            # Difference 2.
            before = self.before.segment(base_offset)
            assert self.ours.segment(base_offset) == before
            for extension in (filenames.LOG, filenames.TRANSACTION_INDEX):
                assert theirs.get(extension) == before.get(extension)
            SEEN["unchanged groups"] += 1
        elif len(group.outputs) > 1:
            self._check_split(group, theirs)
        else:
            (output,) = group.outputs
            assert output.base_offset == base_offset
            ours = self.ours.segment(base_offset)
            if compare_batches(ours[filenames.LOG], theirs[filenames.LOG]):
                assert ours == theirs
            assert ours.get(".txnindex") == theirs.get(".txnindex")
            SEEN["merged groups"] += len(group.base_offsets) > 1
            SEEN["empty segments"] += not ours[filenames.LOG]

    def _check_split(self, group: GroupResult, theirs: Mapping[str, bytes]) -> None:
        """Difference 3: the parts are Kafka's segment, cut where the next batch did not fit."""
        parts = [self.ours.segment(output.base_offset) for output in group.outputs]
        logs = [part[filenames.LOG] for part in parts]
        compare_batches(b"".join(logs), theirs[filenames.LOG])
        own_bytes = [
            s.size_bytes for s in self.plan.sources if group.base_offsets == (s.base_offset,)
        ]
        limit = max(self.plan.segment_bytes, *own_bytes, 0)
        for slot, log in enumerate(logs):
            headers = [batch.header for _, batch in iter_batches(log)]
            assert len(log) <= limit or len(headers) == 1
            if slot > 0:
                assert group.outputs[slot].base_offset == headers[0].base_offset
                assert len(logs[slot - 1]) + headers[0].size_bytes > limit
        aborted = [part.get(filenames.TRANSACTION_INDEX, b"") for part in parts]
        assert b"".join(aborted) == theirs.get(filenames.TRANSACTION_INDEX, b"")
        SEEN["split groups"] += 1


def compare_batches(ours: bytes, theirs: bytes) -> bool:
    """Hold the batches of a cleaned segment against each other; False if they have other bytes."""
    our_batches = [batch for _, batch in iter_batches(ours)]
    for batch in our_batches:
        SEEN[f"rewritten: {batch.header.codec.name}"] += 1
        SEEN[f"rewritten: {batch.header.timestamp_type.name}"] += 1
    if ours == theirs:
        return True
    their_batches = [batch for _, batch in iter_batches(theirs)]
    for our, their in zip(our_batches, their_batches, strict=True):
        our.check_crc()
        if our.header.codec is Codec.SNAPPY:
            # Difference 1.
            other = {"length": their.header.length, "crc": their.header.crc}
            assert our.header._replace(**other) == their.header
            assert list(our.iter_records()) == list(their.iter_records())
        else:
            assert bytes(our.data) == bytes(their.data), (our.header, their.header)
    SEEN["other bytes"] += 1
    return False


def describe_kafka(state: LogState) -> dict[str, Any]:
    """Everything about Kafka's log that a restart must bring back."""
    return {
        "offsets": (
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            state.log_end_offset,
        ),
        "epochs": state.epochs,
        "producers": [
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_data_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
            for producer in state.producers
        ],
        "segments": [
            (
                segment.base_offset,
                segment.size,
                segment.offset_index or (),
                segment.time_index or (),
                [
                    (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
                    for t in segment.txn_index or ()
                ],
            )
            for segment in state.segments
        ],
    }


def describe_ours(log: PartitionLog) -> dict[str, Any]:
    """The same about ours."""

    def number(offset: int | None) -> int:
        return -1 if offset is None else offset

    return {
        "offsets": (
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        ),
        "epochs": tuple(tuple(entry) for entry in log.leader_epochs.entries),
        "producers": [
            (
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                number(entry.last_data_offset),
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                number(entry.current_txn_first_offset),
            )
            for _, entry in sorted(log.producer_state.entries.items())
        ],
        "segments": [
            (
                segment.base_offset,
                segment.size_bytes,
                tuple(
                    tuple(segment.offset_index.get(slot))
                    for slot in range(segment.offset_index.file.count)
                ),
                tuple(tuple(entry) for entry in segment.time_index.entries()),
                [tuple(txn) for txn in segment.transaction_index.entries],
            )
            for segment in log.segments
        ],
    }
