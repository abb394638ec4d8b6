"""Facts 8.A35 to 8.A38: which segments are cleaned into one."""

from dataclasses import replace

import pytest

from siltstone.cleaner.grouping import SegmentSize, group_segments
from siltstone.records.layout import MAX_RELATIVE_OFFSET
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.make_log import MadeLog


def sizes(*segments: tuple[int, int], end_offset: int) -> list[SegmentSize]:
    """Describe segments by base offset and size; each has an entry of 8 bytes in both indexes."""
    ends = [*(base for base, _ in segments[1:]), end_offset]
    return [
        SegmentSize(base, end, size, 8, 8) for (base, size), end in zip(segments, ends, strict=True)
    ]


class TestGrouping:
    HUGE = 2**40

    def group(self, segments: list[SegmentSize], **limits: int) -> tuple[tuple[int, ...], ...]:
        return group_segments(
            segments, **{"max_log_bytes": self.HUGE, "max_index_bytes": self.HUGE, **limits}
        )

    # A35 testSegmentGrouping
    @pytest.mark.parametrize(
        ("limits", "groups"),
        [
            ({}, ((0, 10, 20, 30, 40, 50, 60),)),
            ({"max_log_bytes": 1}, ((0,), (10,), (20,), (30,), (40,), (50,), (60,))),
            ({"max_index_bytes": 1}, ((0,), (10,), (20,), (30,), (40,), (50,), (60,))),
            ({"max_log_bytes": 300}, ((0, 10, 20), (30, 40, 50), (60,))),
            ({"max_log_bytes": 299}, ((0, 10), (20, 30), (40, 50), (60,))),
            ({"max_index_bytes": 24}, ((0, 10, 20), (30, 40, 50), (60,))),
            ({"max_index_bytes": 23}, ((0, 10), (20, 30), (40, 50), (60,))),
        ],
    )
    def test_segments_are_merged_as_long_as_each_limit_allows(
        self, limits: dict[str, int], groups: tuple[tuple[int, ...], ...]
    ) -> None:
        segments = sizes(*((base, 100) for base in range(0, 70, 10)), end_offset=70)

        assert self.group(segments, **limits) == groups

    @pytest.mark.parametrize("field", ["offset_index_bytes", "time_index_bytes"])
    def test_each_index_has_its_own_limit(self, field: str) -> None:
        segments = sizes((0, 100), (10, 100), end_offset=20)
        large: dict[str, int] = {field: 93}

        grouped = self.group([replace(segments[0], **large), segments[1]], max_index_bytes=100)

        assert grouped == ((0,), (10,))

    def test_a_segment_that_is_too_large_by_itself_is_a_group_of_its_own(self) -> None:
        segments = sizes((0, 10), (10, 999), (20, 10), (30, 10), end_offset=40)

        assert self.group(segments, max_log_bytes=100) == ((0,), (10,), (20, 30))

    def test_nothing_makes_no_group(self) -> None:
        assert self.group([]) == ()

    # A36 testSegmentGroupingWithSparseOffsetsAndEmptySegments
    def test_segments_that_span_all_offsets_are_groups_of_their_own_until_they_are_empty(
        self,
    ) -> None:
        far = 2**31
        full = sizes((0, 100), (far, 100), (2 * far, 100), end_offset=3 * far)
        emptied = sizes((0, 0), (far, 0), (2 * far, 100), end_offset=3 * far)

        assert self.group(full) == ((0,), (far,), (2 * far,))
        assert self.group(emptied) == ((0, far), (2 * far,))

    # A37 testSegmentGroupingWithSparseOffsets
    def test_a_group_reaches_as_far_as_an_index_can_express(self) -> None:
        last = MAX_RELATIVE_OFFSET
        reaching = sizes((0, 100), (1, 100), end_offset=last + 1)
        beyond = sizes((0, 100), (1, 100), end_offset=last + 2)
        after = sizes((0, 100), (1, 100), (last + 2, 100), end_offset=last + 3)

        assert self.group(reaching) == ((0, 1),)
        assert self.group(beyond) == ((0,), (1,))
        assert self.group(after) == ((0,), (1,), (last + 2,))

    def test_segments_after_the_split_are_measured_from_their_own_group(self) -> None:
        last = MAX_RELATIVE_OFFSET
        segments = sizes((0, 100), (1, 100), (last, 100), (last + 1, 100), end_offset=last + 2)

        assert self.group(segments) == ((0, 1, last), (last + 1,))
        later = sizes((0, 100), (5, 100), (last + 3, 100), end_offset=last + 4)
        assert self.group(later) == ((0,), (5, last + 3))

    # A38 testSegmentGroupingFollowingLoadOfZeroIndex
    def test_how_far_a_segment_reaches_is_not_taken_from_its_index(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log: MadeLog = make_log("a=1 |")
        log.follow(log.build_at(1, "b=1"))
        log.follow(log.build_at(2**31, "c=1"))
        log.append("|")
        log.stop()
        for name in ("0.index", "1.index", "0.timeindex", "1.timeindex"):
            log.path(name).write_bytes(b"")
        log.start()

        assert cleaner.plan(log).groups == ((0,), (1,))
