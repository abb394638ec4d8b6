"""Control records: what a broker writes into the log for readers, not for users."""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from siltstone.errors import MalformedDataError
from siltstone.records.record import Record

_KEY: Final = struct.Struct(">hh")  # version, type
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_VERSION: Final = 0


class ControlType(IntEnum):
    """What a control record says, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(NamedTuple):
    """The end of a transaction: ABORT or COMMIT, by the coordinator of that epoch."""

    control_type: ControlType
    coordinator_epoch: int


def encode_control_key(control_type: ControlType) -> bytes:
    """Encode the key of a control record."""
    return _KEY.pack(_VERSION, control_type)


def encode_marker(marker: Marker, offset: int, timestamp_ms: int) -> Record:
    """Make the record of a transaction marker."""
    value = _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)
    return Record(offset, timestamp_ms, encode_control_key(marker.control_type), value)


def decode_control_type(record: Record) -> ControlType | None:
    """Return the type of a control record, or None for one that this version does not know."""
    if record.key is None or len(record.key) < _KEY.size:
        size = 0 if record.key is None else len(record.key)
        raise MalformedDataError(0, f"control record key of {size} bytes is too small")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise MalformedDataError(0, f"unknown control record version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None  # a later Kafka may add types: readers skip them


def decode_marker(record: Record) -> Marker | None:
    """Return the marker in a control record, or None if it does not end a transaction."""
    control_type = decode_control_type(record)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        size = 0 if record.value is None else len(record.value)
        raise MalformedDataError(0, f"transaction marker of {size} bytes is too small")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise MalformedDataError(0, f"unknown transaction marker version {version}")
    return Marker(control_type, coordinator_epoch)
