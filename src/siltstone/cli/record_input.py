"""Records as they come in: bytes with delimiters between them, perhaps typed by hand."""

import io
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from siltstone.errors import StorageError, UsageError

_CHUNK_BYTES: Final = 1 << 16
_MAX_PIECE_BYTES: Final = 1 << 27
_PAUSE_SECONDS: Final = 0.005  # librdkafka's linger


class KeyValue(NamedTuple):
    """What a piece of input says: the key and the value of a record."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """How input is taken apart."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    fixed_key: bytes | None = None
    empty_is_null: bool = False

    def parse(self, piece: bytes) -> KeyValue:
        """Take key and value apart; without a key delimiter in it, a piece is all value."""
        key, value = None, piece
        if self.key_delimiter is not None and self.key_delimiter in piece:
            key, _, value = piece.partition(self.key_delimiter)
            if self.empty_is_null and not key:
                key = None
            if self.empty_is_null and not value:
                return KeyValue(self.fixed_key if key is None else key, None)
        return KeyValue(self.fixed_key if key is None else key, value)


def iter_pieces(stream: io.BufferedIOBase, delimiter: bytes) -> Iterator[bytes | None]:
    """Yield what stands between delimiters, but nothing empty; None where the input pauses."""
    pending = bytearray()
    searched = 0  # of `pending`: no delimiter begins before
    while True:
        if not _is_ready(stream):
            yield None
        chunk = stream.read1(_CHUNK_BYTES)
        if not chunk:
            break
        pending += chunk
        while (end := pending.find(delimiter, searched)) >= 0:
            if end:
                yield bytes(pending[:end])
            del pending[: end + len(delimiter)]
            searched = 0
        searched = max(0, len(pending) - len(delimiter) + 1)
        if len(pending) > _MAX_PIECE_BYTES:
            raise UsageError(f"{len(pending)} bytes without a delimiter: is -D right?")
    if pending:
        yield bytes(pending)


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read records from."""
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def read_files(paths: Sequence[Path]) -> Iterator[bytes | None]:
    """Yield each file whole, as one piece."""
    for path in paths:
        with open_file(path) as file:
            yield file.read()


def _is_ready(stream: io.BufferedIOBase) -> bool:
    """Say whether there is something to read, or the end, without a pause."""
    try:
        ready, _, _ = select.select([stream], [], [], _PAUSE_SECONDS)
    except (OSError, ValueError):
        return True  # not a file of the operating system, so it never waits
    return bool(ready)
