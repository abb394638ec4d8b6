"""`silt plan`: every partition explained, with the number that decided."""

from pathlib import Path

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.survey import survey_logs
from siltstone.cli.plan_file import read_plans
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk
from tests.support.silt_command import Silt

ORDERS = TopicPartition("orders", 0)
FIELDS = {
    "topic",
    "partition",
    "eligible",
    "reason",
    "first_dirty_offset",
    "first_uncleanable_offset",
    "clean_bytes",
    "dirty_bytes",
    "dirty_ratio",
}


@pytest.fixture
def topic(silt: Silt) -> None:
    """A compacted topic with three segments, the first two of the same key."""
    silt("topics", "create", "orders", "--config", "cleanup.policy=compact")
    for line in (b"a:1\n", b"a:\n", b"b:1\n"):
        silt("produce", "orders", "-K", ":", "-Z", stdin=line)
        silt("topics", "alter", "orders", "--config", "segment.bytes=80")


def clean(log_dir: Path, now_ms: int) -> None:
    """Do what `silt compact` does, without Spark."""
    disk, clock = HastyDisk(), ManualClock(now_ms)
    with LogManager([log_dir], fs=disk, clock=clock) as manager:
        (plan,) = survey_logs(manager, [ORDERS], now_ms).plans()
        runner = PassRunner(disk, clock, LocalEngine(), CleanerCheckpoints(disk, log_dir))
        runner.run(manager.get_log(ORDERS), plan)


@pytest.mark.usefixtures("topic")
def test_a_verdict_has_its_numbers_and_the_plan(silt: Silt, tmp_path: Path) -> None:
    finished = silt("plan", "--output", "json")

    (verdict,) = finished.json
    assert finished.exit_code == 0
    assert verdict.keys() >= FIELDS
    assert (verdict["eligible"], verdict["reason"]) == (True, "dirty ratio")
    assert (verdict["first_dirty_offset"], verdict["first_uncleanable_offset"]) == (0, 2)
    assert (verdict["clean_bytes"], verdict["dirty_ratio"]) == (0, 1.0)
    plan_file = tmp_path / "plan.json"
    plan_file.write_bytes(finished.out)
    ((plan,), retention) = read_plans(plan_file)
    assert isinstance(plan, CleaningPlan)
    assert (plan.partition, plan.end_offset, retention) == (ORDERS, 2, [])


@pytest.mark.usefixtures("topic")
def test_the_picture_tells_segments_apart(silt: Silt, log_dir: Path) -> None:
    assert "dirty ratio: 1.00 is over 0.50" in silt("plan").text
    assert set(silt("plan").lines[1].split()[-1]) == {"+", "|", ">"}

    clean(log_dir, now_ms=10**12)

    assert set(silt("plan", "--now", str(10**12)).lines[1].split()[-1]) == {"#", "t", "|", ">"}


@pytest.mark.usefixtures("topic")
def test_segments_that_retention_takes_are_listed_and_left_out_of_the_pass(
    silt: Silt,
) -> None:
    settings = ("--config", "cleanup.policy=compact,delete", "--config", "retention.bytes=100")

    (verdict,) = silt("plan", *settings, "--output", "json").json
    text = silt("plan", *settings).text

    assert verdict["retention_plan"]["new_log_start_offset"] == 1
    assert verdict["segments_expired"] == 1
    assert [s["base_offset"] for s in verdict["plan"]["sources"]] == [1]
    assert "retention.bytes: 139 bytes are left without it, retention.bytes is 100" in text
    assert text.splitlines()[1].split()[-1].startswith("x")


@pytest.mark.usefixtures("topic")
def test_a_partition_that_cannot_be_read_is_explained_as_well(silt: Silt, log_dir: Path) -> None:
    path = log_dir / "orders-0" / f"{0:020d}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)

    finished = silt("plan", "--output", "json")

    (verdict,) = finished.json
    assert finished.exit_code == 1
    assert verdict.keys() >= FIELDS
    assert (verdict["eligible"], verdict["reason"]) == (False, "uncleanable")
    assert "is corrupt at position 0" in verdict["explanation"]
    assert "uncleanable: " in silt("plan").text


@pytest.mark.usefixtures("topic")
def test_a_checkpoint_that_makes_no_sense_is_shown_and_what_to_do_about_it(
    silt: Silt, log_dir: Path
) -> None:
    path = log_dir / filenames.CLEANER_OFFSETS
    path.write_text("0\n1\norders x 3\n")
    message = f"{path}: line 3 is malformed; without the file each log is cleaned anew"

    (verdict,) = silt("plan", "--output", "json").json
    verified = silt("verify", "--output", "json")

    assert (verdict["eligible"], verdict["reason"]) == (False, "uncleanable")
    assert verdict["explanation"].startswith(message)
    assert [(v["invariant"], v["file"]) for v in verified.json["violations"]] == [
        ("I22", path.name)
    ]
    refused = silt("compact", "--output", "json")
    assert (refused.exit_code, refused.json) == (1, [])
    assert message in refused.err

    path.unlink()

    assert [v["eligible"] for v in silt("plan", "--output", "json").json] == [True]
    assert silt("verify").exit_code == 0
