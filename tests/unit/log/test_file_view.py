"""Views of files: the bytes where they are, without a copy."""

import os
import sys
from pathlib import Path

import pytest

from siltstone.errors import LogDirOfflineError
from siltstone.log import file_window, filesystem
from siltstone.log.filesystem import File, FileSystem

DATA = bytes(range(256)) * 100


def release() -> tuple[int, ...]:
    """Return the version of the system."""
    return tuple(map(int, os.uname().release.split(".")[:2]))


def forget_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every page look as if it were on the disk only."""
    monkeypatch.setattr(filesystem, "is_cached", lambda fd, position, end: False)


@pytest.fixture(params=[False, True], ids=["views go", "views are kept"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setattr(file_window, "WINDOW_BYTES", 8192)
    path = tmp_path / "file"
    path.write_bytes(DATA)
    file = FileSystem().open(path, writable=False)
    if request.param:
        file.keep_views()
    return file


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 8191, 8192, 20_000, len(DATA) - 1])
@pytest.mark.parametrize("count", [1, 100, 4096, 9000])
def test_a_view_has_the_bytes_of_the_file(file: File, position: int, count: int) -> None:
    assert file.view(position, count) == DATA[position : position + count]


def test_views_outlive_the_windows_they_were_taken_from(file: File) -> None:
    views = [file.view(position, 1000) for position in range(0, len(DATA), 1000)]
    file.close()

    assert b"".join(views) == DATA


def test_a_view_beyond_the_end_is_short(file: File) -> None:
    assert file.view(len(DATA) - 10, 100) == DATA[-10:]
    assert not file.view(len(DATA), 100)
    assert not file.view(len(DATA) + 5000, 100)


def test_a_file_that_grows_is_seen_to_its_end(file: File) -> None:
    assert file.view(len(DATA) - 10, 100) == DATA[-10:]
    with file.path.open("ab") as other:
        other.write(DATA)

    assert file.view(len(DATA) - 10, 30_000) == (DATA + DATA)[len(DATA) - 10 :]


def test_an_empty_file_has_an_empty_view(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert not FileSystem().open(tmp_path / "empty", writable=False).view(0, 10)


def test_what_cannot_be_mapped_is_an_error_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "sealed").write_bytes(DATA)
    file = FileSystem().open(tmp_path / "sealed", writable=False)
    file.close()

    with pytest.raises(LogDirOfflineError, match="sealed"):
        file.view(0, 10)


def test_a_system_that_does_not_know_the_call_copies(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_the_cache(monkeypatch)
    monkeypatch.setattr(filesystem, "_MADV_POPULATE_READ", 12_345)  # an unknown advice: EINVAL

    assert file.view(100, 9000) == DATA[100:9100]


def open_kept(directory: Path) -> File:
    (directory / "sealed").write_bytes(DATA)
    file = FileSystem().open(directory / "sealed", writable=False)
    file.keep_views()
    return file


def test_what_is_kept_is_asked_of_the_system_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_kept(tmp_path)
    forget_the_cache(monkeypatch)
    for position in range(0, len(DATA), 9000):
        file.view(position, 9000)
    monkeypatch.setattr(filesystem, "_MADV_POPULATE_READ", 12_345)  # an unknown advice: EINVAL
    monkeypatch.setattr(File, "read", None)  # which would be the way out

    views = [file.view(position, 9000) for position in range(0, len(DATA), 9000)]

    assert b"".join(views) == DATA


def test_what_was_left_out_of_a_kept_file_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_kept(tmp_path)
    forget_the_cache(monkeypatch)
    file.view(0, 1000)
    file.view(9000, 1000)
    monkeypatch.setattr(filesystem, "_MADV_POPULATE_READ", 12_345)
    monkeypatch.setattr(File, "read", lambda self, position, count: b"copied")

    assert bytes(file.view(1000, 9000)) == b"copied"


def test_what_was_dropped_can_be_viewed_again(file: File) -> None:
    kept = [file.view(position, 1000) for position in range(0, len(DATA), 1000)]
    file.drop_view(5000, 10_000)
    file.drop_view(20_000, 10)
    file.drop_view(20_000, len(DATA))

    assert b"".join(kept) == DATA
    assert file.view(0, len(DATA)) == DATA


def test_only_what_was_read_or_written_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_bytes(DATA)
    with path.open("ab") as file:
        file.truncate(16 << 20)  # what nobody has written is in no page

        assert not file_window.is_cached(file.fileno(), 0, 16 << 20)
        assert not file_window.is_cached(file.fileno(), (8 << 20) + 1, (8 << 20) + 2)


def test_what_was_written_is_cached_if_the_system_tells(tmp_path: Path) -> None:
    tells = sys.platform == "linux" and release() >= (6, 5)
    (tmp_path / "whole").write_bytes(DATA)
    with (tmp_path / "whole").open("rb") as file:
        assert file_window.is_cached(file.fileno(), 0, len(DATA)) == tells
        assert file_window.is_cached(file.fileno(), 5000, 5001) == tells
