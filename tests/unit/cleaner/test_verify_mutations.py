"""Damage of every kind, seeded into a sound log: each must be found, and by its number.

Each is looked for twice. *Alone*: nothing but the log itself, whose manifests are gone. *Against*:
a copy from before the pass, and a manifest that was forged to say that the files are as they are
now, so that what is found is found by what is in them.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from siltstone.cleaner.verify import Severity
from siltstone.log import filenames
from tests.support import (  # noqa: F401 - each enters its mutations
    damage_to_files,
    damage_to_records,
    damage_to_transactions,
)
from tests.support.cleaned_logs import CleanedLog, make_cleaned_log
from tests.support.damage import MUTATIONS, Mutation
from tests.support.damage_checks import broken, describe, verify


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory: pytest.TempPathFactory) -> CleanedLog:
    return make_cleaned_log(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def log(sound_log: CleanedLog, tmp_path: Path) -> CleanedLog:
    return sound_log.copy_to(tmp_path)


# What nobody may find


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("against", [False, True])
def test_nothing_is_found_in_the_sound_log(log: CleanedLog, deep: bool, against: bool) -> None:
    assert verify(log, deep=deep, against=against).findings == ()

    log.after.forget_manifests()
    report = verify(log, deep=deep)
    assert report.findings == (), describe(report)


def test_nothing_is_found_in_a_sound_log_whose_indexes_were_rebuilt(log: CleanedLog) -> None:
    for base_offset in log.after.base_offsets():
        log.after.write(base_offset, log.after.batches(base_offset))

    assert verify(log, against=True).findings == ()


def test_without_manifests_a_sound_pass_is_found_sound(log: CleanedLog) -> None:
    log.after.forget_manifests()
    log.before.forget_manifests()

    assert verify(log, against=True).violations == ()


# The suite itself


@pytest.mark.parametrize("seeded", MUTATIONS, ids=str)
def test_damage_is_found_by_its_number(seeded: Mutation, log: CleanedLog) -> None:
    untouched = cleaned_bytes(log)
    seeded.damage(log.after, log.before)

    if cleaned_bytes(log) != untouched:
        report = verify(log, deep=False)
        assert "I7" in broken(report), f"by the manifest: {describe(report)}"

    with contextlib.suppress(FileNotFoundError):  # No signature can hide that a file is missing.
        log.after.sign_manifest()
    report = verify(log, against=True)
    expected = seeded.alone if seeded.against is None else seeded.against
    assert broken(report) >= set(expected.split()), f"against the copy: {describe(report)}"
    assert bool(broken(report)) == bool(expected), f"against the copy: {describe(report)}"

    log.after.forget_manifests()
    report = verify(log)
    assert broken(report) == set(seeded.alone.split()), f"alone: {describe(report)}"
    assert broken(report, Severity.WARNING) >= set(seeded.warnings.split()), describe(report)


def cleaned_bytes(log: CleanedLog) -> dict[int, bytes]:
    """Return the log files that the pass has left."""
    end_offset = log.before.base_offsets()[-1]
    bases = [base for base in log.after.base_offsets() if base < end_offset]
    return {base: log.after.path(base, ".log").read_bytes() for base in bases}


# Manifests


def _set(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        target: Any = fields
        for name in path[:-1]:
            target = target[name]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("counts", "superseded", value=3),
        _set("counts", "records_kept", value=1),
        _set("counts", "tombstones_kept", value=1000),
        _set("counts", "aborted_removed", value=-2),
        _set("counts", "bytes_read", value=1),
        _set("counts", "bytes_written", value=1),
        _set("groups", 0, "outputs", 0, "files", 0, "crc32c", value=1),
        _set("groups", 0, "outputs", 0, "files", 0, "size_bytes", value=1),
        _set("groups", 0, "base_offsets", value=[12]),
        _set("inputs", 0, "size_bytes", value=1),
        _set("plan", "partition", value={"topic": "orders", "partition": 7}),
        _set("plan", "pass_id", value="another"),
        _set("plan", value={}),
        _set("version", value=2),
        _set("committed_ms", value="today"),
        _set("counts", value=[]),
    ],
)
def test_a_manifest_that_was_tampered_with_is_found(
    change: Callable[[dict[str, Any]], None], log: CleanedLog
) -> None:
    log.after.edit_manifest(change)

    assert broken(verify(log)) == {"I7"}


def test_a_manifest_that_counts_wrongly_but_adds_up_is_found(log: CleanedLog) -> None:
    def change(fields: dict[str, Any]) -> None:
        fields["counts"]["superseded"] += 1
        fields["counts"]["aborted_removed"] -= 1

    log.after.edit_manifest(change)

    assert broken(verify(log)) == set()
    assert broken(verify(log, against=True)) == {"I7"}


def test_a_manifest_that_read_other_bytes_than_the_one_before_it_left_is_worth_a_warning(
    log: CleanedLog,
) -> None:
    """A pass that ends between its swap and its manifest is repeated, and does no harm."""
    log.after.edit_manifest(_set("inputs", 0, "crc32c", value=1))

    report = verify(log)

    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})


def test_a_change_since_the_last_pass_may_be_a_pass_that_was_killed(log: CleanedLog) -> None:
    log.after.change_record(log.after.find("d"), value=b"other value!")
    assert broken(verify(log)) == {"I7"}

    (log.after.log_dir / filenames.CLEAN_SHUTDOWN).unlink()

    report = verify(log)
    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})


def test_a_manifest_that_is_no_json_is_found(log: CleanedLog) -> None:
    log.after.manifests()[-1].write_text("{")

    assert broken(verify(log)) == {"I7"}


def test_an_index_that_is_not_what_the_pass_wrote_is_only_worth_a_warning(log: CleanedLog) -> None:
    path = log.after.path(log.after.base_offsets()[1], ".index")
    path.write_bytes(path.read_bytes()[8:])

    report = verify(log)

    assert (broken(report), broken(report, Severity.WARNING)) == (set(), {"I7"})
