"""What keys and values mean: text, JSON, and Confluent's framing of Avro and JSON.

A framed value begins with a zero byte and the number of its schema, 4 bytes, big-endian. Where the
schemas are is for the caller to say: nothing here asks a registry.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from siltstone.errors import MalformedDataError, MissingExtraError

Decoder = Callable[[bytes], Any]
Schema = Mapping[str, Any]
FindSchema = Callable[[int], Schema]

_FRAME: Final = struct.Struct(">bI")


def decode_text(data: bytes) -> str:
    """Decode UTF-8."""
    return data.decode("utf-8")


def decode_json(data: bytes) -> Any:
    """Decode JSON."""
    return json.loads(data)


def split_frame(data: bytes) -> tuple[int, bytes]:
    """Take Confluent's frame off: return the number of the schema, and the rest."""
    if len(data) < _FRAME.size or data[0] != 0:
        raise MalformedDataError(0, "has no frame of a schema registry: a zero byte and 4 more")
    return _FRAME.unpack_from(data)[1], data[_FRAME.size :]


def make_frame(schema_id: int, data: bytes) -> bytes:
    """Put Confluent's frame around bytes."""
    return _FRAME.pack(0, schema_id) + data


def decode_framed_json(data: bytes) -> Any:
    """Decode JSON that a schema registry's client has framed; the schema is not looked at."""
    return json.loads(split_frame(data)[1])


def avro_decoder(find_schema: FindSchema) -> Decoder:
    """Return a decoder of framed Avro; `find_schema` gives the schema of a number."""
    fastavro = _load_fastavro()
    parsed: dict[int, Any] = {}

    def decode(data: bytes) -> Any:
        schema_id, body = split_frame(data)
        if schema_id not in parsed:
            parsed[schema_id] = fastavro.parse_schema(find_schema(schema_id))
        return fastavro.schemaless_reader(io.BytesIO(body), parsed[schema_id], None)

    return decode


def encode_avro(datum: Any, schema_id: int, schema: Schema) -> bytes:
    """Encode a value as Avro, in Confluent's frame."""
    fastavro = _load_fastavro()
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), datum)
    return make_frame(schema_id, body.getvalue())


def _load_fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an optional package
    except ImportError:
        raise MissingExtraError("Avro", "avro") from None
    return fastavro
