"""Batches in a log file: their headers alone, or whole, from one position to another."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from siltstone.errors import CorruptBatchError, DecodeError, TruncatedDataError
from siltstone.log.filesystem import File
from siltstone.records.batch import Batch, BatchHeader, read_batch, read_header
from siltstone.records.layout import HEADER_SIZE

READ_CHUNK_BYTES: Final = 1 << 20
_HEADER_WINDOW_BYTES: Final = 8192  # two index intervals: mostly one read finds the batch


class StoredHeader(NamedTuple):
    """A batch's header and where the batch begins in the log file."""

    position: int
    header: BatchHeader


def read_stored_header(file: File, position: int, end: int) -> StoredHeader:
    """Read the header at a batch's position, of a file that counts up to `end`."""
    return _parse_header(file, file.read(position, HEADER_SIZE), 0, position, end)


def iter_stored_headers(file: File, start: int, end: int) -> Iterator[StoredHeader]:
    """Yield the headers from a batch's position on, reading little else."""
    position = start
    while position < end:
        window_start = position
        window = file.read(position, min(_HEADER_WINDOW_BYTES, end - position))
        while True:
            stored = _parse_header(file, window, position - window_start, position, end)
            yield stored
            position += stored.header.size_bytes
            if position - window_start + HEADER_SIZE > len(window):
                break


def _parse_header(file: File, window: bytes, at: int, position: int, end: int) -> StoredHeader:
    try:
        header = read_header(window, at)
    except DecodeError as error:
        raise CorruptBatchError(file.path, position, error.reason) from error
    if position + header.size_bytes > end:
        raise CorruptBatchError(
            file.path, position, f"batch of {header.size_bytes} bytes ends after the file"
        )
    return StoredHeader(position, header)


def iter_stored_batches(
    file: File, start: int, end: int, *, check_crc: bool = True
) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) from a log file between two positions, each a batch's boundary."""
    position = start
    chunk_bytes = READ_CHUNK_BYTES
    while position < end:
        chunk_start = position
        wanted_bytes = min(chunk_bytes, end - position)
        chunk = file.read(position, wanted_bytes)
        chunk_bytes = READ_CHUNK_BYTES
        while (at := position - chunk_start) < len(chunk):
            try:
                batch = read_batch(chunk, at)
                if check_crc:
                    batch.check_crc()
            except TruncatedDataError as error:
                if chunk_start + len(chunk) >= end:
                    raise CorruptBatchError(file.path, position, error.reason) from error
                break  # The rest of the batch is in the next chunk.
            except DecodeError as error:
                raise CorruptBatchError(file.path, position, error.reason) from error
            yield position, batch
            position += batch.header.size_bytes
        if position == chunk_start:
            if len(chunk) < wanted_bytes:
                raise CorruptBatchError(file.path, position, "the file ends too early")
            # A batch larger than the chunk: read what it takes, then go back to normal.
            chunk_bytes = read_header(chunk).size_bytes
