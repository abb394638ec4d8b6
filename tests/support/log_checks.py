"""A log and what was appended to it: written together, held against each other after a crash."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.append_info import AppendInfo
from siltstone.log.checkpoint import parse_epochs
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.leader_epochs import EpochEntry, LeaderEpochs
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.producer_entry import ProducerEntry
from siltstone.log.producer_state import ProducerState
from siltstone.log.reading import Isolation
from siltstone.log.recovery import LoadRequest
from siltstone.log.segment import Segment
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import Batch, read_batch, read_header
from siltstone.records.builder import build_batch, build_marker, stamp
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.layout import MAGIC_POSITION, NO_TIMESTAMP
from siltstone.records.record import Record
from tests.support.clock import ManualClock

PARTITION: Final = TopicPartition("orders", 3)
EVERYTHING: Final = 2**31 - 1

# Small enough that a few batches make index entries, and a few more a new segment.
_SMALL: Final = {
    "segment.bytes": "1000",
    "segment.index.bytes": "240",
    "index.interval.bytes": "150",
    "flush.messages": "1",
    "retention.ms": "-1",
}


def small_config(**settings: object) -> LogConfig:
    """Return settings for a small log that flushes every append; `settings` change them."""
    changes = {name.replace("_", "."): str(value).lower() for name, value in settings.items()}
    return LogConfig.parse({**_SMALL, **changes})


class Checkpoint(NamedTuple):
    """What the owner of a log directory has written down about a log."""

    recovery_point: int = 0
    log_start_offset: int = 0

    @classmethod
    def of(cls, log: PartitionLog) -> "Checkpoint":
        """Return what would be written down now."""
        return cls(log.recovery_point, log.log_start_offset)


def open_log(
    fs: FileSystem,
    directory: Path,
    config: LogConfig,
    clock: ManualClock,
    checkpoint: Checkpoint | None = None,
    *,
    was_clean: bool = False,
    writable: bool = True,
) -> PartitionLog:
    """Open a log as its only replica."""
    recovery_point, log_start_offset = checkpoint or Checkpoint()
    request = LoadRequest(
        partition=PARTITION,
        directory=directory,
        config=config,
        now_ms=clock.now_ms(),
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        was_clean=was_clean,
        writable=writable,
    )
    log = PartitionLog(fs, clock, request)
    log.update_high_watermark(log.log_end_offset)
    return log


@dataclass
class History:
    """All batches that were ever handed to a log, as it must have stored them.

    The last one may be an attempt that was never acknowledged.
    """

    batches: list[bytes] = field(default_factory=list)
    acknowledged_end_offset: int = 0
    log_start_offset: int = 0  # the highest that the log ever had
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def forget_from(self, offset: int) -> None:
        """Drop what a crash or a truncation has taken from an offset on."""
        while self.batches and read_header(self.batches[-1]).last_offset >= offset:
            self.batches.pop()
        self.acknowledged_end_offset = min(self.acknowledged_end_offset, offset)
        self.sequences = {
            header.producer_id: header.last_sequence + 1
            for header in map(read_header, self.batches)
            if header.has_producer_id and not header.is_control
        }

    def between(self, first_offset: int, end_offset: int) -> list[bytes]:
        """Return the batches that begin in a range."""
        return [
            data
            for data in self.batches
            if first_offset <= read_header(data).base_offset < end_offset
        ]


class LogWriter:
    """Appends to a log like its clients do, and writes the history."""

    def __init__(self, log: PartitionLog, clock: ManualClock, history: History) -> None:
        self.log = log
        self.history = history
        self._clock = clock

    def append(
        self,
        count: int = 1,
        *,
        value_bytes: int = 30,
        producer_id: int | None = None,
        is_transactional: bool = False,
        codec: Codec = Codec.NONE,
        leader_epoch: int = 0,
    ) -> AppendInfo:
        """Append a batch of records; a producer goes on with its next sequence."""
        base_offset = self.log.log_end_offset
        fields: dict[str, Any] = {}
        if producer_id is not None:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.history.sequences.get(producer_id, 0),
                "is_transactional": is_transactional,
            }
        data = build_batch(
            [self._record(base_offset, number, value_bytes) for number in range(count)],
            codec=codec,
            **fields,
        )
        info = self._append(data, leader_epoch, AppendOrigin.CLIENT)
        if producer_id is not None:
            self.history.sequences[producer_id] = fields["base_sequence"] + count
        return info

    def end(self, producer_id: int, control_type: ControlType) -> AppendInfo:
        """Append the marker that ends a producer's transaction."""
        data = build_marker(
            control_type,
            offset=0,
            timestamp_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        return self._append(data, self.log.latest_epoch, AppendOrigin.COORDINATOR)

    def _append(self, data: bytes, leader_epoch: int, origin: AppendOrigin) -> AppendInfo:
        log, history = self.log, self.history
        stamped = stamp(data, log.log_end_offset, leader_epoch) + data[MAGIC_POSITION:]
        history.batches.append(stamped)
        info = None
        if origin is AppendOrigin.CLIENT and leader_epoch == log.latest_epoch:
            info = log.try_append(data)  # as the broker does
        if info is None:
            info = log.append(data, leader_epoch=leader_epoch, origin=origin)
        assert info.first_offset == read_header(stamped).base_offset
        history.acknowledged_end_offset = info.last_offset + 1
        log.update_high_watermark(log.log_end_offset)
        return info

    def _record(self, base_offset: int, number: int, value_bytes: int) -> Record:
        offset = base_offset + number
        # Time goes on, but not in step with the offsets.
        timestamp_ms = self._clock.now_ms() + offset * 10 - (offset * 7 % 5) * 15
        value = f"{offset}:".encode().ljust(value_bytes, b".")
        return Record(number, timestamp_ms, f"key-{offset % 7}".encode(), value)


def stored_batches(log: PartitionLog) -> list[bytes]:
    """Return the bytes of every batch in the segments, each with its CRC checked."""
    return [bytes(batch.data) for segment in log.segments for _, batch in segment.iter_batches()]


def fetch_all(log: PartitionLog, max_bytes: int = 200) -> Iterator[Batch]:
    """Yield what a consumer gets that reads from the log start, in small fetches."""
    offset = log.log_start_offset
    while batches := list(log.read(offset, max_bytes, Isolation.LOG_END).batches()):
        yield from batches
        assert batches[-1].header.next_offset > offset, f"no progress at offset {offset}"
        offset = batches[-1].header.next_offset


# What must hold of any log


def check_log(log: PartitionLog, history: History) -> None:
    """Hold an open log against its history: all that was acknowledged, no hole, all indexed."""
    end_offset = log.log_end_offset
    first_offset = log.segments.first.base_offset
    assert end_offset >= history.acknowledged_end_offset, "acknowledged records are lost"
    assert stored_batches(log) == history.between(first_offset, end_offset)
    ends = {read_header(data).next_offset for data in history.batches}
    assert end_offset in ends | {first_offset}, f"the log ends inside of a batch: {end_offset}"
    assert first_offset <= log.log_start_offset <= end_offset
    check_segments(log)
    check_lookups(log)
    check_producers(log, history)
    check_epochs(log, history)


def check_segments(log: PartitionLog) -> None:
    """Check files and index entries of every segment against a scan of it."""
    segments = list(log.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        batches = [(position, batch.header) for position, batch in segment.iter_batches()]
        next_offset = segment.base_offset
        for _, header in batches:
            assert header.base_offset >= next_offset, f"{segment.path}: offsets do not rise"
            next_offset = header.next_offset
        assert following is None or following.base_offset >= next_offset
        check_indexes(segment)


def check_indexes(segment: Segment) -> None:
    """Check that each index entry of a segment points at the batch that it means."""
    ends = {}
    newest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
    newest_at: dict[int, TimestampOffset] = {}
    for position, batch in segment.iter_batches():
        header = batch.header
        ends[header.last_offset] = position
        if header.max_timestamp_ms > newest.timestamp_ms:
            newest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
            newest_at[header.last_offset] = newest
    offsets = segment.offset_index.entries()
    assert offsets == sorted(set(offsets)), segment.path
    assert [ends.get(entry.offset) for entry in offsets] == [entry.position for entry in offsets]
    times = segment.time_index.entries()
    assert times == sorted(set(times)), segment.path
    assert [newest_at.get(entry.offset) for entry in times] == times, segment.path
    assert segment.max_timestamp == newest, segment.path


def check_lookups(log: PartitionLog) -> None:
    """Check that every look-up by offset and by time gives what a scan of the log gives."""
    batches = [batch for segment in log.segments for _, batch in segment.iter_batches()]
    last_offsets = [batch.header.last_offset for batch in batches]
    fetched = [bytes(batch.data) for batch in fetch_all(log)]
    assert fetched == [
        bytes(batch.data) for batch in batches if batch.header.last_offset >= log.log_start_offset
    ]
    for offset in _offsets_to_look_up(log, batches):
        found = [bytes(batch.data) for batch in log.read(offset, 1, Isolation.LOG_END).batches()]
        slot = bisect_left(last_offsets, offset)
        assert found == [bytes(batch.data) for batch in batches[slot : slot + 1]], offset
    assert log.read(log.log_end_offset, 1, Isolation.LOG_END).slice is None

    records = [record for batch in batches for record in batch.iter_records()]
    readable = [record for record in records if record.offset >= log.log_start_offset]
    times = {record.timestamp_ms for record in records}
    for target_ms in sorted(times | {time + 1 for time in times}):
        wanted = next((r for r in readable if r.timestamp_ms >= target_ms), None)
        expected = None if wanted is None else TimestampOffset(wanted.timestamp_ms, wanted.offset)
        assert log.find_offset_by_timestamp(target_ms) == expected, target_ms
    if readable and len(readable) == len(records):
        newest = max(readable, key=lambda record: record.timestamp_ms)  # the first of them
        assert log.find_max_timestamp() == TimestampOffset(newest.timestamp_ms, newest.offset)


def _offsets_to_look_up(log: PartitionLog, batches: Sequence[Batch]) -> Iterable[int]:
    """Return every offset of the log; of one with large gaps those at the ends of batches."""
    readable = range(log.log_start_offset, log.log_end_offset)
    if len(readable) < 10_000:
        return readable
    ends = {end for b in batches for end in (b.header.base_offset, b.header.last_offset)}
    near = {end + distance for end in ends for distance in (-1, 0, 1)}
    return sorted(offset for offset in near if offset in readable)


def check_producers(log: PartitionLog, history: History) -> None:
    """Check producers and aborted transactions against ones that are built from scratch.

    What lies below the log start need not be known any more: what the batches from any of them
    on say is right then. What lies above must be known.
    """
    log_start_offset = log.log_start_offset
    batches = history.between(0, log.log_end_offset)
    readable = [data for data in batches if read_header(data).last_offset >= log_start_offset]
    replays = [_replay(batches[first:]) for first in range(len(batches) - len(readable) + 1)]
    whole, rest = replays[0], replays[-1]
    entries = dict(log.producer_state.entries)
    assert rest.producers.keys() <= entries.keys() <= whole.producers.keys()
    for producer_id, entry in entries.items():
        known = [r.producers[producer_id] for r in replays if producer_id in r.producers]
        assert any(_is_same(entry, candidate) for candidate in known), (entry, known)

    aborted = {}
    for segment in log.segments:
        for txn in segment.transaction_index.entries:
            assert log.segments.find_floor(txn.last_offset) is segment
            aborted[txn.last_offset] = txn
    assert {offset for offset in rest.aborted if offset >= log_start_offset} <= aborted.keys()
    for offset, txn in aborted.items():
        assert txn in [r.aborted.get(offset) for r in replays] or offset < log_start_offset, txn


def check_epochs(log: PartitionLog, history: History) -> None:
    """Check leader epochs, in memory and on disk, against those in the batches.

    Those below a log start that was not written down may be forgotten, though records are back.
    """
    expected = LeaderEpochs()
    for header in map(read_header, history.between(0, log.log_end_offset)):
        expected.assign(header.leader_epoch, header.base_offset)
        if header.base_offset >= log.log_start_offset:
            found = log.leader_epochs.find_epoch_at(header.base_offset)
            is_forgotten = found is None and header.base_offset < history.log_start_offset
            assert found == header.leader_epoch or is_forgotten, header
    entries = _written_epochs(log.leader_epochs.entries, log.log_end_offset)
    if not history.log_start_offset:
        expected.truncate_from_start(log.log_start_offset)
        assert entries == _written_epochs(expected.entries, log.log_end_offset)
    path = log.directory / filenames.LEADER_EPOCHS
    assert _written_epochs(parse_epochs(path, path.read_bytes()), log.log_end_offset) == entries


def _written_epochs(entries: Iterable[EpochEntry], end_offset: int) -> tuple[EpochEntry, ...]:
    """Leave out an epoch in which nothing was written: loading may forget it."""
    return tuple(entry for entry in entries if entry.start_offset < end_offset)


def check_names(log: PartitionLog) -> None:
    """Check that no file lies around which belongs to no segment.

    Loading keeps the newest snapshot, and takes one at the log end.
    """
    bases = set(log.segments.base_offsets)
    strays = []
    for path in log.directory.iterdir():
        file = filenames.parse_segment_file(path.name)
        if file is None:
            # A half-written checkpoint is ignored, and overwritten by the next one.
            name = path.name.removesuffix(filenames.TEMPORARY)
            known = (filenames.LEADER_EPOCHS, filenames.PARTITION_METADATA)
            assert name in known or filenames.is_manifest(path.name), path
        elif file.extension == filenames.SNAPSHOT:
            assert not file.suffix, path
            if file.base_offset not in bases | {log.log_end_offset}:
                strays.append(path)
        else:
            assert not file.suffix, path
            assert file.base_offset in bases, path
    assert len(strays) <= 1, strays


class Replayed(NamedTuple):
    """What some batches say about producers and aborted transactions (by their markers)."""

    producers: dict[int, ProducerEntry]
    aborted: dict[int, AbortedTxn]


def _replay(batches: Sequence[bytes]) -> Replayed:
    state = ProducerState(PARTITION)
    aborted = {}
    for batch in map(read_batch, batches):
        for txn in state.replay(batch.header, batch.marker()):
            if txn.is_aborted:
                aborted[txn.last_offset] = AbortedTxn(
                    txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
                )
    return Replayed(dict(state.entries), aborted)


def _is_same(entry: ProducerEntry, known: ProducerEntry) -> bool:
    """Compare what a snapshot keeps, and of the batches as many as there are."""
    count = len(entry.batches)
    return (
        entry._replace(batches=()) == known._replace(batches=())
        and bool(entry.batches) == bool(known.batches)
        and [batch[:3] for batch in entry.batches]
        == [batch[:3] for batch in known.batches[len(known.batches) - count :]]
    )


# Opening again


class Fingerprint(NamedTuple):
    """All that a log answers, but for what it may forget in a snapshot."""

    batches: tuple[bytes, ...]
    base_offsets: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    epochs: tuple[EpochEntry, ...]
    producers: dict[int, tuple[object, ...]]


def fingerprint(log: PartitionLog) -> Fingerprint:
    """Describe an open log."""
    return Fingerprint(
        batches=tuple(stored_batches(log)),
        base_offsets=log.segments.base_offsets,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        epochs=_written_epochs(log.leader_epochs.entries, log.log_end_offset),
        # Below the log start a producer may or may not be remembered: see `check_producers`.
        producers={
            producer_id: (*entry[:5], *(batch[:3] for batch in entry.batches[-1:]))
            for producer_id, entry in sorted(log.producer_state.entries.items())
            if not log.log_start_offset
        },
    )


def read_tree(path: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def recover(
    fs: FileSystem,
    directory: Path,
    config: LogConfig,
    clock: ManualClock,
    history: History,
    checkpoint: Checkpoint | None = None,
) -> PartitionLog:
    """Open a log after a crash in every way there is; return it as it is after a clean stop.

    First as a reader, who must not touch it; then as its owner, with all that could have been
    written down about it; again with nothing written down, as if it had crashed at once; and
    after a clean stop. All must see the same.
    """
    before = read_tree(directory)
    reader = open_log(fs, directory, config, clock, checkpoint, writable=False)
    seen = fingerprint(reader)
    assert [bytes(batch.data) for batch in fetch_all(reader)] == [
        data for data in seen.batches if read_header(data).last_offset >= reader.log_start_offset
    ]
    assert read_tree(directory) == before, "a reader has changed the directory"

    log = open_log(fs, directory, config, clock, checkpoint)
    check_log(log, history)
    assert fingerprint(log) == seen, "reader and owner disagree"
    for segment in log.segments:
        assert segment.path.stat().st_size == segment.size_bytes, "half a batch was left"

    kept = Checkpoint(0, log.log_start_offset)
    log = open_log(fs, directory, config, clock, kept)
    assert fingerprint(log) == seen, "the second recovery found something else"
    check_segments(log)
    check_producers(log, history)
    check_names(log)

    log.close()
    log = open_log(fs, directory, config, clock, Checkpoint.of(log), was_clean=True)
    assert fingerprint(log) == seen, "the clean stop has changed something"
    check_segments(log)
    check_producers(log, history)
    check_names(log)
    return log
