"""The disk: the only module that writes, renames, deletes or fsyncs.

Every change of the disk is one call of a method of `FileSystem`, so that a test can subclass it and
stop the world before, after or in the middle of any of them. An `OSError` becomes a
`LogDirOfflineError` here, once; what is merely absent is answered as such.
"""

import contextlib
import errno
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from siltstone.errors import LogDirOfflineError
from siltstone.log.file_window import FileWindow, is_cached
from siltstone.log.filenames import temporary_path

_MADV_POPULATE_READ: Final = 22  # of Linux 5.14, which Python has no name for
_MAX_BUFFERS: Final = 1024  # that one system call takes: IOV_MAX


class File:
    """An open file that closes itself when its last holder lets go of it.

    A reader that got hold of a segment's file can finish, whatever happens to the segment.
    """

    __slots__ = ("__weakref__", "_keeps_views", "_populated", "_window", "fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._window: FileWindow | None = None
        self._keeps_views = False
        self._populated = 0  # how much of a kept window is in memory, from its start

    def size_bytes(self) -> int:
        """Return the length of the file."""
        return os.fstat(self.fd).st_size

    def read(self, position: int, count: int) -> bytes:
        """Read up to `count` bytes; fewer only at the end of the file."""
        try:
            data = os.pread(self.fd, count, position)
            # A signal or the kernel's limit of 2 GiB may cut a read short of the end.
            while len(data) < count:
                more = os.pread(self.fd, count - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _offline(self.path, "cannot read", error) from error
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position` and return how many bytes there were."""
        done = 0
        with _translated(self.path, "cannot read"):
            while done < len(buffer):
                count = os.preadv(self.fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def view(self, position: int, count: int) -> memoryview:
        """Return up to `count` bytes without a copy; for files that nobody cuts short.

        They are in memory when this returns: whatever goes wrong on the way is an error here, and
        not a signal that ends the process when somebody looks at them.
        """
        with _translated(self.path, "cannot read"):
            end = min(position + count, self.size_bytes())
            if position >= end:
                return memoryview(b"")
            window = self._window
            if window is None or not window.start <= position <= end <= window.end:
                # What was mapped before goes with the last view of it.
                window = self._window = FileWindow.open(
                    self.fd, position, end, is_whole=self._keeps_views
                )
                self._populated = 0
            try:
                self._populate(window, position, end)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return memoryview(self.read(position, count))  # An older system.
        return memoryview(window.mapped)[position - window.start : end - window.start]

    def keep_views(self) -> None:
        """Let what is viewed stay mapped until the file is closed: a second view costs nothing.

        For files that are walked through twice, one time soon after the other. All that was viewed
        counts as resident memory of the process, though the system may take it back like any other
        page of a file; it is read again then by whoever looks at it.
        """
        self._keeps_views = True
        self._window = None

    def drop_view(self, position: int, count: int) -> None:
        """Let go of what was kept, as far as nobody will look at it again; any thread may.

        It goes with the file anyway, all at once, and that takes its time.
        """
        window = self._window
        if self._keeps_views and window is not None:
            first = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (position + count) // mmap.PAGESIZE * mmap.PAGESIZE
            if first < end <= window.end:
                with contextlib.suppress(OSError):  # A process may have locked its memory.
                    window.advise(mmap.MADV_DONTNEED, first, end)

    def _populate(self, window: FileWindow, position: int, end: int) -> None:
        """See to it that pages are in memory.

        Those that are there already are sooner mapped by whoever looks at them first.
        """
        if self._keeps_views and end <= self._populated:
            return
        if not is_cached(self.fd, position, end):
            window.advise(_MADV_POPULATE_READ, position, end)
        if position <= self._populated:
            self._populated = end

    def close(self) -> None:
        """Close now rather than with the last reference."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class FileSystem:
    """The real disk."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; FileNotFoundError if it is absent and not to be created."""
        flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        with _translated(path, "cannot open", absent_is_fine=not create):
            return File(path, os.open(path, flags | (os.O_CREAT if create else 0), 0o644))

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Write all buffers one after the other; in the page cache when this returns."""
        total = sum(map(len, buffers))
        try:
            written = os.pwritev(file.fd, buffers[:_MAX_BUFFERS], position)
            while written < total:
                rest = memoryview(b"".join(buffers))[written:]
                written += os.pwrite(file.fd, rest, position + written)
        except OSError as error:
            raise _offline(file.path, "cannot write", error) from error

    def truncate(self, file: File, size_bytes: int) -> None:
        """Cut or extend the file; an extension reads as zeros and takes no space."""
        with _translated(file.path, "cannot resize"):
            os.ftruncate(file.fd, size_bytes)

    def fsync(self, file: File) -> None:
        """Make the bytes of the file survive a loss of power."""
        with _translated(file.path, "cannot flush"):
            os.fsync(file.fd)

    def fsync_dir(self, path: Path) -> None:
        """Make creations, renames and deletions in the directory survive a loss of power."""
        with _translated(path, "cannot flush"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically, over `target` if it exists; FileNotFoundError if `source` is absent."""
        with _translated(source, f"cannot rename to {target.name}", absent_is_fine=True):
            os.rename(source, target)

    def unlink(self, path: Path) -> None:
        """Delete a file; an absent one is as good as deleted."""
        with _translated(path, "cannot delete"), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def mkdir(self, path: Path) -> None:
        """Create a directory (and its parents) unless it is there."""
        with _translated(path, "cannot create"):
            path.mkdir(parents=True, exist_ok=True)

    def remove_dir(self, path: Path) -> None:
        """Delete a directory with all that is in it."""
        with _translated(path, "cannot delete"), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def list_names(self, path: Path) -> list[str]:
        """List the names in a directory, sorted, so that nothing depends on the disk's order."""
        with _translated(path, "cannot list", absent_is_fine=True):
            return sorted(os.listdir(path))

    def read_file(self, path: Path) -> bytes | None:
        """Read a whole small file; None if it is absent."""
        with _translated(path, "cannot read"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def write_file(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """Write a whole file in place, for files that are worthless until something names them."""
        file = self.open(path, create=True)
        try:
            self.truncate(file, 0)
            self.write(file, 0, [data])
            if durable:
                self.fsync(file)
        finally:
            file.close()

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a file so that a crash leaves the old content or the new, never a mix."""
        temporary = temporary_path(path)
        self.write_file(temporary, data)
        self.rename(temporary, path)
        self.fsync_dir(path.parent)


@contextlib.contextmanager
def _translated(path: Path, what: str, *, absent_is_fine: bool = False) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if absent_is_fine:
            raise
        raise _offline(path, what, error) from error
    except OSError as error:
        raise _offline(path, what, error) from error


def _offline(path: Path, what: str, error: OSError) -> LogDirOfflineError:
    return LogDirOfflineError(path, f"{what}: {error.strerror}")
