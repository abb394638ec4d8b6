"""Facts 8.F1 to F4 and F16, one for one: when a log begins a new segment."""

import random

import pytest

from siltstone.errors import (
    RecordTooLargeError,
    TruncatedDataError,
)
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class TestRollingByTime:  # 8.F1
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        return make_log(segment_ms=HOUR_MS)

    def test_an_empty_segment_is_not_rolled_however_old_it_is(
        self, log: MadeLog, clock: ManualClock
    ) -> None:
        clock.advance_ms(HOUR_MS + 1)
        log.append("a=1@-1")
        assert log.base_offsets() == [0]

        log.append("b=1@-1")  # the segment itself is too old, whatever is in it
        assert log.base_offsets() == [0, 1]

    def test_records_without_timestamps_roll_by_the_wall_clock(
        self, log: MadeLog, clock: ManualClock
    ) -> None:
        log.append("a=1@-1")
        clock.advance_ms(HOUR_MS)
        log.append("b=1@-1")
        assert log.base_offsets() == [0]  # as old as allowed is not too old

        clock.advance_ms(1)
        log.append("c=1@-1")
        clock.advance_ms(HOUR_MS + 1)
        log.append("d=1@-1")
        assert log.base_offsets() == [0, 2, 3]

    def test_a_timestamp_does_not_roll_a_segment_that_began_without_one(
        self, log: MadeLog, clock: ManualClock
    ) -> None:
        log.append("a=1@-1")

        later_ms = clock.now_ms() + HOUR_MS
        log.append(f"b=1@{later_ms}")
        assert log.base_offsets() == [0]

        clock.advance_ms(HOUR_MS + 1)
        log.append(f"c=1@{later_ms}")
        assert log.base_offsets() == [0, 2]

    def test_a_segment_that_began_with_a_timestamp_ignores_the_wall_clock(
        self, log: MadeLog, clock: ManualClock
    ) -> None:
        first_ms = clock.now_ms()
        log.append("a=1")

        clock.advance_ms(DAY_MS)
        log.append(f"b=1@{first_ms + HOUR_MS}")
        assert log.base_offsets() == [0]

        log.append(f"c=1@{first_ms + HOUR_MS + 1}")
        assert log.base_offsets() == [0, 2]

    def test_the_first_batch_alone_tells_when_a_segment_began(
        self, log: MadeLog, clock: ManualClock
    ) -> None:
        first_ms = clock.now_ms()
        log.append(f"a=1@{first_ms}")
        log.append(f"b=1@{first_ms - DAY_MS} c=1@{first_ms + HOUR_MS}")
        assert log.base_offsets() == [0]

        log.restart()  # what was in memory is gone
        log.append(f"d=1@{first_ms + HOUR_MS}")
        assert log.base_offsets() == [0]
        clock.advance_ms(1)
        log.append(f"e=1@{first_ms + HOUR_MS + 1}")
        assert log.base_offsets() == [0, 4]

    def test_an_empty_append_never_rolls(self, log: MadeLog, clock: ManualClock) -> None:
        log.append("a=1@-1")
        clock.advance_ms(HOUR_MS + 1)

        with pytest.raises(TruncatedDataError):
            log.append_batch(b"")
        assert log.follow() is None

        assert log.base_offsets() == [0]


class TestRollingOntoTheSameBase:  # 8.F2
    def test_an_empty_active_segment_is_recreated(self, make_log: MakeLog) -> None:
        log = make_log()

        log.real.roll()
        assert log.base_offsets() == [0]

        log.append("a=1 b=1")
        assert log.contents() == "0:a=1 1:b=1"

    def test_an_index_without_room_for_an_entry_rolls_at_every_append(
        self, make_log: MakeLog
    ) -> None:
        log = make_log(segment_index_bytes=4)

        log.append("a=1 b=1 c=1")

        assert log.contents() == "0:a=1 | 1:b=1 | 2:c=1"

    def test_a_full_index_rolls(self, make_log: MakeLog) -> None:
        # Room for two offsets (8 bytes each), and for one time (12 bytes) beside the final one.
        log = make_log(segment_index_bytes=24, index_interval_bytes=0)

        log.append("a=1@1 b=1@2 c=1@3 d=1@4")

        # b is the first to be indexed: nothing lies before a.
        assert log.contents() == "0:a=1 1:b=1 | 2:c=1 3:d=1"


class TestJitter:  # 8.F3
    def test_a_roll_comes_earlier_by_the_time_that_was_drawn(
        self, make_log: MakeLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(random, "randrange", lambda limit: limit - 500)
        log = make_log(segment_ms=HOUR_MS, segment_jitter_ms=1_200)
        first_ms = clock.now_ms()
        log.append("a=1")

        log.append(f"b=1@{first_ms + HOUR_MS - 1_200}")
        log.append(f"c=1@{first_ms + HOUR_MS - 700}")
        assert log.base_offsets() == [0]

        log.append(f"d=1@{first_ms + HOUR_MS - 699}")
        assert log.base_offsets() == [0, 3]

    def test_it_is_less_than_the_age_itself(
        self, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[int] = []

        def draw(limit: int) -> int:
            limits.append(limit)
            return 0

        monkeypatch.setattr(random, "randrange", draw)
        make_log("a=1 | b=1", segment_ms=1_000, segment_jitter_ms=5_000)

        assert limits == [1_000, 1_000]  # one draw for each segment


class TestRollingBySize:  # 8.F4
    def test_a_batch_that_does_not_fit_rolls(self, make_log: MakeLog) -> None:
        log = make_log(segment_bytes=2 * BATCH_BYTES)

        log.append("a=1 b=1 c=1")

        assert log.contents() == "0:a=1 1:b=1 | 2:c=1"  # exactly full is not over

    def test_a_batch_over_segment_bytes_is_refused(self, make_log: MakeLog) -> None:
        log = make_log("a=1", segment_bytes=BATCH_BYTES)

        with pytest.raises(RecordTooLargeError) as error:
            log.append("b=12")

        assert str(error.value) == (
            f"orders-3: a batch of {BATCH_BYTES + 1} bytes is over segment.bytes ({BATCH_BYTES})"
        )
        assert log.contents() == "0:a=1"

    def test_a_batch_over_max_message_bytes_is_refused_by_the_leader_only(
        self, make_log: MakeLog
    ) -> None:
        log = make_log(max_message_bytes=BATCH_BYTES - 1)

        with pytest.raises(RecordTooLargeError) as error:
            log.append("a=1")
        log.follow(log.build_at(0, "a=1"))

        assert str(error.value) == (
            f"orders-3: a batch of {BATCH_BYTES} bytes is over max.message.bytes "
            f"({BATCH_BYTES - 1})"
        )
        assert log.contents() == "0:a=1"


class TestFirstTimestamp:  # 8.F16
    def test_it_is_unknown_for_an_empty_segment(self, make_log: MakeLog) -> None:
        assert make_log().segment().first_timestamp_ms == -1

    def test_it_is_the_newest_of_the_first_batch(self, make_log: MakeLog) -> None:
        log = make_log("[a=1@30 b=1@70 c=1@50] d=1@90")

        assert log.segment().first_timestamp_ms == 70
        log.restart()
        assert log.segment().first_timestamp_ms == 70
