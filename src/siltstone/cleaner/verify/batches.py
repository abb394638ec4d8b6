"""Every batch of a log, sound or not: I1 as far as headers and checksums go, and I2.

The walk goes on behind a batch that is not sound, as long as it can tell where the next one begins:
one flipped bit must not hide what else is wrong. Later walks see the sound batches only.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify.files import LogFiles, SegmentFiles
from siltstone.cleaner.verify.findings import Findings, Severity
from siltstone.errors import ChecksumError, DecodeError, TruncatedDataError
from siltstone.log.filesystem import File, FileSystem
from siltstone.records.batch import is_legacy_batch, read_header
from siltstone.records.layout import HEADER_SIZE, MAX_RELATIVE_OFFSET
from siltstone.records.scan import Batches, check_batch, walk

Int64s = NDArray[np.int64]

CHUNK_BYTES: Final = 8 << 20
_LOWEST_OFFSET: Final = -(2**63)
_MAX_FILE_BYTES: Final = 2**31 - 1  # positions in an offset index have 31 bits


class Chunk(NamedTuple):
    """Sound batches of a segment, in order; valid until the next chunk is read."""

    segment: SegmentFiles
    position: int  # of the data, in the file
    data: memoryview
    batches: Batches  # rows of kernel_types.BATCH_DTYPE; their positions count in the data


class Columns(NamedTuple):
    """What an index can speak of, of each batch."""

    positions: Int64s
    base_offsets: Int64s
    last_offsets: Int64s
    max_timestamps: Int64s

    @classmethod
    def of(cls, chunk: Chunk) -> "Columns":
        """Copy the columns of a chunk, whose positions then count in the file."""
        rows = chunk.batches
        return cls(
            rows["position"] + chunk.position,
            rows["base_offset"].copy(),
            rows["last_offset"].copy(),
            rows["max_timestamp_ms"].copy(),
        )


class Layout(NamedTuple):
    """Where the sound batches of a segment are."""

    columns: Columns
    end_position: int  # of the last of them
    is_whole: bool  # none in front of that is missing here, and all are in order


class BatchWalker:
    """Walks the segments of one log, first with `check`, then as often as needed with `again`."""

    def __init__(self, fs: FileSystem, files: LogFiles, findings: Findings) -> None:
        self._fs = fs
        self._files = files
        self._findings = findings
        self._unsound: dict[int, set[int]] = {}  # positions, by the segment's base offset
        self._ends: dict[int, int] = {}  # where a segment cannot be read any further
        self._damaged: set[int] = set()  # segments that have more behind such an end

    def check(self, segment: SegmentFiles) -> Iterator[Chunk]:
        """Yield the sound batches of a segment and note what is wrong with the others."""
        if segment.size_bytes > _MAX_FILE_BYTES:
            self._findings.violation(
                "I2",
                f"{segment.size_bytes} bytes: positions above {_MAX_FILE_BYTES} fit no index",
                file=segment.name,
            )
        return _Walk(self, segment).run()

    def again(self, segment: SegmentFiles) -> Iterator[Chunk]:
        """Yield the sound batches of a segment that `check` has gone through.

        Raise FileNotFoundError if the file is not the one that it was.
        """
        file = self._fs.open(segment.path, writable=False)
        end = self._ends[segment.base_offset]
        unsound = self._unsound[segment.base_offset]
        buffer = bytearray(min(CHUNK_BYTES, end))
        position = 0
        while position < end:
            count = file.read_into(position, memoryview(buffer)[: end - position])
            data = memoryview(buffer)[:count]
            start = 0
            while True:
                found = walk(data[start:], next_offset=_LOWEST_OFFSET, check_crc=False)
                rows = found.batches.copy()
                rows["position"] += start
                if len(unsound):
                    sound = [p not in unsound for p in (rows["position"] + position).tolist()]
                    rows = rows[np.array(sound, np.bool_)]
                if len(rows):
                    yield Chunk(segment, position, data, rows)
                start += found.stop_position
                if found.refusal is None:
                    break
                # Known from before: not sound, or below the batch in front of it.
                if position + start in unsound:
                    start += read_header(data, start).size_bytes
                elif not found.stop_position:
                    raise FileNotFoundError(segment.path)
            if not start:
                size = _size_at(file, position)
                if size <= len(buffer):
                    raise FileNotFoundError(segment.path)
                buffer = bytearray(size)
            position += start

    def layout(self, segment: SegmentFiles, chunks: Iterable["Columns"]) -> Layout:
        """Put together the layout of a segment that `check` has gone through."""
        base_offset = segment.base_offset
        columns = [np.concatenate(column) for column in zip(*chunks, strict=True)]
        if not columns:
            columns = [np.empty(0, np.int64)] * len(Columns._fields)
        is_sound = base_offset not in self._damaged and not self._unsound[base_offset]
        is_rising = bool((np.diff(columns[2]) > 0).all())
        return Layout(Columns(*columns), self._ends[base_offset], is_sound and is_rising)

    def end_of(self, segment: SegmentFiles) -> int:
        """Return where the last batch of a segment ends that `check` could get to."""
        return self._ends[segment.base_offset]


class _Walk:
    """The first walk over one segment."""

    def __init__(self, walker: BatchWalker, segment: SegmentFiles) -> None:
        self._segment = segment
        self._findings = walker._findings
        self._was_clean = walker._files.was_clean
        self._file = walker._fs.open(segment.path, writable=False)
        self._unsound = walker._unsound.setdefault(segment.base_offset, set())
        self._ends = walker._ends
        self._damaged = walker._damaged
        self._position = 0
        self._next_offset = segment.base_offset

    def run(self) -> Iterator[Chunk]:
        size_bytes = self._segment.size_bytes
        buffer = bytearray(min(CHUNK_BYTES, size_bytes))
        while self._position < size_bytes:
            wanted = min(len(buffer), size_bytes - self._position)
            count = self._file.read_into(self._position, memoryview(buffer)[:wanted])
            data = memoryview(buffer)[:count]
            at_end = self._position + count >= size_bytes or count < wanted
            found = walk(data, next_offset=self._next_offset)
            if len(found.batches):
                yield self._take(data, found.batches)
            rest = data[found.stop_position :]
            self._position += found.stop_position
            # With the header after it: whether one can go on there is asked, too.
            needed = (_find_size(rest) or 0) + HEADER_SIZE
            if rest and needed > len(rest) and not at_end:
                if needed > len(buffer):
                    buffer = bytearray(min(needed, size_bytes - self._position))
            elif found.refusal is not None:
                row = self._refuse(rest, found.refusal, at_end=at_end)
                if row is None:
                    break
                if len(row):
                    yield self._take(rest, row)
                    self._position += int(row["size_bytes"][0])
            elif rest:
                self._end_early(rest)
                break
        self._ends[self._segment.base_offset] = self._position

    def _take(self, data: memoryview, batches: Batches) -> Chunk:
        """Check sound batches for I2, and count on from them."""
        segment = self._segment
        outside = batches["last_offset"] - segment.base_offset > MAX_RELATIVE_OFFSET
        if segment.end_offset is not None:
            outside = outside | (batches["last_offset"] >= segment.end_offset)
        for slot in np.flatnonzero(outside):
            last_offset = int(batches["last_offset"][slot])
            reaches = segment.end_offset is not None and last_offset >= segment.end_offset
            self._findings.violation(
                "I2",
                f"offset {last_offset} lies in the next segment, which begins at "
                f"{segment.end_offset}"
                if reaches
                else f"offset {last_offset} does not fit base offset {segment.base_offset}",
                file=segment.name,
                position=self._position + int(batches["position"][slot]),
                offset=last_offset,
            )
        self._next_offset = int(batches["last_offset"][-1]) + 1
        return Chunk(segment, self._position, data, batches)

    def _refuse(self, rest: memoryview, refusal: DecodeError, *, at_end: bool) -> Batches | None:
        """Note why a batch was refused.

        Return it if only its place is wrong, nothing to go on behind it, None if that is not
        possible.
        """
        try:
            batch = check_batch(rest, 0, _LOWEST_OFFSET)
        except DecodeError as error:
            refusal = error
        else:
            self._findings.violation(
                "I2",
                f"{refusal.reason}: batches must rise",
                file=self._segment.name,
                position=self._position,
                offset=batch.header.base_offset,
            )
            single = rest[: batch.header.size_bytes]
            return walk(single, next_offset=_LOWEST_OFFSET).batches
        if self._is_zero_to_end():
            self._note_zeros()
            return None
        size = _find_size(rest)
        is_last = at_end and (size is None or size >= len(rest))
        self._note(refusal, rest, is_last=is_last)
        if size is None or size > len(rest) or not _may_begin_batch(rest[size:], at_end=at_end):
            if not is_last:
                self._damaged.add(self._segment.base_offset)
            return None
        self._unsound.add(self._position)
        self._position += size
        return np.empty(0, np.int64)

    def _note(self, refusal: DecodeError, rest: memoryview, *, is_last: bool) -> None:
        if is_legacy_batch(rest):
            severity = Severity.WARNING  # sound, but nothing that this version can read
        else:
            severity = self._severity(is_last=is_last)
        offset = None
        if isinstance(refusal, ChecksumError):
            offset = read_header(rest).base_offset
        self._findings.add(
            severity, "I1", refusal.reason, self._segment.name, self._position, offset
        )

    def _end_early(self, rest: memoryview) -> None:
        if self._is_zero_to_end():
            self._note_zeros()
            return
        try:
            read_header(rest)
            reason = f"batch ends after the file: {len(rest)} bytes of it are there"
        except TruncatedDataError as error:
            reason = error.reason
        self._findings.add(
            self._severity(is_last=True), "I1", reason, self._segment.name, self._position
        )

    def _is_zero_to_end(self) -> bool:
        """Say whether nothing follows but the room that a file was given in advance."""
        for position in range(self._position, self._segment.size_bytes, CHUNK_BYTES):
            if any(self._file.read(position, HEADER_SIZE)):
                return False
            if np.frombuffer(self._file.read(position, CHUNK_BYTES), np.uint8).any():
                return False
        return True

    def _note_zeros(self) -> None:
        if not self._segment.is_active:
            count = self._segment.size_bytes - self._position
            self._findings.violation(
                "I1",
                f"{count} zeros after the last batch of a segment that was rolled",
                file=self._segment.name,
                position=self._position,
            )

    def _severity(self, *, is_last: bool) -> Severity:
        """Tell damage from the torn end of a log whose owner was killed, or is writing."""
        if is_last and self._segment.is_active and not self._was_clean:
            return Severity.WARNING
        return Severity.VIOLATION


def check_segments(
    files: LogFiles, first_dirty_offset: int, segment_bytes: int, findings: Findings
) -> None:
    """Check I2 as far as it is about sizes: no segment too large, no litter of empty ones."""
    clean = [s for s in files.segments[:-1] if s.base_offset < first_dirty_offset]
    for segment in clean:
        if segment.size_bytes > segment_bytes:
            findings.warning(
                "I2",
                f"{segment.size_bytes} bytes are more than segment.bytes ({segment_bytes})",
                file=segment.name,
            )
    for is_empty, group in itertools.groupby(clean, lambda segment: not segment.size_bytes):
        first, *others = group
        if is_empty and others:
            findings.warning(
                "I2",
                f"is empty, and so is what follows up to {others[-1].name}: the next pass can "
                "merge them",
                file=first.name,
            )


def _find_size(data: memoryview) -> int | None:
    """Return the size that a batch claims, if it has the form of one."""
    size = int.from_bytes(data[8:12], "big", signed=True) + 12
    return size if size >= HEADER_SIZE and len(data) >= HEADER_SIZE else None


def _may_begin_batch(data: memoryview, *, at_end: bool) -> bool:
    if not data:
        return True
    try:
        read_header(data)
    except TruncatedDataError:
        return not at_end
    except DecodeError:
        return False
    return True


def _size_at(file: File, position: int) -> int:
    try:
        return read_header(file.read(position, HEADER_SIZE)).size_bytes
    except DecodeError as error:
        raise FileNotFoundError(file.path) from error
