"""Command: an API of our own, for what `silt --bootstrap-server` asks and Kafka has no API for.

A question is a JSON object. An answer is one as well, and after a line break the bytes that go with
it. Nobody but `silt` asks, so the API is not advertised; a broker that is not ours hangs up.
"""

import json
import struct
from typing import Any, Final

COMMAND: Final = 10_000
DEFAULTS_VARIABLE: Final = "SILT_TOPIC_DEFAULTS"
"""Tells the process of a command, as JSON, what the broker's topics have by default."""

_HEAD: Final = struct.Struct(">hhi")  # API key, version, correlation id


def encode_question(question: dict[str, Any], correlation_id: int) -> bytes:
    """Return the frame of a question, without its size."""
    return _HEAD.pack(COMMAND, 0, correlation_id) + json.dumps(question).encode()


def decode_question(frame: memoryview) -> bytes:
    """Return the question in a frame, as it came."""
    return bytes(frame[_HEAD.size :])


def encode_answer(fields: dict[str, Any], data: bytes) -> bytes:
    """Return the body of an answer."""
    return json.dumps(fields).encode() + b"\n" + data


def decode_answer(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Take an answer apart."""
    fields, _, data = body.partition(b"\n")
    return json.loads(fields), data
