"""Logs from a line of text, and back.

    a=1        a record with key a and value 1, in a batch of its own; stamped with the clock's time
    a=         with an empty value
    a~         a tombstone
    =1         a record without a key
    a=1@500    with timestamp 500
    [a=1 b~]   two records in one batch
    |          a roll

`contents` gives the same with offsets, and shows what else can be in a log:

    0:a=1 1:b~ | 2:commit 3..5:empty
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.append_info import AppendInfo
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import File, FileSystem
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.log.recovery import LoadRequest
from siltstone.log.segment import Segment
from siltstone.records.batch import Batch, BatchHeader
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock

PARTITION: Final = TopicPartition("orders", 3)
EVERYTHING: Final = 2**31 - 1  # more bytes than any log of a test has

_SMALL: Final = {"segment_index_bytes": 10_000}
_TOKEN: Final = re.compile(r"\||\[[^\]]*\]|\S+")
_RECORD: Final = re.compile(
    r"(?P<key>[^=~@]*)(?:~|=(?P<value>[^@]*))(?:@(?P<timestamp_ms>-?[0-9]+))?"
)


def parse_records(text: str, now_ms: int, base_offset: int = 0) -> list[Record]:
    """Make the records that a text describes, with offsets that follow on each other."""
    records = []
    for number, token in enumerate(text.strip("[]").split()):
        match = _RECORD.fullmatch(token)
        if match is None:
            raise ValueError(f"{token!r} is no record")
        value, timestamp = match["value"], match["timestamp_ms"]
        records.append(
            Record(
                base_offset + number,
                now_ms if timestamp is None else int(timestamp),
                match["key"].encode() or None,
                None if value is None else value.encode(),
            )
        )
    return records


def format_batch(batch: Batch) -> str:
    """Describe a batch; the reverse of `parse_records`."""
    header = batch.header
    if header.is_empty:
        return f"{header.base_offset}..{header.last_offset}:empty"
    marker = batch.marker()
    if marker is not None:
        return f"{header.base_offset}:{marker.control_type.name.lower()}"
    return " ".join(format_record(record) for record in batch.iter_records())


def format_record(record: Record) -> str:
    """Describe one record."""
    key = "" if record.key is None else record.key.decode()
    value = "~" if record.value is None else f"={record.value.decode()}"
    return f"{record.offset}:{key}{value}"


def parse_config(settings: Mapping[str, Any]) -> LogConfig:
    """Take Kafka's settings, with underscores for dots."""
    return LogConfig.parse(
        {
            name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
        }
    )


class HastyDisk(FileSystem):
    """A disk that never waits: nobody pulls the plug in a unit test."""

    def fsync(self, file: File) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass


