"""The last record of every key by tasks alone: keys travel, values stay, as in a pass.

    index     a slice of a partition each   finds the last record of every key *there*
    resolve   a range of hashes each        finds the last record of every key over all slices
    read      a slice each                  copies out what was found: `stages.read_share`

Between them go 16 bytes for each key of a slice, and then four for each record that was found. Both
name a record by its offset, counted from where its slice begins: whatever a pass does to the files
between two stages, a record is the same at its offset.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.key_winners import KeyWinners, Survivors, Uint64s
from siltstone.ids import TopicPartition
from siltstone.table.chunks import GapFinder, iter_chunks
from siltstone.table.request import ViewRequest, raise_consistent_from, resolve_bounds
from siltstone.table.snapshot import LogSnapshot
from siltstone.table.stages import ChunkOffsets, Offsets, find_offsets, list_offsets

MAX_SLICE_OFFSETS: Final = 2**31
"""How many offsets a slice may span: one of them and a bit share four bytes."""

_NUMBER_BITS: Final = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class KeySlice:
    """A part of one partition, between two offsets."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    is_last: bool  # of its partition
    hash_key: bytes  # The same in all slices of a partition, and in those of no other.


def index_slice(
    snapshot: LogSnapshot, request: ViewRequest, part: KeySlice, range_count: int
) -> list[Uint64s]:
    """Return the keys of a slice in blocks by range of hashes, as `KeyWinners` takes them.

    The snapshot may begin with the slice; the request is for the partition as a whole. Raise
    NotExactError if compaction has taken the view apart.
    """
    whole = resolve_bounds(snapshot, request)
    bounds = replace(whole, start_offset=part.start_offset, end_offset=part.end_offset)
    keys = KeyMarks(part.hash_key)
    gaps = GapFinder(max(whole.consistent_from, part.start_offset), part.end_offset)
    chunks: list[ChunkOffsets] = []
    for found in iter_chunks(snapshot, request, bounds, check_crc=False, gaps=gaps):
        keys.enter_chunk(found.file, found.chunk)
        chunks.append(list_offsets(found))
    if gaps.has_found or (not part.is_last and gaps.next_offset < part.end_offset):
        raise_consistent_from(whole, request, snapshot)
    offsets = find_offsets(chunks, np.arange(keys.entered))
    return [_name_by_offset(block, offsets, part) for block in keys.pack(range_count)]


def resolve_range(
    blocks: Iterable[tuple[int, bytes]], slice_count: int, range_count: int
) -> list[Survivors]:
    """Find what is left of each slice in one range of hashes, from numbers and blocks of slices."""
    winners = KeyWinners(range_count)
    for number, block in blocks:
        winners.enter(number, block)
    return winners.survivors(slice_count)


def list_winners(request: ViewRequest, part: KeySlice, survivors: Iterable[bytes]) -> Offsets:
    """Return the offsets of the records in a slice that are in the view; they rise."""
    left = np.sort(np.frombuffer(b"".join(survivors), np.uint32))
    if not request.shows_tombstones:
        left = left[(left & np.uint32(1)) == 0]
    return part.start_offset + (left >> np.uint32(1)).astype(np.int64)


def _name_by_offset(block: Uint64s, offsets: Offsets, part: KeySlice) -> Uint64s:
    """Put offsets in the place of the numbers under which keys were entered."""
    words = block[:, 1]
    numbers = (words & _NUMBER_BITS) >> np.uint64(1)
    relative = (offsets[numbers.astype(np.int64)] - part.start_offset).astype(np.uint64)
    named = block.copy()
    named[:, 1] = words & ~_NUMBER_BITS | relative << np.uint64(1) | words & np.uint64(1)
    return named
