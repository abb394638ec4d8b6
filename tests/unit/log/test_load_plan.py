"""What names alone tell about the crash that left them: facts 8.A41 (a) to (f), and facts 1.7.

Names are written without the zeros in front: `0.log` stands for `00000000000000000000.log`.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.log.load_plan import LoadPlan, plan_load

# Two segments, cleaned into one whose last batch ends at offset 9.
OLD = "0.log 0.index 0.timeindex 5.log 5.index 5.timeindex 5.snapshot"
ACTIVE = "10.log 10.index 10.timeindex 10.snapshot"
NEXT_OFFSETS: Mapping[int, int] = {0: 10}

FILES = ("0.log", "0.index", "0.timeindex", "0.txnindex")


def plan(text: str, next_offsets: Mapping[int, int] = NEXT_OFFSETS) -> LoadPlan:
    return plan_load([_pad(name) for name in text.split()], lambda base: next_offsets[base])


def remaining(found: LoadPlan) -> set[str]:
    return {_strip(name) for name in found.remaining}


def deletions(found: LoadPlan) -> set[str]:
    return {_strip(name) for name in found.deletions}


def renames(found: LoadPlan) -> dict[str, str]:
    return {_strip(source): _strip(target) for source, target in found.renames}


def _pad(name: str) -> str:
    offset, dot, rest = name.partition(".")
    return f"{int(offset):020d}{dot}{rest}" if offset.isdigit() else name


def _strip(name: str) -> str:
    offset, dot, rest = name.partition(".")
    return f"{int(offset)}{dot}{rest}" if offset.isdigit() else name


def test_a_manifest_that_was_never_finished_goes() -> None:
    found = plan(f"{ACTIVE} silt-manifest-0000000001-ab.json silt-manifest-0000000002-cd.json.tmp")

    assert deletions(found) == {"silt-manifest-0000000002-cd.json.tmp"}


class TestCrashesOfASwap:
    def test_a_with_only_cleaned_files_the_old_segments_stay(self) -> None:
        found = plan(f"{OLD} {ACTIVE} 0.log.cleaned 0.index.cleaned 0.timeindex.cleaned")

        assert remaining(found) == set(f"{OLD} {ACTIVE}".split())
        assert found.renames == ()
        assert found.segments == ((0, ""), (5, ""), (10, ""))

    def test_b_with_some_files_still_cleaned_the_old_segments_stay(self) -> None:
        found = plan(f"{OLD} {ACTIVE} 0.log.swap 0.index.cleaned 0.timeindex.cleaned")

        assert remaining(found) == set(f"{OLD} {ACTIVE}".split())
        assert found.segments == ((0, ""), (5, ""), (10, ""))

    def test_c_with_all_files_swaps_the_new_segment_takes_the_old_ones_place(self) -> None:
        found = plan(f"{OLD} {ACTIVE} 0.log.swap 0.index.swap 0.timeindex.swap")

        assert deletions(found) == set(OLD.split())
        assert renames(found) == {
            "0.log.swap": "0.log",
            "0.index.swap": "0.index",
            "0.timeindex.swap": "0.timeindex",
        }
        assert remaining(found) == {"0.log", "0.index", "0.timeindex", *ACTIVE.split()}
        assert found.segments == ((0, ".swap"), (10, ""))

    def test_d_with_the_old_segments_deleted_already_the_swap_is_finished(self) -> None:
        old = " ".join(f"{name}.deleted" for name in OLD.split())
        found = plan(f"{old} {ACTIVE} 0.log.swap 0.index.swap 0.timeindex.swap")

        assert remaining(found) == {"0.log", "0.index", "0.timeindex", *ACTIVE.split()}
        assert found.segments == ((0, ".swap"), (10, ""))

    def test_e_with_only_the_time_index_a_swap_it_gets_its_name(self) -> None:
        old = " ".join(f"{name}.deleted" for name in OLD.split())
        found = plan(f"{old} {ACTIVE} 0.log 0.index 0.timeindex.swap")

        assert renames(found) == {"0.timeindex.swap": "0.timeindex"}
        assert remaining(found) == {"0.log", "0.index", "0.timeindex", *ACTIVE.split()}
        assert found.segments == ((0, ""), (10, ""))

    def test_f_when_the_swap_is_finished_only_deleted_files_go(self) -> None:
        old = " ".join(f"{name}.deleted" for name in OLD.split())
        found = plan(f"{old} {ACTIVE} 0.log 0.index 0.timeindex")

        assert deletions(found) == set(old.split())
        assert found.renames == ()
        assert found.segments == ((0, ""), (10, ""))


class TestSwapsOfSeveralSegments:
    """As a split makes them, or a pass whose output did not fit one segment."""

    PARTS: Mapping[int, int] = {0: 5, 7: 10}

    def test_a_swap_above_a_cleaned_one_is_unfinished(self) -> None:
        found = plan("0.log 0.log.cleaned 7.log.swap 7.index.swap", self.PARTS)

        assert remaining(found) == {"0.log"}
        assert found.renames == ()

    def test_a_swap_below_a_cleaned_one_is_finished(self) -> None:
        # Nobody leaves such files, for the highest becomes a swap first; it is Kafka's rule.
        found = plan("0.log 3.log 0.log.swap 7.log.cleaned", self.PARTS)

        assert remaining(found) == {"0.log"}
        assert found.segments == ((0, ".swap"),)

    def test_all_of_them_are_finished_together(self) -> None:
        found = plan("0.log 0.log.swap 7.log.swap 12.log", self.PARTS)

        assert remaining(found) == {"0.log", "7.log", "12.log"}
        assert found.segments == ((0, ".swap"), (7, ".swap"), (12, ""))

    def test_those_that_have_their_names_already_are_kept(self) -> None:
        found = plan("0.log 0.index 7.log.swap 7.index.swap 12.log", self.PARTS)

        assert remaining(found) == {"0.log", "0.index", "7.log", "7.index", "12.log"}
        assert found.segments == ((0, ""), (7, ".swap"), (12, ""))


class TestRanges:
    def test_an_old_segment_after_the_last_surviving_batch_comes_back(self) -> None:
        # The group ended at 10, but its last survivor at 4: facts 1.7, harmless.
        found = plan("0.log 5.log 10.log 0.log.swap", {0: 5})

        assert found.segments == ((0, ".swap"), (5, ""), (10, ""))

    def test_a_swap_without_batches_replaces_its_namesake_only(self) -> None:
        found = plan("0.log 0.snapshot 5.log 0.log.swap", {0: 0})

        assert found.deletions == ()
        assert renames(found) == {"0.log.swap": "0.log"}
        assert found.segments == ((0, ".swap"), (5, ""))

    def test_every_file_with_an_offset_in_the_range_goes_whatever_it_is(self) -> None:
        found = plan("0.log 5.snapshot 5.keys 7.anything.at-all 9.log 10.log 0.log.swap")

        assert deletions(found) == {"0.log", "5.snapshot", "5.keys", "7.anything.at-all", "9.log"}

    def test_files_without_an_offset_are_nobodys_business(self) -> None:
        others = {"leader-epoch-checkpoint", "partition.metadata", "silt-manifest.json", "x.log"}
        found = plan(f"0.log 0.log.swap {' '.join(others)}")

        assert others < remaining(found)


class TestLeftOvers:
    def test_deleted_files_go(self) -> None:
        assert deletions(plan("0.log 0.log.deleted 3.snapshot.deleted x.deleted")) == {
            "0.log.deleted",
            "3.snapshot.deleted",
            "x.deleted",
        }

    def test_a_deleted_snapshot_of_the_metadata_log_is_kafkas_to_remove(self) -> None:
        name = "00000000000000000007-0000000001.checkpoint.deleted"

        assert plan(f"0.log {name}").deletions == ()

    def test_an_index_without_its_log_file_goes(self) -> None:
        found = plan("0.log 0.index 3.index 3.timeindex 3.txnindex 3.snapshot 4.index.swap")

        assert deletions(found) == {"3.index", "3.timeindex", "3.txnindex", "4.index.swap"}

    def test_an_empty_directory_has_no_segments(self) -> None:
        assert plan("") == LoadPlan(deletions=(), renames=(), segments=(), remaining=())


SUFFIXES = ["", ".cleaned", ".swap", ".deleted"]
segment_names = st.builds(
    lambda offset, extension, suffix: f"{offset}.{extension}{suffix}",
    st.sampled_from([0, 3, 5, 9]),
    st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]),
    st.sampled_from(SUFFIXES),
)


@given(st.sets(segment_names), st.fixed_dictionaries({o: st.integers(0, 6) for o in (0, 3, 5, 9)}))
def test_a_directory_that_was_loaded_once_needs_nothing_the_second_time(
    names: set[str], lengths: dict[int, int]
) -> None:
    next_offsets = {offset: offset + length for offset, length in lengths.items()}
    first = plan(" ".join(names), next_offsets)

    second = plan_load(first.remaining, lambda base: next_offsets[base])

    assert not second.deletions
    assert not second.renames
    assert second.remaining == first.remaining
    assert [base for base, _ in second.segments] == [base for base, _ in first.segments]


@given(st.sets(segment_names))
def test_no_segment_is_made_of_files_that_go(names: set[str]) -> None:
    found = plan(" ".join(names), {0: 4, 3: 6, 5: 9, 9: 12})

    for base, suffix in found.segments:
        assert f"{base:020d}.log{suffix}" not in found.deletions
        assert suffix in ("", ".swap")
    assert not set(found.deletions) & {source for source, _ in found.renames}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", FILES)
def test_every_file_of_a_segment_is_known_under_every_suffix(name: str, suffix: str) -> None:
    """Nothing that a swap has written may be overlooked when its crash is sorted out."""
    found = plan(f"0.log {name}{suffix}", {0: 1})

    assert remaining(found) <= set(FILES)
