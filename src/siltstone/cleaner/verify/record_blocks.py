"""The records of a log in blocks, as arrays: no object per record, whatever the size of the log."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.verify import kernels
from siltstone.cleaner.verify.batches import BatchWalker, Chunk
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.transactions import Place
from siltstone.errors import DecodeError
from siltstone.records.batch import read_batch
from siltstone.records.compression import MAX_PAYLOAD_BYTES
from siltstone.records.layout import CODEC_MASK
from siltstone.records.record import Record
from siltstone.records.scan import Batches, Bytes, Records, scan

UInt64s = NDArray[np.uint64]

_WORD_BYTES: Final = 8

OnFault = Callable[[Chunk, int, str], None]
"""Is told the chunk, the number of the batch in it and the reason."""


class Block(NamedTuple):
    """The records of some batches of a chunk, in order."""

    batches: Batches
    numbers: NDArray[np.int64]  # of the batches, in their chunk
    records: Records  # rows of kernel_types.RECORD_DTYPE; positions count in the payload
    owners: NDArray[np.int64]  # of each record: which of `batches` holds it
    payload: Bytes


class Hashes(NamedTuple):
    """What stands for the records of a block: equal hashes, equal bytes."""

    keys: UInt64s  # without meaning where there is no key
    contents: UInt64s  # timestamp, key, value, headers


class RecordHasher:
    """Hashes records with a key of its own, so that nobody can make up two that collide."""

    def __init__(self) -> None:
        secret = secrets.token_bytes(2 * _WORD_BYTES)
        # As numpy's own type, or numba would take a large one for a float.
        self._key0: Any = np.uint64(int.from_bytes(secret[:_WORD_BYTES], "little"))
        self._key1: Any = np.uint64(int.from_bytes(secret[_WORD_BYTES:], "little"))

    def hash(self, block: Block) -> Hashes:
        """Hash the records of a block."""
        keys = np.empty(len(block.records), np.uint64)
        contents = np.empty(len(block.records), np.uint64)
        kernels.hash_records(block.payload, block.records, self._key0, self._key1, keys, contents)
        return Hashes(keys, contents)


def iter_blocks(chunk: Chunk, on_fault: OnFault) -> Iterator[Block]:
    """Decode the batches of a chunk, each compressed one by itself; leave out what is not sound."""
    is_compressed = (chunk.batches["attributes"] & CODEC_MASK) != 0
    start = 0
    for end in [*(np.flatnonzero(np.diff(is_compressed)) + 1).tolist(), len(chunk.batches)]:
        step = 1 if is_compressed[start] else end - start
        for first in range(start, end, step):
            yield from _decode(chunk, first, first + step, on_fault)
        start = end


def _decode(chunk: Chunk, first: int, end: int, on_fault: OnFault) -> Iterator[Block]:
    batches = chunk.batches[first:end]
    try:
        found = scan(chunk.data, batches, limit_bytes=MAX_PAYLOAD_BYTES)
    except DecodeError as error:
        if end - first == 1:
            on_fault(chunk, first, error.reason)
            return
        for number in range(first, end):
            yield from _decode(chunk, number, number + 1, on_fault)
        return
    owners = np.repeat(np.arange(end - first), batches["record_count"])
    numbers = np.arange(first, end)
    yield Block(batches, numbers, found.records, owners, found.payloads[0])


class FoundRecord(NamedTuple):
    """A record and where its batch is."""

    place: Place
    record: Record


def find_records(
    walker: BatchWalker, files: LogFiles, offsets: Sequence[int]
) -> Mapping[int, FoundRecord]:
    """Look up a few records by their offsets, to say what is wrong with them."""
    found = {}
    wanted = np.array(sorted(offsets), np.int64)
    for segment in files.segments:
        end_offset = segment.end_offset
        here = wanted[wanted >= segment.base_offset]
        if end_offset is not None:
            here = here[here < end_offset]
        if not len(here):
            continue
        for chunk in walker.again(segment):
            rows = chunk.batches
            first = np.searchsorted(here, rows["base_offset"])
            last = np.searchsorted(here, rows["last_offset"], side="right")
            for number in np.flatnonzero(last > first):
                position = int(rows["position"][number])
                with contextlib.suppress(DecodeError):  # which another check has told of
                    for record in read_batch(chunk.data, position).iter_records():
                        if record.offset in here:
                            place = Place(segment.name, chunk.position + position, record.offset)
                            found[record.offset] = FoundRecord(place, record)
    return found
