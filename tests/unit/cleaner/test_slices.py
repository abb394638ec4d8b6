"""How a plan is shared out among tasks."""

import dataclasses
from pathlib import Path

import pytest

from siltstone.cleaner.plan import CleaningPlan, Source
from siltstone.cleaner.slices import Piece, Share, Slice, Split, plan_shares
from siltstone.ids import TopicPartition


def make_plan(*groups: tuple[int, ...]) -> CleaningPlan:
    """Plan a pass over segments of these sizes; the n-th segment begins with offset n * 1000."""
    sizes = [size for group in groups for size in group]
    sources = tuple(Source(1_000 * n, size, 0) for n, size in enumerate(sizes))
    bases = iter([source.base_offset for source in sources])
    return CleaningPlan(
        pass_id="p",
        partition=TopicPartition("orders", 0),
        directory=Path("orders-0"),
        reason="",
        sources=sources,
        groups=tuple(tuple(next(bases) for _ in group) for group in groups),
        log_start_offset=0,
        first_dirty_offset=0,
        end_offset=1_000_000,
        aborted=(),
        last_records=(),
        now_ms=0,
        delete_retention_ms=0,
        segment_bytes=1_000,
        index_interval_bytes=4096,
        segment_index_bytes=4096,
        hash_key=bytes(16),
    )


def split_anywhere(base_offset: int, position: int) -> Split:
    return Split(position, base_offset + position)


def split_nowhere(base_offset: int, position: int) -> None:
    return None


def test_small_neighbours_are_one_share_and_one_slice() -> None:
    plan = make_plan((100, 100), (200,), (500,))

    shares = plan_shares(plan, 400, split_anywhere)

    first = Slice(
        0,
        (
            Piece(0, 0, 100, 0, None),
            Piece(1_000, 0, 100, 1_000, None),
            Piece(2_000, 0, 200, 2_000, None),
        ),
    )
    assert shares[0] == Share(((0, 1_000), (2_000,)), (first,))


def test_a_large_segment_is_one_share_of_several_slices() -> None:
    plan = make_plan((1_000,))

    (share,) = plan_shares(plan, 400, split_anywhere)

    assert share.groups == ((0,),)
    assert share.slices == (
        Slice(0, (Piece(0, 0, 333, 0, 333),)),
        Slice(1, (Piece(0, 333, 666, 333, 666),)),
        Slice(2, (Piece(0, 666, 1_000, 666, None),)),
    )


def test_a_segment_that_cannot_be_split_stays_whole() -> None:
    plan = make_plan((1_000,), (10,))

    shares = plan_shares(plan, 400, split_nowhere)

    assert [s.pieces for share in shares for s in share.slices] == [
        (Piece(0, 0, 1_000, 0, None),),
        (Piece(1_000, 0, 10, 1_000, None),),
    ]


def test_a_split_that_was_had_before_is_no_second_one() -> None:
    plan = make_plan((1_000,))

    (share,) = plan_shares(plan, 100, lambda base, position: Split(500, 500))

    assert [s.pieces for s in share.slices] == [
        (Piece(0, 0, 500, 0, 500),),
        (Piece(0, 500, 1_000, 500, None),),
    ]


@pytest.mark.parametrize("slice_bytes", [1, 7, 100, 450, 10_000])
def test_every_byte_is_in_one_slice_and_every_group_in_one_share(slice_bytes: int) -> None:
    plan = make_plan((300, 0, 50), (0,), (777,), (10, 20, 30), (450,))

    shares = plan_shares(plan, slice_bytes, split_anywhere)

    assert tuple(group for share in shares for group in share.groups) == plan.groups
    slices = [part for share in shares for part in share.slices]
    assert [part.number for part in slices] == list(range(len(slices)))
    for source in plan.sources:
        pieces = [p for s in slices for p in s.pieces if p.base_offset == source.base_offset]
        ends = [piece.end for piece in pieces]
        assert [piece.start for piece in pieces] == [0, *ends[:-1]]
        assert ends[-1] == source.size_bytes


def test_a_plan_without_sources_has_no_shares() -> None:
    plan = dataclasses.replace(make_plan(), sources=(), groups=())

    assert plan_shares(plan, 100, split_anywhere) == ()
