"""The record of a pass: enough for somebody else to check it."""

import json
from pathlib import Path

import pytest

from siltstone import __version__
from siltstone.cleaner.manifest import read_manifests
from siltstone.cleaner.plan import CleaningPlan
from siltstone.errors import CorruptCheckpointError
from siltstone.log import filenames
from siltstone.records.crc32c import crc32c
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import HastyDisk


def test_a_manifest_says_what_was_planned_read_written_and_removed(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a=1 b~ | a=2 |")
    sources = {base: log.path(f"{base}.log").read_bytes() for base in (0, 2)}
    plan = cleaner.plan(log)
    result = cleaner.run(plan)
    clock.advance_ms(5)

    committed = cleaner.commit(log, plan, result)

    (manifest,) = read_manifests(log.fs, log.directory)
    fields = manifest.fields
    assert manifest.name == committed.manifest == f"silt-manifest-0000000001-{plan.pass_id}.json"
    assert (fields["version"], fields["siltstone"]) == (1, __version__)
    assert fields["committed_ms"] == START_MS + 5
    assert CleaningPlan.from_json(json.dumps(fields["plan"])) == plan
    assert fields["inputs"] == [
        {"base_offset": base, "size_bytes": len(data), "crc32c": crc32c(data)}
        for base, data in sources.items()
    ]
    (group,) = fields["groups"]
    assert (group["base_offsets"], group["is_unchanged"]) == ([0, 2], False)
    (output,) = group["outputs"]
    assert output["base_offset"] == 0
    for file in output["files"]:
        data = log.path(f"0{file['extension']}").read_bytes()
        assert (file["size_bytes"], file["crc32c"]) == (len(data), crc32c(data))
    assert fields["counts"]["superseded"] == 1
    assert fields["counts"]["earliest_horizon_ms"] == START_MS + 86_400_000
    assert fields["seconds"] >= 0


# I7
def test_every_record_that_was_read_is_counted_once(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("=1 =2 a=1 [a=2 b=1 c~] d~", cleanup_policy="delete", delete_retention_ms=0)
    log.configure(cleanup_policy="compact")
    log.produce("[a=bad b=bad]", producer=1, transactional=True)
    log.abort(producer=1)
    log.produce("b=2", producer=2, transactional=True)
    log.commit(producer=2)
    log.append("|")

    first = cleaner.counts(log)
    assert first.records_read == 12
    assert (first.keyless_removed, first.aborted_removed, first.superseded) == (2, 2, 2)
    assert (first.records_kept, first.tombstones_kept, first.markers_kept) == (4, 2, 2)
    assert (first.tombstones_removed, first.markers_removed, first.batches_emptied) == (0, 0, 1)

    second = cleaner.counts(log)
    assert second.records_read == 6
    assert (second.records_kept, second.tombstones_removed) == (2, 2)
    assert (second.markers_kept, second.markers_removed) == (2, 0)
    assert second.earliest_horizon_ms is None


def test_a_segment_that_was_left_alone_is_among_the_inputs(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a=1 b=1 | c=1 c=2 |", segment_bytes=140)

    cleaner.clean(log)

    (manifest,) = read_manifests(log.fs, log.directory)
    assert [entry["base_offset"] for entry in manifest.fields["inputs"]] == [0, 2]
    assert [
        (group["is_unchanged"], len(group["outputs"])) for group in manifest.fields["groups"]
    ] == [(True, 0), (False, 1)]
    assert manifest.fields["counts"]["bytes_written"] == 70


@pytest.mark.parametrize("time_step_ms", [1, 0, -1])
def test_manifests_are_kept_and_read_in_the_order_of_commits(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock, time_step_ms: int
) -> None:
    log = make_log("a=1 |")
    names = []
    for number in range(4):
        log.append(f"a={number} |")
        names.append(cleaner.clean(log).manifest)
        clock.advance_ms(time_step_ms)

    log.recover()
    clock.advance_ms(10**9)
    log.real.delete_due_files()

    assert [manifest.name for manifest in read_manifests(log.fs, log.directory)] == names


def test_no_manifest_is_taken_for_a_file_of_kafka(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a=1 | a=2 |")

    name = cleaner.clean(log).manifest

    assert name.startswith("silt-")
    assert filenames.parse_segment_file(name) is None
    assert filenames.find_offset_prefix(name) is None
    assert not name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    assert not name.endswith((".cleaned", ".swap", ".deleted", ".checkpoint"))


def test_a_pass_that_failed_leaves_no_manifest(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a=1 | a=2 |")
    cleaner.run(cleaner.plan(log))

    assert read_manifests(log.fs, log.directory) == []


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe{}"])
def test_a_manifest_that_makes_no_sense_says_which_file_it_is(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / filenames.manifest_name(1, "abc")
    path.write_bytes(data)

    with pytest.raises(CorruptCheckpointError, match=r"silt-manifest-0000000001-abc\.json: "):
        read_manifests(HastyDisk(), tmp_path)
