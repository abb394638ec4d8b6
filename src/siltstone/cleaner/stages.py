"""A pass by many tasks, in three stages; what each does, and what passes between them.

    index     one task per slice    reads and checks, and finds the last record of each key *there*
    resolve   one task per range    finds the last record of each key of a range of hashes
    rewrite   one task per share    writes what is left

Between the first and the last the driver finds out what transactions say about each batch. What is
written is what one task alone would write: records get the same marks, batches the same modes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner.batch_modes import NOTE_DTYPE, GivenModes, NotedModes, replay
from siltstone.cleaner.crc_combine import combine_crcs
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.key_walk import KeyWalk
from siltstone.cleaner.key_winners import mark_survivors
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, PassCounts, PassResult
from siltstone.cleaner.rewriting import Rewriting
from siltstone.cleaner.side_by_side import Threads
from siltstone.cleaner.slices import Piece, Share, Slice
from siltstone.cleaner.storage import PassStorage
from siltstone.errors import CorruptBatchError
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.layout import CONTROL_BIT


@dataclass(frozen=True, slots=True)
class SliceModes:
    """What transactions say about the batches of a slice, as `GivenModes` takes it."""

    modes: bytes
    aborts: Mapping[int, AbortedTxn]


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What the driver must know of a slice that was indexed."""

    number: int
    record_count: int  # in data batches
    keyless_count: int
    piece_crcs: tuple[int, ...]
    notes: bytes  # rows of NOTE_DTYPE
    modes: bytes  # what data was taken for; markers are not to be relied on


@dataclass(frozen=True, slots=True)
class ShareOrder:
    """What the task of a share must know, but for the survivors."""

    number: int
    share: Share
    record_counts: tuple[int, ...]  # of its slices
    modes: tuple[SliceModes, ...]  # of its slices

    @property
    def slice_numbers(self) -> list[int]:
        """Return the numbers of its slices."""
        return [part.number for part in self.share.slices]


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What became of a share."""

    number: int
    groups: tuple[GroupResult, ...]
    counts: PassCounts


def index_slice(
    plan: CleaningPlan,
    storage: PassStorage,
    part: Slice,
    range_count: int,
    known: SliceModes | None = None,
) -> tuple[SliceReport, list[NDArray[np.uint64]]]:
    """Check a slice and find its keys; return them in blocks, one for each range of hashes.

    Without `known` modes, those of data are taken from the plan's aborted transactions: one that
    ended before the slice says nothing about it.
    """
    noted = NotedModes(txn for txn in plan.aborted if txn.last_offset >= part.first_offset)
    modes = noted if known is None else given_modes([known])
    walk = KeyWalk(storage, KeyMarks(plan.hash_key), modes, Threads(1))
    crcs = tuple(_index_piece(walk, storage, piece) for piece in part.pieces)
    report = SliceReport(
        part.number,
        walk.keys.entered,
        walk.keys.keyless_count(),
        crcs,
        noted.notes().tobytes(),
        noted.modes().tobytes(),
    )
    return report, walk.keys.pack(range_count)


def _index_piece(walk: KeyWalk, storage: PassStorage, piece: Piece) -> int:
    crc = walk.enter(piece.base_offset, piece.start, piece.end)
    if piece.end_offset is not None and walk.next_offset > piece.end_offset:
        path = storage.open_source(piece.base_offset).path
        reason = f"offset {piece.end_offset}, expected {walk.next_offset} or more"
        raise CorruptBatchError(path, piece.end, reason)
    return crc


def settle_modes(
    plan: CleaningPlan, reports: Sequence[SliceReport]
) -> tuple[list[SliceModes], bool]:
    """Find out what transactions say about all batches, from the reports of all slices in order.

    Also return whether the slices were right about their data; if not, index them again.
    """
    notes = [_rows(report.notes) for report in reports]
    settled = [SliceModes(modes.tobytes(), aborts) for modes, aborts in replay(plan.aborted, notes)]
    were_right = all(
        _of_data(rows, report.modes) == _of_data(rows, slice_modes.modes)
        for rows, report, slice_modes in zip(notes, reports, settled, strict=True)
    )
    return settled, were_right


def given_modes(slices: Iterable[SliceModes]) -> GivenModes:
    """Join what is known about neighbouring slices."""
    modes: list[bytes] = []
    aborts: dict[int, AbortedTxn] = {}
    count = 0
    for part in slices:
        modes.append(part.modes)
        aborts.update((count + number, txn) for number, txn in part.aborts.items())
        count += len(part.modes)
    return GivenModes(np.frombuffer(b"".join(modes), np.uint8), aborts)


def rewrite_share(
    plan: CleaningPlan,
    storage: PassStorage,
    attempt: str,
    order: ShareOrder,
    survivors: Iterable[tuple[int, bytes]],
) -> ShareResult:
    """Write what is left of a share; `survivors` are blocks of slices, in any order."""
    counts = order.record_counts
    marks = np.zeros(sum(counts), np.uint8)
    starts = dict(zip(order.slice_numbers, np.cumsum(counts) - counts, strict=True))
    for slice_number, block in survivors:
        mark_survivors(np.frombuffer(block, np.uint32), marks[starts[slice_number] :])
    rewriting = Rewriting(plan, storage, attempt, marks, given_modes(order.modes), Threads(1))
    groups = tuple(rewriting.clean(group) for group in order.share.groups)
    return ShareResult(order.number, groups, rewriting.total_counts())


def order_shares(
    shares: Sequence[Share], reports: Sequence[SliceReport], modes: Sequence[SliceModes]
) -> list[ShareOrder]:
    """Give each share what is known about its slices."""
    return [
        ShareOrder(
            number,
            share,
            tuple(reports[part.number].record_count for part in share.slices),
            tuple(modes[part.number] for part in share.slices),
        )
        for number, share in enumerate(shares)
    ]


def join_results(
    plan: CleaningPlan,
    shares: Sequence[Share],
    reports: Sequence[SliceReport],
    results: Iterable[ShareResult],
    seconds: float,
) -> PassResult:
    """Make the result of a pass from those of its shares."""
    ordered = sorted(results, key=lambda result: result.number)
    counts = PassCounts.total(result.counts for result in ordered)
    # A record without a key is no survivor, and that is all that a rewriting task knows of it.
    keyless_count = sum(report.keyless_count for report in reports)
    counts.superseded -= keyless_count
    counts.keyless_removed += keyless_count
    groups = tuple(group for result in ordered for group in result.groups)
    return PassResult(plan.pass_id, groups, counts, _source_crcs(shares, reports), seconds)


def _source_crcs(shares: Sequence[Share], reports: Sequence[SliceReport]) -> tuple[int, ...]:
    crcs: dict[int, int] = {}
    for share in shares:
        for part in share.slices:
            for piece, crc in zip(part.pieces, reports[part.number].piece_crcs, strict=True):
                before = crcs.get(piece.base_offset, 0)
                crcs[piece.base_offset] = combine_crcs(before, crc, piece.end - piece.start)
    return tuple(crcs.values())


def _rows(notes: bytes) -> NDArray[Any]:
    return np.frombuffer(notes, NOTE_DTYPE)


def _of_data(notes: NDArray[Any], modes: bytes) -> bytes:
    is_data: NDArray[np.bool_] = (notes["attributes"] & CONTROL_BIT) == 0
    return bytes(np.frombuffer(modes, np.uint8)[is_data])
