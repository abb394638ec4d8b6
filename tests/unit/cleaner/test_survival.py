"""The rules, one by one: pure functions of a header and a few numbers."""

from typing import Any

import pytest

from siltstone.cleaner.survival import (
    BatchFate,
    BatchRule,
    LastRecord,
    batch_fate,
    batch_rule,
    horizon_of,
    is_last_of_producer,
    survives,
)
from siltstone.records.batch import BatchHeader
from siltstone.records.layout import DELETE_HORIZON_BIT
from tests.support.producers import data, end

NOW_MS = 1_000_000
END_OFFSET = 1_000

NO_RULE = BatchRule(discards_records=False, keeps_header=False, starts_waiting=False)


def waiting_until(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    """Set the delete horizon of a batch."""
    return header._replace(
        attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp_ms=horizon_ms
    )


def rule(
    header: BatchHeader,
    *,
    is_discardable: bool = False,
    last_record: LastRecord | None = None,
    end_offset: int = END_OFFSET,
) -> BatchRule:
    return batch_rule(
        header,
        is_discardable=is_discardable,
        last_record=last_record,
        end_offset=end_offset,
        now_ms=NOW_MS,
    )


class TestSurvives:
    @pytest.mark.parametrize(
        ("offset", "latest_offset", "survived"),
        [(5, 5, True), (5, 6, False), (5, 4, True), (5, None, True), (0, 0, True)],
    )
    def test_a_value_survives_unless_a_newer_record_has_its_key(
        self, offset: int, latest_offset: int | None, survived: bool
    ) -> None:
        assert survives(offset, latest_offset, False, None, NOW_MS) == survived

    @pytest.mark.parametrize(
        ("horizon_ms", "survived"),
        [(None, True), (NOW_MS + 1, True), (NOW_MS, False), (NOW_MS - 1, False), (0, False)],
    )
    def test_a_tombstone_survives_until_its_horizon_is_reached(
        self, horizon_ms: int | None, survived: bool
    ) -> None:
        assert survives(5, 5, True, horizon_ms, NOW_MS) == survived

    def test_a_horizon_does_nothing_to_a_value(self) -> None:
        assert survives(5, 5, False, 0, NOW_MS)

    def test_a_tombstone_that_is_superseded_does_not_wait(self) -> None:
        assert not survives(5, 6, True, None, NOW_MS)
        assert not survives(5, 6, True, NOW_MS + 1, NOW_MS)


class TestLastOfProducer:
    @pytest.mark.parametrize(
        ("header", "last_record", "is_last"),
        [
            (data(5), LastRecord(1, 0, 5), True),
            (data(5), LastRecord(1, 0, 6), False),
            (data(3, count=3), LastRecord(1, 0, 5), True),  # by its last offset
            (data(5, count=3), LastRecord(1, 0, 5), False),
            (data(5, epoch=9), LastRecord(1, 0, 5), True),  # the offset alone decides
            (data(5), None, False),  # expired
            (data(5, producer=-1, sequence=-1), LastRecord(-1, 0, 5), False),
            (end(5), LastRecord(1, 0, 5), True),
            (end(5), LastRecord(1, 0, 4), False),
            (end(5), LastRecord(1, 0, None), True),  # nothing but the epoch is known
            (end(5, epoch=1), LastRecord(1, 0, None), False),
            (data(5), LastRecord(1, 0, None), False),
        ],
    )
    def test_the_state_of_a_producer_hangs_on_its_last_batch(
        self, header: BatchHeader, last_record: LastRecord | None, is_last: bool
    ) -> None:
        assert is_last_of_producer(header, last_record) == is_last


class TestBatchRule:
    def test_a_batch_that_nobody_objects_to_is_left_to_its_records(self) -> None:
        assert rule(data(0)) == NO_RULE

    def test_an_aborted_batch_loses_all_records_at_once(self) -> None:
        assert rule(data(0, transactional=True), is_discardable=True) == BatchRule(
            discards_records=True, keeps_header=False, starts_waiting=False
        )

    def test_a_horizon_does_not_hold_up_aborted_data(self) -> None:
        waiting = waiting_until(data(0, transactional=True), NOW_MS + 1)

        assert rule(waiting, is_discardable=True).discards_records

    @pytest.mark.parametrize(
        ("horizon_ms", "goes"), [(None, False), (NOW_MS + 1, False), (NOW_MS, True), (0, True)]
    )
    def test_a_spent_marker_goes_at_its_horizon(self, horizon_ms: int | None, goes: bool) -> None:
        marker = end(0) if horizon_ms is None else waiting_until(end(0), horizon_ms)

        found = rule(marker, is_discardable=True)

        assert found.discards_records == goes
        assert found.starts_waiting

    def test_a_marker_that_is_needed_stays_whatever_its_horizon(self) -> None:
        assert rule(waiting_until(end(0), 0), is_discardable=False) == NO_RULE

    @pytest.mark.parametrize(("end_offset", "keeps"), [(8, True), (7, False), (9, False)])
    def test_the_batch_at_the_end_of_the_pass_keeps_its_header(
        self, end_offset: int, keeps: bool
    ) -> None:
        assert rule(data(5, count=3), end_offset=end_offset).keeps_header == keeps

    def test_the_last_batch_of_a_producer_keeps_its_header(self) -> None:
        last = LastRecord(1, 0, 5)

        assert rule(data(5), last_record=last).keeps_header
        assert rule(data(5), last_record=last, is_discardable=True).keeps_header
        assert not rule(data(4), last_record=last).keeps_header


class TestFate:
    KEEPS = BatchRule(discards_records=False, keeps_header=True, starts_waiting=False)
    SPENT = BatchRule(discards_records=False, keeps_header=False, starts_waiting=True)

    @pytest.mark.parametrize(
        ("survivors", "fate"),
        [(3, BatchFate.COPIED), (2, BatchFate.REBUILT), (1, BatchFate.REBUILT)],
    )
    def test_a_batch_is_copied_if_every_record_survives(
        self, survivors: int, fate: BatchFate
    ) -> None:
        assert batch_fate(data(0, count=3), NO_RULE, survivors, has_tombstone=False) is fate

    def test_a_batch_without_survivors_goes_unless_its_header_is_needed(self) -> None:
        header = data(0, count=3)

        assert batch_fate(header, NO_RULE, 0, has_tombstone=False) is BatchFate.DISCARDED
        assert batch_fate(header, self.KEEPS, 0, has_tombstone=False) is BatchFate.EMPTIED

    def test_a_batch_that_was_empty_before_is_not_copied(self) -> None:
        header = data(0, count=3, empty=True)

        assert batch_fate(header, NO_RULE, 0, has_tombstone=False) is BatchFate.DISCARDED
        assert batch_fate(header, self.KEEPS, 0, has_tombstone=False) is BatchFate.EMPTIED

    def test_a_batch_with_a_tombstone_is_rebuilt_once_for_its_horizon(self) -> None:
        header = data(0, count=3)

        assert batch_fate(header, NO_RULE, 3, has_tombstone=True) is BatchFate.REBUILT
        waiting = waiting_until(header, NOW_MS + 1)
        assert batch_fate(waiting, NO_RULE, 3, has_tombstone=True) is BatchFate.COPIED

    def test_a_spent_marker_is_rebuilt_once_for_its_horizon(self) -> None:
        assert batch_fate(end(0), self.SPENT, 1, has_tombstone=False) is BatchFate.REBUILT
        waiting = waiting_until(end(0), NOW_MS + 1)
        assert batch_fate(waiting, self.SPENT, 1, has_tombstone=False) is BatchFate.COPIED


class TestHorizon:
    def horizon(self, header: BatchHeader, found: BatchRule = NO_RULE, **fields: Any) -> int | None:
        return horizon_of(
            header,
            found,
            **{"has_tombstone": False, "now_ms": NOW_MS, "retention_ms": 500, **fields},
        )

    def test_values_have_none(self) -> None:
        assert self.horizon(data(0)) is None

    def test_a_tombstone_waits_for_the_retention_from_now_on(self) -> None:
        assert self.horizon(data(0), has_tombstone=True) == NOW_MS + 500

    def test_a_spent_marker_waits_for_the_retention_from_now_on(self) -> None:
        assert self.horizon(end(0), TestFate.SPENT) == NOW_MS + 500

    def test_without_retention_it_is_now(self) -> None:
        assert self.horizon(data(0), has_tombstone=True, retention_ms=0) == NOW_MS

    @pytest.mark.parametrize("has_tombstone", [True, False])
    @pytest.mark.parametrize("horizon_ms", [0, NOW_MS - 1, NOW_MS + 10**9])
    def test_it_never_moves(self, horizon_ms: int, has_tombstone: bool) -> None:
        header = waiting_until(data(0), horizon_ms)

        assert self.horizon(header, has_tombstone=has_tombstone) == horizon_ms
