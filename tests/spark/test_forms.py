"""One task or many: decided by numbers alone."""

import pytest

from siltstone.spark.forms import MAX_FUSED_BYTES, MAX_SLICE_BYTES, Stages, is_staged, slice_size

MB = 1 << 20
GB = 1 << 30


def decide(source_bytes: int, others: list[int], cores: int, ask: Stages = Stages.AUTO) -> bool:
    return is_staged(source_bytes, [source_bytes, *others], cores, ask)


@pytest.mark.parametrize("size", [0, MB, 100 * GB])
def test_what_the_user_asks_for_is_done(size: int) -> None:
    assert decide(size, [], 8, Stages.STAGED)
    assert not decide(size, [], 8, Stages.FUSED)


def test_a_plan_too_large_for_one_task_is_staged_whatever_else_there_is() -> None:
    assert decide(MAX_FUSED_BYTES + 1, [MAX_FUSED_BYTES] * 100, 2)
    assert not decide(MAX_FUSED_BYTES, [MAX_FUSED_BYTES] * 100, 2)


def test_two_cores_are_not_worth_the_second_reading() -> None:
    assert not decide(900 * MB, [], 2)


def test_a_single_plan_is_staged_where_many_cores_would_be_idle() -> None:
    assert decide(900 * MB, [], 8)
    assert not decide(900 * MB, [900 * MB] * 7, 8)


def test_one_among_small_ones_is_staged_if_they_would_wait_for_it() -> None:
    assert decide(900 * MB, [10 * MB] * 7, 8)


def test_a_small_plan_is_never_worth_it() -> None:
    assert not decide(10 * MB, [], 64)


def test_there_is_a_slice_for_each_core() -> None:
    assert slice_size(800 * MB, 8) == 100 * MB


def test_slices_are_neither_tiny_nor_larger_than_a_worker_can_take() -> None:
    assert slice_size(10 * MB, 64) == 16 * MB
    assert slice_size(100 * GB, 8) == MAX_SLICE_BYTES


def test_no_plan_at_all_is_fine() -> None:
    assert slice_size(0, 4) == 16 * MB
