"""A plan is a value: complete, printable, and refused if it was tampered with."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from siltstone.cleaner.plan import CleaningPlan, Source
from siltstone.cleaner.survival import LastRecord
from siltstone.errors import ConfigError
from siltstone.ids import TopicPartition
from siltstone.log.transaction_index import AbortedTxn
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import START_MS, ManualClock

PLAN = CleaningPlan(
    pass_id="1700000000000c0ffee00",
    partition=TopicPartition("orders", 3),
    directory=Path("/var/lib/kafka/orders-3"),
    reason="dirty ratio",
    sources=(Source(0, 170, 1_700_000_000_123_456_789), Source(10, 2**40, 1)),
    groups=((0, 10), (2**40,)),
    log_start_offset=0,
    first_dirty_offset=4,
    end_offset=2**62,
    aborted=(AbortedTxn(7, 3, 4, 5),),
    last_records=(LastRecord(7, 3, 9), LastRecord(8, 0, None)),
    now_ms=START_MS,
    delete_retention_ms=86_400_000,
    segment_bytes=2**30,
    index_interval_bytes=4096,
    segment_index_bytes=10 << 20,
    hash_key=bytes(range(16)),
)


def test_a_plan_survives_json() -> None:
    assert CleaningPlan.from_json(PLAN.to_json()) == PLAN


def test_a_plan_survives_the_way_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN


def test_a_plan_in_json_can_be_read_by_people() -> None:
    fields = json.loads(PLAN.to_json())

    assert fields["version"] == 1
    assert fields["partition"] == {"topic": "orders", "partition": 3}
    assert fields["directory"] == "/var/lib/kafka/orders-3"
    assert fields["hash_key"] == "000102030405060708090a0b0c0d0e0f"
    assert fields["groups"] == [[0, 10], [2**40]]
    assert fields["last_records"][1] == {"producer_id": 8, "epoch": 0, "last_data_offset": None}
    assert fields["aborted"] == [
        {"producer_id": 7, "first_offset": 3, "last_offset": 4, "last_stable_offset": 5}
    ]


def test_the_size_of_a_pass_is_that_of_its_sources() -> None:
    assert PLAN.source_bytes() == 2**40 + 170


class TestMalformed:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "[1, 2]",
            "null",
            "3",
            '"a plan"',
            "{}",
            '{"version": 1}',
            '{"version": 1, "partition": {"topic": "orders", "partition": 3}}',
        ],
    )
    def test_what_is_no_plan_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"^plan is malformed"):
            CleaningPlan.from_json(text)

    def test_a_plan_of_another_version_is_refused(self) -> None:
        text = PLAN.to_json().replace('"version": 1', '"version": 2')

        with pytest.raises(ConfigError, match=r"^plan version must be 1, got 2$"):
            CleaningPlan.from_json(text)

    @pytest.mark.parametrize("name", sorted(json.loads(PLAN.to_json())))
    def test_a_plan_without_one_of_its_fields_is_refused(self, name: str) -> None:
        fields = json.loads(PLAN.to_json())
        del fields[name]

        with pytest.raises(ConfigError, match=f"^plan is malformed .*{name}"):
            CleaningPlan.from_json(json.dumps(fields))

    def test_a_plan_with_a_field_too_many_is_refused(self) -> None:
        fields = {**json.loads(PLAN.to_json()), "clock": 1}

        with pytest.raises(ConfigError, match=r"^plan is malformed .*clock"):
            CleaningPlan.from_json(json.dumps(fields))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("partition", "orders-3"),
            ("partition", {"topic": "orders"}),
            ("directory", 3),
            ("sources", 3),
            ("sources", [3]),
            ("sources", [{"base_offset": 0}]),
            ("sources", [{"base_offset": 0, "size_bytes": "70", "modified_ns": 0}]),
            ("groups", [3]),
            ("groups", ["ab"]),
            ("aborted", [[7, 3, 4, 5]]),
            ("aborted", [{**AbortedTxn(7, 3, 4, 5)._asdict(), "first_offset": None}]),
            ("last_records", [{}]),
            ("hash_key", "xy"),
            ("hash_key", 3),
            ("pass_id", 3),
            ("now_ms", "soon"),
            ("now_ms", 1.5),
            ("end_offset", None),
        ],
    )
    def test_a_field_of_another_shape_is_refused(self, name: str, value: Any) -> None:
        fields = {**json.loads(PLAN.to_json()), name: value}

        with pytest.raises(ConfigError, match=r"^plan is malformed"):
            CleaningPlan.from_json(json.dumps(fields))


class TestPlanning:
    def test_a_plan_holds_all_that_a_run_depends_on(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | a=2", segment_bytes=1000, delete_retention_ms=5)
        log.produce("b=1", producer=4, transactional=True)
        log.abort(producer=4)
        log.append("|")

        plan = cleaner.plan(log)

        assert plan.partition == log.real.partition
        assert plan.directory == log.directory
        assert [(s.base_offset, s.size_bytes) for s in plan.sources] == [
            (0, 70),
            (1, log.segment(1).size_bytes),
        ]
        assert plan.sources[0].modified_ns == log.path("0.log").stat().st_mtime_ns
        assert plan.groups == ((0, 1),)
        assert (plan.log_start_offset, plan.first_dirty_offset, plan.end_offset) == (0, 0, 4)
        assert plan.aborted == (AbortedTxn(4, 2, 3, 4),)
        assert plan.last_records == (LastRecord(4, 0, 2),)
        assert (plan.now_ms, plan.delete_retention_ms, plan.segment_bytes) == (
            clock.now_ms(),
            5,
            1000,
        )
        assert CleaningPlan.from_json(plan.to_json()) == plan

    def test_two_plans_differ_in_nothing_but_their_id_and_their_hash_key(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2 |")

        first, second = cleaner.plan(log), cleaner.plan(log)

        assert first.pass_id != second.pass_id
        assert first.hash_key != second.hash_key
        assert len(first.hash_key) == 16
        assert replace(first, pass_id=second.pass_id, hash_key=second.hash_key) == second

    def test_ids_sort_by_the_time_of_their_pass(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | a=2 |")
        ids = []
        for _ in range(3):
            ids.append(cleaner.plan(log).pass_id)
            clock.advance_ms(1)

        assert ids == sorted(ids)

    def test_a_plan_reads_nothing_above_its_end(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.is_replicated = False
        log.append("a=1 | a=2 | a=3 |")
        log.real.update_high_watermark(2)

        plan = cleaner.plan(log)

        assert [source.base_offset for source in plan.sources] == [0, 1]
        assert plan.end_offset == 2

    # I11
    def test_a_saved_plan_gives_the_same_bytes(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1 b~ | a=2 |")
        plan = cleaner.plan(log)
        text = plan.to_json()
        first = cleaner.run(plan)

        clock.advance_ms(10_000)
        second = cleaner.run(CleaningPlan.from_json(text))

        assert second.groups == first.groups
        assert second.counts == first.counts
        assert second.source_crcs == first.source_crcs
