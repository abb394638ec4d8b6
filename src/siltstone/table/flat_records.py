"""Records of many batches whose positions all count in one array; without Arrow, for the broker."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siltstone.records.layout import CODEC_MASK, HEADER_SIZE, TIMESTAMP_TYPE_BIT
from siltstone.records.scan import Bytes, Records, Scan


class FlatRecords(NamedTuple):
    """Records whose positions all count in one array of bytes."""

    data: Bytes
    records: Records
    timestamp_types: NDArray[np.int32]


def flatten(scan: Scan) -> FlatRecords:
    """Put the payloads of a scan one after the other, unless they lie in one array already."""
    counts = scan.batches["record_count"].astype(np.int64)
    types = ((scan.batches["attributes"] & TIMESTAMP_TYPE_BIT) != 0).astype(np.int32)
    types = np.repeat(types, counts)
    payloads = scan.payloads
    if all(payload is payloads[0] for payload in payloads):
        data = payloads[0] if payloads else np.empty(0, np.uint8)
        return FlatRecords(data, scan.records, types)

    parts: list[Bytes] = []
    shifts = np.empty(len(payloads), np.int64)
    end = 0
    for number, (batch, payload) in enumerate(zip(scan.batches, payloads, strict=True)):
        start, stop = 0, payload.size
        if not batch["attributes"] & CODEC_MASK or batch["size_bytes"] == HEADER_SIZE:
            start = int(batch["position"]) + HEADER_SIZE
            stop = int(batch["position"]) + int(batch["size_bytes"])
        parts.append(payload[start:stop])
        shifts[number] = end - start
        end += stop - start
    records = scan.records.copy()
    shift = np.repeat(shifts, counts)
    records["position"] += shift
    records["key_position"] += shift
    data = np.concatenate(parts)
    data.flags.writeable = False  # The kind of array that the kernels are compiled for.
    return FlatRecords(data, records, types)
