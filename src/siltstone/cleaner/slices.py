"""How a log is shared out among tasks: shares to write, and within them slices to index.

A share is a run of neighbouring segment groups, cleaned by one task, since a group becomes one
segment. A slice is a run of bytes that one task reads to find its keys: a whole share if that is
small, or else a part of it that ends with a batch. Neither has a say in what is written.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from siltstone.cleaner.plan import CleaningPlan


@dataclass(frozen=True, slots=True)
class Split:
    """A place in a source where a batch begins."""

    position: int
    offset: int  # the base offset of that batch


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches of one source."""

    base_offset: int  # of the source
    start: int
    end: int
    first_offset: int  # no batch in it begins below
    end_offset: int | None  # with which the next piece of the source begins


@dataclass(frozen=True, slots=True)
class Slice:
    """Neighbouring pieces that one task indexes."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def first_offset(self) -> int:
        """Return the offset that no batch of the slice begins below."""
        return self.pieces[0].first_offset


@dataclass(frozen=True, slots=True)
class Share:
    """Neighbouring segment groups that one task cleans, and the slices that they are made of."""

    groups: tuple[tuple[int, ...], ...]
    slices: tuple[Slice, ...]


FindSplit: TypeAlias = Callable[[int, int], Split | None]
"""Takes the base offset of a source and a position; returns a split near it, if there is one."""


def plan_shares(plan: CleaningPlan, slice_bytes: int, find_split: FindSplit) -> tuple[Share, ...]:
    """Share out a plan so that slices have about `slice_bytes`."""
    sizes = {source.base_offset: source.size_bytes for source in plan.sources}
    shares: list[Share] = []
    number = 0
    for groups in _runs_of_groups(plan.groups, sizes, slice_bytes):
        pieces = [
            piece
            for group in groups
            for base_offset in group
            for piece in _cut(base_offset, sizes[base_offset], slice_bytes, find_split)
        ]
        slices = []
        for run in _runs_of_pieces(pieces, slice_bytes):
            slices.append(Slice(number, run))
            number += 1
        shares.append(Share(groups, tuple(slices)))
    return tuple(shares)


def _runs_of_groups(
    groups: Sequence[tuple[int, ...]], sizes: dict[int, int], limit_bytes: int
) -> list[tuple[tuple[int, ...], ...]]:
    """Put small neighbouring groups together; a large one stays alone."""
    runs: list[list[tuple[int, ...]]] = []
    run_bytes = 0
    for group in groups:
        group_bytes = sum(sizes[base_offset] for base_offset in group)
        if not runs or run_bytes + group_bytes > limit_bytes:
            runs.append([])
            run_bytes = 0
        runs[-1].append(group)
        run_bytes += group_bytes
    return [tuple(run) for run in runs]


def _cut(base_offset: int, size_bytes: int, slice_bytes: int, find_split: FindSplit) -> list[Piece]:
    """Cut a source into pieces of equal size, as far as batches allow."""
    splits = [Split(0, base_offset)]
    count = -(-size_bytes // slice_bytes)
    for number in range(1, count):
        split = find_split(base_offset, size_bytes * number // count)
        if split is not None and splits[-1].position < split.position < size_bytes:
            splits.append(split)
    pieces = [
        Piece(base_offset, split.position, end.position, split.offset, end.offset)
        for split, end in itertools.pairwise(splits)
    ]
    last = splits[-1]
    return [*pieces, Piece(base_offset, last.position, size_bytes, last.offset, None)]


def _runs_of_pieces(pieces: Sequence[Piece], limit_bytes: int) -> list[tuple[Piece, ...]]:
    runs: list[list[Piece]] = []
    run_bytes = 0
    for piece in pieces:
        piece_bytes = piece.end - piece.start
        if not runs or run_bytes + piece_bytes > limit_bytes:
            runs.append([])
            run_bytes = 0
        runs[-1].append(piece)
        run_bytes += piece_bytes
    return [tuple(run) for run in runs]
