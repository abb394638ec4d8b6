"""The bytes of a `.snapshot` file: every producer of a log, with its last batch."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from siltstone.errors import CorruptCheckpointError
from siltstone.log.producer_entry import BatchMetadata, ProducerEntry
from siltstone.records.crc32c import crc32c
from siltstone.records.varint import Buffer

_VERSION: Final = 1
_NONE: Final = -1
_PREFIX: Final = struct.Struct(">hI")  # version, CRC of all that follows
_COUNT: Final = struct.Struct(">i")
# producer id, epoch, last sequence, last data offset, offset delta, last timestamp,
# coordinator epoch, first offset of the open transaction
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_ENTRIES_POSITION: Final = _PREFIX.size + _COUNT.size


def write_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Write the entries in the order of their producer ids, so that same state is same bytes."""
    rows = [_pack(entry) for entry in sorted(entries, key=lambda entry: entry.producer_id)]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def read_snapshot(path: Path, data: Buffer) -> list[ProducerEntry]:
    """Read all entries, expired ones too, or raise CorruptCheckpointError with the path in it."""
    if len(data) < _ENTRIES_POSITION:
        raise CorruptCheckpointError(path, f"{len(data)} bytes are too few for a snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptCheckpointError(path, f"unknown snapshot version {version}")
    found = crc32c(memoryview(data)[_PREFIX.size :])
    if found != crc:
        raise CorruptCheckpointError(
            path, f"snapshot says CRC 0x{crc:08x}, bytes give 0x{found:08x}"
        )
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    room = (len(data) - _ENTRIES_POSITION) // _ENTRY.size
    if not 0 <= count <= room:
        raise CorruptCheckpointError(path, f"snapshot says {count} producers, has room for {room}")
    end = _ENTRIES_POSITION + count * _ENTRY.size
    rows = memoryview(data)[_ENTRIES_POSITION:end]
    return [_unpack(row) for row in _ENTRY.iter_unpack(rows)]


def _pack(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    txn_first_offset = entry.current_txn_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        _NONE if last is None else last.last_offset,
        0 if last is None else last.offset_delta,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        _NONE if txn_first_offset is None else txn_first_offset,
    )


def _unpack(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, txn = row
    return ProducerEntry(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp_ms,
        txn if txn >= 0 else None,
        (BatchMetadata(sequence, offset, delta, timestamp_ms),) if offset >= 0 else (),
    )
