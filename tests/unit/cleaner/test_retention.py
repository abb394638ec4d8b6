"""Retention as a plan: what goes, why, and that nothing but the plan decides when it is run."""

import json
from dataclasses import replace
from typing import Any

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.manifest import read_manifests
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.retention import RetentionPlan, plan_retention
from siltstone.cleaner.retention_commit import CommittedRetention, commit_retention
from siltstone.cleaner.verify import VerifyRequest, verify_partition
from siltstone.cleaner.verify.findings import Finding, Severity
from siltstone.errors import (
    CleaningAbortedError,
    CleaningError,
    ConfigError,
    CorruptCheckpointError,
)
from siltstone.log import filenames
from siltstone.records.crc32c import crc32c
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog

BATCH_BYTES = 71  # of one record, with a key of two letters


def plan(log: MadeLog, clock: ManualClock) -> RetentionPlan:
    found = plan_retention(log.real, clock.now_ms())
    assert found is not None
    return found


def commit(log: MadeLog, clock: ManualClock, retention: RetentionPlan) -> CommittedRetention:
    return commit_retention(log.fs, clock, log.real, retention)


def stop(log: MadeLog, clock: ManualClock) -> VerifyRequest:
    """Stop a log, and say what is to be verified."""
    request = VerifyRequest(
        partition=log.real.partition,
        log_dir=log.directory.parent,
        config=log.real.config,
        now_ms=clock.now_ms(),
        deep=True,
    )
    log.stop()
    return request


def find(request: VerifyRequest) -> list[Finding]:
    return list(verify_partition(request).findings)


def aged_log(make_log: MakeCompactedLog, clock: ManualClock, **settings: Any) -> MadeLog:
    """Make a log with a segment from each of three hours."""
    log = make_log(**{"cleanup_policy": "delete", **settings})
    for number in range(3):
        log.append(f"k{number}=v |")
        clock.advance_ms(3_600_000)
    return log


def test_segments_over_age_go_and_the_plan_says_how_old_they_are(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)

    retention = plan(log, clock)
    committed = commit(log, clock, retention)

    assert [(r.source.base_offset, r.end_offset, r.rule) for r in retention.removals] == [
        (0, 1, "retention.ms")
    ]
    assert retention.removals[0].explanation == (
        "its newest record is 10800000 ms old, retention.ms is 7200000"
    )
    assert log.base_offsets() == [1, 2, 3]
    assert (log.real.log_start_offset, retention.new_log_start_offset) == (1, 1)
    assert (committed.bytes_before, committed.bytes_after) == (3 * BATCH_BYTES, 2 * BATCH_BYTES)


def test_segments_over_size_go_and_the_plan_says_how_much_is_left(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=-1, retention_bytes=2 * BATCH_BYTES)

    retention = plan(log, clock)
    commit(log, clock, retention)

    assert [(r.rule, r.explanation) for r in retention.removals] == [
        ("retention.bytes", "142 bytes are left without it, retention.bytes is 142")
    ]
    assert log.contents() == "1:k1=v | 2:k2=v |"


def test_segments_below_the_log_start_go_whatever_the_policy(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=-1)
    log.real.delete_records(2)
    log.configure(cleanup_policy="compact")

    retention = plan(log, clock)
    commit(log, clock, retention)

    assert [r.explanation for r in retention.removals] == [
        "ends at offset 1, the log starts at 2",
        "ends at offset 2, the log starts at 2",
    ]
    assert log.contents() == "2:k2=v |"


def test_nothing_goes_from_a_log_whose_policy_does_not_delete(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, cleanup_policy="compact", retention_ms=1)

    assert plan_retention(log.real, clock.now_ms()) is None


def test_a_log_that_is_expired_as_a_whole_goes_on_empty(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=1)
    log.append("last=1")
    clock.advance_ms(2)

    commit(log, clock, plan(log, clock))

    assert (log.contents(), log.base_offsets(), log.real.log_start_offset) == ("", [4], 4)
    log.append("next=1")
    assert log.contents() == "4:next=1"


def test_a_run_never_looks_at_the_clock(make_log: MakeCompactedLog, clock: ManualClock) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    retention = plan(log, clock)
    clock.advance_ms(10**9)

    commit(log, clock, retention)

    assert log.base_offsets() == [1, 2, 3]
    assert plan(log, clock).removals[-1].end_offset == 3


def test_a_plan_can_be_saved(make_log: MakeCompactedLog, clock: ManualClock) -> None:
    retention = plan(aged_log(make_log, clock, retention_ms=1), clock)

    assert RetentionPlan.from_json(retention.to_json()) == retention
    other = retention.to_json().replace('"now_ms"', '"then_ms"')
    for text in ("{}", "[]", '{"version": 1, "kind": "retention"}', other):
        with pytest.raises(ConfigError):
            RetentionPlan.from_json(text)


def test_a_log_that_changed_is_left_alone(make_log: MakeCompactedLog, clock: ManualClock) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    retention = plan(log, clock)

    source = replace(retention.removals[0].source, inode=1)
    other = replace(retention, removals=(replace(retention.removals[0], source=source),))
    with pytest.raises(CleaningAbortedError, match="the log changed: plan again"):
        commit(log, clock, other)
    log.configure(cleanup_policy="compact")
    with pytest.raises(CleaningAbortedError):
        commit(log, clock, retention)

    assert log.base_offsets() == [0, 1, 2, 3]
    assert read_manifests(log.fs, log.directory) == []


def test_a_plan_is_carried_out_once(make_log: MakeCompactedLog, clock: ManualClock) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    retention = plan(log, clock)
    commit(log, clock, retention)

    with pytest.raises(CleaningAbortedError):
        commit(log, clock, retention)