class MadeLog:
    """A partition log in a directory of its own, that can be stopped, crashed and started again.

    `real` is the log itself. Whatever is appended counts as replicated at once, unless
    `is_replicated` is off.
    """

    def __init__(
        self, directory: Path, clock: ManualClock, fs: FileSystem, settings: Mapping[str, Any]
    ) -> None:
        self.directory = directory
        self.clock = clock
        self.fs = fs
        self.is_replicated = True
        self.settings = dict(settings)
        self._recovery_point = 0
        self._log_start_offset = 0
        self._was_clean = True
        self._sequences: Counter[int] = Counter()
        self._real: PartitionLog | None = None
        self.start()

    # Its life

    @property
    def real(self) -> PartitionLog:
        assert self._real is not None, "the log is stopped"
        return self._real

    def stop(self) -> None:
        """Stop in good order, with checkpoints written."""
        self.real.close()
        self._recovery_point = self.real.recovery_point
        self._log_start_offset = self.real.log_start_offset
        self._was_clean = True
        self._let_go()

    def crash(self, *, recovery_point: int = 0, log_start_offset: int = 0) -> None:
        """Stop as `kill -9` does: the files stay as they are. The arguments were checkpointed."""
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._was_clean = False
        self._let_go()

    def start(self, *, log_start_offset: int | None = None, writable: bool = True) -> None:
        """Open the directory."""
        if log_start_offset is not None:
            self._log_start_offset = log_start_offset
        self._real = PartitionLog(
            self.fs,
            self.clock,
            LoadRequest(
                partition=PARTITION,
                directory=self.directory,
                config=parse_config(self.settings),
                now_ms=self.clock.now_ms(),
                log_start_offset=self._log_start_offset,
                recovery_point=self._recovery_point,
                was_clean=self._was_clean,
                writable=writable,
            ),
        )
        self._replicate()

    def restart(self) -> None:
        """Stop in good order and open again."""
        self.stop()
        self.start()

    def recover(self, *, recovery_point: int = 0, log_start_offset: int = 0) -> None:
        """Crash and open again."""
        self.crash(recovery_point=recovery_point, log_start_offset=log_start_offset)
        self.start()

    def configure(self, **settings: Any) -> None:
        """Change settings while the log is open."""
        self.settings.update(settings)
        self.real.update_config(parse_config(self.settings))

    # Appending

    def append(self, text: str) -> AppendInfo | None:
        """Append what a text describes; return what was said about the last batch."""
        info = None
        for token in _TOKEN.findall(text):
            if token == "|":
                self.real.roll()
            else:
                info = self.append_batch(self.build(token))
        return info

    def build(self, text: str, **fields: Any) -> bytes:
        """Build a batch as a producer sends it; `fields` as `build_batch` takes them."""
        return build_batch(parse_records(text, self.clock.now_ms()), **fields)

    def append_batch(
        self,
        data: bytes,
        *,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append a batch as the leader does."""
        info = self.real.append(data, leader_epoch=leader_epoch, origin=origin)
        self._replicate()
        return info

    def produce(
        self,
        text: str,
        *,
        producer: int = 1,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = False,
    ) -> AppendInfo:
        """Append a batch of an idempotent producer, with its next sequence unless one is given."""
        count = len(text.strip("[]").split())
        first = self._sequences[producer] if sequence is None else sequence
        info = self.append_batch(
            self.build(
                text,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=first,
                is_transactional=transactional,
            )
        )
        self._sequences[producer] = first + count
        return info

    def commit(self, *, producer: int = 1, epoch: int = 0) -> AppendInfo:
        """End a transaction with a commit marker."""
        return self._end(ControlType.COMMIT, producer, epoch)

    def abort(self, *, producer: int = 1, epoch: int = 0) -> AppendInfo:
        """End a transaction with an abort marker."""
        return self._end(ControlType.ABORT, producer, epoch)

    def follow(self, *batches: bytes) -> AppendInfo | None:
        """Append as a follower does what it has fetched in one request."""
        info = self.real.append_as_follower(b"".join(batches))
        self._replicate()
        return info

    def build_at(self, base_offset: int, text: str = "k=v", **fields: Any) -> bytes:
        """Build a batch as a leader has stored it."""
        return build_batch(
            parse_records(text, self.clock.now_ms(), base_offset),
            **{"leader_epoch": 0, **fields},
        )

    def _end(self, control_type: ControlType, producer: int, epoch: int) -> AppendInfo:
        marker = build_marker(
            control_type,
            offset=0,
            timestamp_ms=self.clock.now_ms(),
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=0,
        )
        return self.append_batch(marker, origin=AppendOrigin.COORDINATOR)

    # Looking

    def contents(self) -> str:
        """Describe all that is on disk, segment by segment."""
        return " | ".join(
            " ".join(format_batch(batch) for _, batch in segment.iter_batches())
            for segment in self.real.segments
        ).strip()

    def readable(self, isolation: Isolation = Isolation.HIGH_WATERMARK) -> str:
        """Describe what a consumer gets that begins at the log start, fetch by fetch."""
        return " ".join(format_batch(batch) for batch in self.iter_fetched(isolation))

    def iter_fetched(
        self, isolation: Isolation = Isolation.HIGH_WATERMARK, max_bytes: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches that a consumer gets, with small fetches."""
        offset = self.real.log_start_offset
        while True:
            batches = list(self.real.read(offset, max_bytes, isolation).batches())
            if not batches:
                return
            yield from batches
            assert batches[-1].header.next_offset > offset, "the consumer makes no progress"
            offset = batches[-1].header.next_offset

    def headers(self) -> list[BatchHeader]:
        """Return the headers of all batches on disk."""
        return [
            stored.header for segment in self.real.segments for stored in segment.iter_headers()
        ]

    def base_offsets(self) -> list[int]:
        """Return where the segments begin."""
        return list(self.real.segments.base_offsets)

    def segment(self, base_offset: int = 0) -> Segment:
        """Return the segment with a base offset."""
        segment = self.real.segments.find(base_offset)
        assert segment is not None, self.base_offsets()
        return segment

    # Files

    def names(self) -> list[str]:
        """List the files of all segments, without the zeros in front of their offsets."""
        return [
            re.sub(r"^0{1,19}", "", name)
            for name in sorted(path.name for path in self.directory.iterdir())
            if filenames.find_offset_prefix(name) is not None
        ]

    def path(self, name: str) -> Path:
        """Return a file by its name, as `names` gives it."""
        offset, dot, extension = name.partition(".")
        return self.directory / f"{int(offset):020d}{dot}{extension}"

    def snapshots(self) -> list[int]:
        """Return the offsets of which there is a snapshot of the producers."""
        return sorted(
            file.base_offset
            for path in self.directory.iterdir()
            if (file := filenames.parse_segment_file(path.name)) is not None
            and (file.extension, file.suffix) == (filenames.SNAPSHOT, "")
        )

    def epochs(self) -> str:
        """Return the checkpoint of leader epochs."""
        return (self.directory / filenames.LEADER_EPOCHS).read_text()

    def write_segment(self, base_offset: int, batches: Sequence[bytes]) -> None:
        """Put a log file without indexes into the directory, which must not be open."""
        assert self._real is None, "the log is open"
        self.directory.mkdir(parents=True, exist_ok=True)
        filenames.log_path(self.directory, base_offset).write_bytes(b"".join(batches))

    def _replicate(self) -> None:
        if self.is_replicated:
            self.real.update_high_watermark(self.real.log_end_offset)

    def _let_go(self) -> None:
        self._real = None
        self._sequences.clear()


class MakeLog:
    """Makes logs in a temporary directory; the fixture `make_log` is one."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self._directory = directory
        self._clock = clock
        self._count = 0

    def __call__(self, text: str = "", *, fs: FileSystem | None = None, **settings: Any) -> MadeLog:
        """Make a log with this content; settings are Kafka's, with underscores for dots.

        Indexes are made for a few entries only, unless said otherwise: tests make many.
        """
        self._count += 1
        directory = self._directory / f"log-dir-{self._count}" / str(PARTITION)
        log = MadeLog(directory, self._clock, fs or HastyDisk(), _SMALL | settings)
        log.append(text)
        return log
