"""Make the key index of a segment: the last record of each key in it, aborted ones left out."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siltstone.cleaner import kernels
from siltstone.cleaner.batch_modes import TrackedModes
from siltstone.cleaner.chunks import iter_chunks
from siltstone.cleaner.key_indexing.entries import sort_entries
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.log.key_index import IndexedRange, pack_key_index
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.compression import MAX_PAYLOAD_BYTES
from siltstone.records.scan import scan

_ORDINAL_BITS = np.uint64(0xFFFFFFFF)


def build_key_index(
    file: File,
    base_offset: int,
    covered_bytes: int,
    aborted: Sequence[AbortedTxn],
    hash_key: bytes | None = None,
) -> bytes:
    """Read the start of a segment's log file, up to a batch's boundary, and index its keys.

    Every transaction in it must be decided. The hash key is a random one unless given.
    """
    hash_key = os.urandom(16) if hash_key is None else hash_key
    keys = KeyMarks(hash_key)
    offsets: list[NDArray[Any]] = []
    batch_positions: list[NDArray[Any]] = []
    all_positions: list[NDArray[Any]] = [np.empty(0, np.int64)]
    end_offset = base_offset
    for chunk in iter_chunks(file, 0, covered_bytes, TrackedModes(aborted)):
        keys.enter_chunk(file, chunk)
        end_offset = int(chunk.batches["last_offset"][-1]) + 1
        all_positions.append(chunk.batches["position"] + chunk.position)
        batches = chunk.batches[chunk.modes == kernels.DATA]
        try:
            found = scan(chunk.view, batches, limit_bytes=MAX_PAYLOAD_BYTES)
        except DecodeError as error:
            position = chunk.position + error.position
            raise CorruptBatchError(file.path, position, error.reason) from error
        offsets.append(found.records["offset"].copy())
        counts = batches["record_count"].astype(np.int64)
        batch_positions.append(np.repeat(batches["position"] + chunk.position, counts))

    entries = np.empty((0, 2), np.uint64)
    if offsets:
        entries = keys.pack(1)[0]
        ordinals = ((entries[:, 1] & _ORDINAL_BITS) >> np.uint64(1)).astype(np.int64)
        places = np.concatenate(batch_positions)[ordinals].astype(np.uint64)
        relative = (np.concatenate(offsets)[ordinals] - base_offset).astype(np.uint64)
        entries[:, 1] = places << np.uint64(32) | relative
        entries = sort_entries(entries)
    covered = IndexedRange(base_offset, covered_bytes, end_offset)
    return pack_key_index(file, covered, hash_key, entries, np.concatenate(all_positions))