def test_what_went_is_in_the_manifest(make_log: MakeCompactedLog, clock: ManualClock) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    retention = plan(log, clock)
    removed = log.real.segments.first.path.read_bytes()

    name = commit(log, clock, retention).manifest

    (manifest,) = read_manifests(log.fs, log.directory)
    assert (manifest.name, manifest.fields["kind"]) == (name, "retention")
    assert manifest.fields["counts"] == {"segments_removed": 1, "bytes_removed": BATCH_BYTES}
    assert manifest.fields["inputs"] == [
        {"base_offset": 0, "size_bytes": BATCH_BYTES, "crc32c": crc32c(removed)}
    ]
    assert manifest.fields["plan"]["removals"][0]["rule"] == "retention.ms"


def test_a_pass_that_is_planned_with_retention_is_over_what_is_left(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("old=1 |", cleanup_policy="compact,delete", retention_ms=3_600_000)
    cleaner.clean(log)
    clock.advance_ms(3_600_001)
    log.append("a=1 | a=2 |")
    retention = plan(log, clock)
    assessment, _ = assess_log(
        log.real, cleaner.checkpoint(log), clock.now_ms(), retention=retention
    )

    cleaning = plan_pass(log.real, assessment, clock.now_ms(), retention)
    commit(log, clock, retention)
    cleaner.commit(log, cleaning, cleaner.run(cleaning))

    assert [source.base_offset for source in cleaning.sources] == [1, 2]
    assert (assessment.clean_bytes, assessment.dirty_bytes) == (0, 140)
    assert log.contents() == "2:a=2 |"
    assert find(stop(log, clock)) == []


def test_a_log_of_which_retention_takes_everything_is_not_cleaned(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 | a=2 | a=3", cleanup_policy="compact,delete", retention_ms=1)
    clock.advance_ms(2)
    retention = plan(log, clock)

    assessment, _ = assess_log(log.real, None, clock.now_ms(), retention=retention)

    assert (assessment.is_eligible, assessment.first_dirty_offset) == (False, 3)
    with pytest.raises(CleaningError, match="nothing to clean below offset 3"):
        plan_pass(log.real, assessment, clock.now_ms(), retention)


def test_the_checkpoint_follows_the_log_start(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 | b=1 | c=1", cleanup_policy="compact,delete", retention_ms=1)
    cleaner.set_checkpoint(log, 1)
    clock.advance_ms(2)

    commit(log, clock, plan(log, clock))

    assert CleanerCheckpoints(log.fs, log.directory.parent).find(log.real.partition) == 3


def test_a_checkpoint_that_makes_no_sense_is_found_before_anything_is_gone(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=1)
    (log.directory.parent / filenames.CLEANER_OFFSETS).write_text("1\n0\n")

    with pytest.raises(CorruptCheckpointError, match="each log is cleaned anew from its start"):
        commit(log, clock, plan(log, clock))

    assert log.base_offsets() == [0, 1, 2, 3]


def test_a_removed_segment_that_is_back_is_found(
    make_log: MakeCompactedLog, clock: ManualClock
) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    first = log.real.segments.first.path
    data = first.read_bytes()
    name = commit(log, clock, plan(log, clock)).manifest
    request = stop(log, clock)
    assert find(request) == []

    first.write_bytes(data)

    found = find(request)
    (back,) = [finding for finding in found if finding.invariant == "I5"]
    assert (back.invariant, back.severity, back.file) == ("I5", Severity.VIOLATION, first.name)
    assert back.message == f"is there, though {name} removed all below offset 1"
    assert {finding.invariant for finding in found} <= {"I4", "I5"}  # Nor has it an index.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"segments_removed": 1', '"segments_removed": 2', "2 segments were removed, not 1"),
        ('"bytes_removed": 71', '"bytes_removed": 7', "7 bytes were removed, its inputs have 71"),
        ('"size_bytes": 71,\n      "crc32c"', '"size_bytes": 70,\n      "crc32c"', "other inputs"),
        ('"inputs"', '"outputs"', "is no manifest of this log: KeyError: 'inputs'"),
        ('"version": 1', '"version": 9', "is no manifest of this log: unknown version 9"),
    ],
)
def test_a_manifest_that_does_not_add_up_is_found(
    make_log: MakeCompactedLog, clock: ManualClock, old: str, new: str, message: str
) -> None:
    log = aged_log(make_log, clock, retention_ms=7_200_000)
    name = commit(log, clock, plan(log, clock)).manifest
    assert name is not None
    path = log.directory / name
    text = path.read_text()
    assert old in text

    path.write_text(text.replace(old, new, 1))

    found = find(stop(log, clock))
    assert {(f.invariant, f.severity, f.file) for f in found} == {("I7", Severity.VIOLATION, name)}
    assert message in found[0].message


def test_a_removed_segment_that_is_not_what_a_pass_left_is_told(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 a=2 |", cleanup_policy="compact,delete", retention_ms=1)
    cleaner.clean(log)
    clock.advance_ms(2)
    name = commit(log, clock, plan(log, clock)).manifest
    assert name is not None
    request = stop(log, clock)
    assert find(request) == []
    path = log.directory / name
    (mark,) = json.loads(path.read_text())["inputs"]

    path.write_text(path.read_text().replace(str(mark["crc32c"]), str(mark["crc32c"] ^ 1)))

    (finding,) = find(request)
    assert (finding.invariant, finding.severity, finding.file) == ("I7", Severity.WARNING, name)
    assert "removed another segment 0 than any pass left" in finding.message
