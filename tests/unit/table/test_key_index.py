"""The key index file: missing, corrupt, stale or colliding, a lookup is never wrong."""

from pathlib import Path

import numpy as np
import pytest

from siltstone.errors import CorruptIndexError, LogDirOfflineError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.key_index import ENTRY_BYTES, IndexedRange, KeyIndex, pack_key_index
from siltstone.log.log_reader import LogReader
from siltstone.table.lookup import PartitionLookup
from tests.support.make_log import PARTITION, MadeLog, MakeLog

CONTENT = "a=1 b=1 a=2 | c=1 [b=2 d=1] | a=3 e=1"


@pytest.fixture
def log(make_log: MakeLog) -> MadeLog:
    return make_log(CONTENT, cleanup_policy="compact")


def values_in(log: MadeLog) -> dict[str, bytes | None]:
    lookup = PartitionLookup(LogReader([log.directory.parent]), PARTITION)
    found = {key: lookup.find(key.encode()) for key in "abcdex"}
    return {key: stored.record.value for key, stored in found.items() if stored is not None}


EXPECTED = {"a": b"3", "b": b"2", "c": b"1", "d": b"1", "e": b"1"}


def index_paths(log: MadeLog) -> list[Path]:
    return sorted(log.directory.glob("*.keyindex"))


def test_a_lookup_leaves_an_index_for_each_settled_segment(log: MadeLog) -> None:
    assert values_in(log) == EXPECTED
    assert [path.name for path in index_paths(log)] == [
        "00000000000000000000.keyindex",
        "00000000000000000003.keyindex",
    ]
    assert values_in(log) == EXPECTED


def test_whatever_is_wrong_with_an_index_is_noticed(
    log: MadeLog, caplog: pytest.LogCaptureFixture
) -> None:
    values_in(log)
    path = index_paths(log)[0]
    sound = path.read_bytes()
    entries_at = len(sound) - 2 * ENTRY_BYTES  # a and b
    for position in range(len(sound)):
        broken = bytearray(sound)
        broken[position] ^= 0x40
        path.write_bytes(broken)

        assert values_in(log) == EXPECTED, position
        # Entries are looked at when a lookup comes to them, all else when the file is opened.
        assert position >= entries_at or path.read_bytes() != bytes(broken)
    for cut in (b"", sound[:50], sound[:-1], sound + b"\0"):
        path.write_bytes(cut)
        assert values_in(log) == EXPECTED
    assert "building it anew" in caplog.text


def test_an_index_of_other_bytes_is_not_believed(log: MadeLog, make_log: MakeLog) -> None:
    values_in(log)
    stale = index_paths(log)[0].read_bytes()
    other = make_log("a=9 b=9 a=8 | f=1", cleanup_policy="compact")
    filenames.key_index_path(other.directory, 0).write_bytes(stale)

    assert values_in(other)["a"] == b"8"


def test_an_index_goes_with_its_segment(log: MadeLog) -> None:
    values_in(log)
    first, second = index_paths(log)

    log.real.truncate_fully_and_start_at(0)
    first.write_bytes(b"left over by somebody")
    second.write_bytes(b"of a segment that is not there")
    log.restart()

    assert index_paths(log) == [first]


def test_a_directory_that_cannot_be_written_is_read_all_the_same(
    log: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileSystem, path: Path, data: bytes, *, durable: bool = True) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(FileSystem, "write_file", refuse)

    assert values_in(log) == EXPECTED
    assert index_paths(log) == []


def test_a_wrong_index_in_a_directory_that_cannot_be_written_is_done_without(
    log: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    values_in(log)
    path = index_paths(log)[0]
    broken = bytearray(path.read_bytes())
    broken[-1] ^= 0x40  # an entry: noticed when a lookup comes to it
    path.write_bytes(broken)

    def refuse(self: FileSystem, path: Path, *_: object, **__: object) -> None:
        raise LogDirOfflineError(path, "read-only file system")

    monkeypatch.setattr(FileSystem, "write_file", refuse)
    monkeypatch.setattr(FileSystem, "unlink", refuse)

    assert values_in(log) == EXPECTED
    assert path.read_bytes() == broken


def test_keys_with_equal_hashes_are_all_found(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 100)
    file = FileSystem().open(tmp_path / "log")
    # More of one hash than a block holds, between others.
    entries = np.zeros((1000, 2), np.uint64)
    entries[:, 0] = [5] * 100 + [7] * 600 + [2**63 + 9] * 300
    entries[:, 1] = np.arange(1000)
    covered = IndexedRange(10, 100, 2000)
    data = pack_key_index(file, covered, bytes(16), entries, np.zeros(1, np.int64))

    index = KeyIndex(tmp_path / "x", data)

    assert index.is_about(file)
    assert [place.offset for place in index.find(7)] == [10 + n for n in reversed(range(100, 700))]
    assert len(list(index.find(5))) == 100
    assert len(list(index.find(2**63 + 9))) == 300
    assert list(index.find(6)) == []
    assert list(index.find(2**64 - 1)) == []


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    file = FileSystem().open(tmp_path / "log")
    nothing = np.empty((0, 2), np.uint64)
    covered = IndexedRange(0, 0, 0)
    data = pack_key_index(file, covered, bytes(16), nothing, np.empty(0, np.int64))

    assert list(KeyIndex(tmp_path / "x", data).find(3)) == []
    with pytest.raises(CorruptIndexError, match="is of another format"):
        KeyIndex(tmp_path / "x", b"Z" + data[1:])
