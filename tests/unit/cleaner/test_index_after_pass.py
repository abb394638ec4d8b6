"""The key indexes that the owner of a log makes once a pass is committed."""

from pathlib import Path

import pytest

from siltstone.cleaner.cleaning_pass import CommittedPass
from siltstone.cleaner.key_indexing import after_pass
from siltstone.cleaner.key_indexing.after_pass import index_after_pass
from siltstone.errors import LogDirOfflineError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.key_index import KeyIndex
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.make_log import MadeLog

CONTENT = "a=1 b=1 | a=2 c=1 | d=1"


def index(log: MadeLog, done: CommittedPass) -> int:
    return index_after_pass(FileSystem(), log.real, done.plan, done.result)


def index_names(log: MadeLog) -> list[str]:
    return [path.name for path in sorted(log.directory.glob("*.keyindex"))]


def path_of(log: MadeLog) -> Path:
    return filenames.key_index_path(log.directory, 0)


def test_an_index_is_made_once(make_log: MakeCompactedLog, cleaner: Cleaner) -> None:
    log = make_log(CONTENT)
    done = cleaner.clean(log)

    assert index(log, done) == 1
    assert index_names(log) == [path_of(log).name]
    assert index(log, done) == 0


@pytest.mark.parametrize("damage", [b"", b"x" * 200, None])
def test_an_index_that_is_no_use_is_made_anew(
    make_log: MakeCompactedLog, cleaner: Cleaner, damage: bytes | None
) -> None:
    log = make_log(CONTENT)
    done = cleaner.clean(log)
    index(log, done)
    sound = path_of(log).read_bytes()
    path_of(log).write_bytes(damage or sound[:-1])

    assert index(log, done) == 1
    assert path_of(log).read_bytes() == sound  # the same pass, the same bytes


def test_the_index_of_a_replaced_segment_goes_with_it(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log(CONTENT)
    index(log, cleaner.clean(log))
    log.append("| a=3 | e=1")

    done = cleaner.clean(log)

    assert index_names(log) == []
    assert index(log, done) == 1


def test_a_segment_in_which_nothing_changes_is_indexed_too(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a=1 b=1 | c=1", segment_bytes=150)
    done = cleaner.clean(log)

    assert done.result.unchanged_bases() == {0}
    assert index(log, done) == 1


def test_an_index_of_other_bytes_is_replaced(make_log: MakeCompactedLog, cleaner: Cleaner) -> None:
    log = make_log(CONTENT)
    done = cleaner.clean(log)
    other = make_log("x=1 y=1 | z=1")
    index(other, cleaner.clean(other))
    path_of(log).write_bytes(path_of(other).read_bytes())

    assert index(log, done) == 1
    found = KeyIndex.open(path_of(log))
    assert found is not None
    assert found.is_about(log.real.segments.first.file)


def test_a_segment_that_was_removed_meanwhile_gets_no_index(
    make_log: MakeCompactedLog, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(CONTENT)
    done = cleaner.clean(log)

    def remove_and_index(*arguments: object) -> bytes:
        log.real.truncate_fully_and_start_at(9)
        return b"too late"

    monkeypatch.setattr(vars(after_pass)["cleaned"], "index_cleaned", remove_and_index)

    assert index(log, done) == 0
    assert index_names(log) == []


def test_a_disk_that_refuses_is_no_harm(
    make_log: MakeCompactedLog, cleaner: Cleaner, caplog: pytest.LogCaptureFixture
) -> None:
    class FullDisk(FileSystem):
        def write_file(self, path: Path, data: bytes, *, durable: bool = True) -> None:
            raise LogDirOfflineError(path, "cannot write: No space left on device")

    log = make_log(CONTENT)
    done = cleaner.clean(log)

    assert index_after_pass(FullDisk(), log.real, done.plan, done.result) == 0
    assert "no key index" in caplog.text
    log.restart()
    assert index_names(log) == []
