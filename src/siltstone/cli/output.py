"""How answers are written: lines for people, JSON for programs, and bytes that may not be text.

Answers go to stdout, messages to stderr. Everything is written as UTF-8, whatever the locale, and
through the binary side of stdout, because records may be any bytes.
"""

import base64
import io
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

_SIZE_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OutputFormat(StrEnum):
    """Who reads the answer."""

    TEXT = "text"
    JSON = "json"


class EncodedBytes(NamedTuple):
    """Bytes as JSON shows them; both are None for null."""

    text: str | None
    encoding: str | None


def write(data: bytes) -> None:
    """Write a part of the answer."""
    sys.stdout.buffer.write(data)


def print_line(text: str) -> None:
    """Write a line of the answer."""
    write(_encode(text + "\n"))


def format_json(document: Mapping[str, Any]) -> str:
    """Write a JSON document as one line."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def print_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document of the answer, on a line of its own."""
    print_line(format_json(document))


def print_json_list(documents: Sequence[Mapping[str, Any]]) -> None:
    """Write the answer as one JSON list, an object on each line."""
    print_line("[" + ",\n ".join(map(format_json, documents)) + "]")


def print_message(text: str) -> None:
    """Tell the user something that is not part of the answer."""
    write_message(_encode(text + "\n"))


def write_message(data: bytes) -> None:
    """Write a part of a message."""
    # In order, also where both go to the same place.
    flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def flush() -> None:
    """Hand what was written to the reader."""
    sys.stdout.buffer.flush()


def format_size(size_bytes: int) -> str:
    """Write a size as people read it: `1.4 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in _SIZE_UNITS:
        size /= 1024
        # One that would be rounded to 1024.0 is 1.0 of the next unit.
        if abs(size) < 1023.95 or unit == _SIZE_UNITS[-1]:
            return f"{size:.1f} {unit}"
    raise AssertionError("the last unit takes every size")


def format_time(timestamp_ms: int) -> str:
    """Write a time in UTC; a dash if there is none, the number if no calendar has it."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def format_bytes(data: bytes | None) -> str:
    """Write a key or a value: as text where it is UTF-8, else as `0x...`; null as `null`."""
    if data is None:
        return "null"
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def encode_bytes(data: bytes | None) -> EncodedBytes:
    """Make a key or a value fit for JSON, and say how it was done."""
    if data is None:
        return EncodedBytes(None, None)
    try:
        return EncodedBytes(data.decode("utf-8"), "utf8")
    except UnicodeDecodeError:
        return EncodedBytes(base64.b64encode(data).decode("ascii"), "base64")


def stdin() -> io.BufferedIOBase:
    """Return the binary side of standard input."""
    stream = sys.stdin.buffer
    assert isinstance(stream, io.BufferedIOBase)  # typeshed promises less
    return stream


def _encode(text: str) -> bytes:
    # A path need not be UTF-8 either.
    return text.encode("utf-8", "backslashreplace")
