"""Read a partition of `__consumer_offsets` from its beginning, in large pieces.

Nearly all records are offsets, and one in a few of them is the last of its key. So the pieces are
taken apart by the kernels that also clean and scan logs, and what they find is put away as bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.coordinator.group.offsets import OffsetStore
from siltstone.coordinator.group.records import (
    LEGACY_OFFSET_KEY,
    OFFSET_KEY,
    decode_offset_key,
    encode_offset_key,
    kind_of,
)
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.batch import read_batch
from siltstone.records.compression import MAX_PAYLOAD_BYTES
from siltstone.records.control import ControlType
from siltstone.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from siltstone.records.scan import Batches, Bytes, Records, scan, walk
from siltstone.table.flat_records import flatten

_READ_BYTES: Final = 5 << 20
_OFFSET_PREFIX: Final = struct.pack(">h", OFFSET_KEY)
_NO_PRODUCER: Final = -1


class OtherRecord(NamedTuple):
    """A record that is no offset: for the groups themselves."""

    kind: int
    key: bytes
    value: bytes | None


def load_partition(
    log: PartitionLog, store: OffsetStore, buffer_bytes: int = _READ_BYTES
) -> Iterator[OtherRecord]:
    """Put all offsets of a partition into the store, and yield all other records in order."""
    next_offset = log.log_start_offset
    while next_offset < log.log_end_offset:
        found = log.read(next_offset, buffer_bytes, Isolation.LOG_END)
        if found.slice is None:
            return
        data = found.slice.read()
        try:
            walked = walk(data)
            if walked.refusal is not None:
                raise walked.refusal
            batches = walked.batches
            for first, stop in _runs(batches["attributes"]):
                yield from _load_run(data, batches[first:stop], store)
        except DecodeError as error:
            raise CorruptBatchError(
                found.slice.file.path, found.slice.position + error.position, error.reason
            ) from error
        next_offset = int(batches["last_offset"][-1]) + 1


def _runs(attributes: NDArray[np.int16]) -> Iterator[tuple[int, int]]:
    """Cut batches where plain ones and those of transactions meet; the latter come one by one."""
    special = (attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0
    if not special.any():
        yield 0, len(attributes)
        return
    first = 0
    for number in np.flatnonzero(special).tolist():
        if first < number:
            yield first, number
        yield number, number + 1
        first = number + 1
    if first < len(attributes):
        yield first, len(attributes)


def _load_run(data: bytes, batches: Batches, store: OffsetStore) -> Iterator[OtherRecord]:
    attributes = int(batches["attributes"][0])
    if attributes & CONTROL_BIT:
        batch = read_batch(data, int(batches["position"][0]))
        marker = batch.marker()
        if marker is not None:
            producer_id = batch.header.producer_id
            is_committed = marker.control_type is ControlType.COMMIT
            for group_id in store.groups_of_producer(producer_id):
                store.end_transaction(group_id, producer_id, is_committed=is_committed)
        return
    flat = flatten(scan(data, batches, limit_bytes=MAX_PAYLOAD_BYTES))
    records = flat.records
    value_starts = _locate_values(flat.data, records)
    payload = flat.data.tobytes()
    keys = _slices(payload, records["key_position"], records["key_length"])
    values = _slices(payload, value_starts, records["value_length"])
    producer_id = _NO_PRODUCER
    if attributes & TRANSACTIONAL_BIT:
        producer_id = read_batch(data, int(batches["position"][0])).header.producer_id
    yield from _put(keys, values, store, producer_id)


def _locate_values(data: Bytes, records: Records) -> NDArray[np.int64]:
    """Find where values begin: behind their length, which stands behind the key."""
    starts: NDArray[np.int64] = records["key_position"] + np.maximum(records["key_length"], 0)
    # The last byte of a length is the first without its highest bit.
    unfinished = np.arange(len(starts))
    while len(unfinished):
        goes_on = data[starts[unfinished]] >= 0x80
        starts[unfinished] += 1
        unfinished = unfinished[goes_on]
    return starts


def _slices(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int32]
) -> list[bytes | None]:
    ends = starts + lengths
    return [
        data[start:end] if end >= start else None
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _put(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    store: OffsetStore,
    producer_id: int,
) -> Iterator[OtherRecord]:
    known: dict[bytes, tuple[str, dict[bytes, bytes]]] = {}
    is_plain = producer_id == _NO_PRODUCER and not store.has_pending
    for key, value in zip(keys, values, strict=True):
        if key is None:
            continue  # No record of a coordinator's, and no harm.
        if key[:2] != _OFFSET_PREFIX:
            kind = kind_of(key)
            if kind != LEGACY_OFFSET_KEY:
                yield OtherRecord(kind, key, value)
                continue
            key = encode_offset_key(decode_offset_key(key))
        prefix = key[: 4 + (key[2] << 8 | key[3])]
        group = known.get(prefix)
        if group is None:
            group_id = decode_offset_key(key).group_id
            group = known[prefix] = (group_id, store.entries(group_id))
        if is_plain:
            if value is None:
                group[1].pop(key, None)
            else:
                group[1][key] = value
        elif producer_id != _NO_PRODUCER and value is not None:
            store.put_pending(group[0], producer_id, key, value)
        else:
            store.put(group[0], key, value)
            known.clear()  # The last offset of a group may have gone, and its table with it.
