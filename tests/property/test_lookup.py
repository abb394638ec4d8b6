"""Lookups in random lives, with transactions and passes, against a dict."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siltstone.cleaner import hash_kernels
from siltstone.cleaner.local import LocalEngine
from siltstone.log.log_reader import LogReader
from siltstone.records.record import Record
from siltstone.records.scan import as_bytes
from siltstone.records.siphash import siphash128_low
from siltstone.table import lookup as lookup_module
from siltstone.table.lookup import PartitionLookup
from siltstone.table.reference import plain_view
from siltstone.table.request import ViewRequest
from siltstone.table.snapshot import take_snapshot
from tests.support.random_lives import PARTITION, RandomLife

KEYS = [b"key-%d" % number for number in range(41)]


def look_up_all(lookup: PartitionLookup) -> dict[bytes, Record]:
    found = {key: lookup.find(key) for key in KEYS}
    return {key: stored.record for key, stored in found.items() if stored is not None}


def expect_all(life: RandomLife) -> dict[bytes, Record]:
    snapshot = take_snapshot(life.log, None)
    records = plain_view(snapshot, ViewRequest(include_tombstones=True))
    return {record.key: record for record in records if record.key is not None}


@pytest.mark.parametrize("max_head_bytes", [0, 300, 1 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_a_lookup_finds_the_last_committed_record_of_each_key(
    seed: int, max_head_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "_MAX_HEAD_BYTES", max_head_bytes)
    life = RandomLife(tmp_path, LocalEngine(), seed)
    rng = random.Random(seed)
    old = None
    for _ in range(12):
        life.live(8)
        if rng.random() < 0.3:
            life.clean()
        expected = expect_all(life)
        fresh = PartitionLookup(LogReader([tmp_path]), PARTITION)
        old = old or fresh

        assert look_up_all(fresh) == expected, life.trace
        assert look_up_all(old) == expected, life.trace


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 63, 64, 300])
def test_the_plain_hash_is_the_one_of_the_kernel(length: int) -> None:
    rng = random.Random(length)
    data, hash_key = rng.randbytes(length), rng.randbytes(16)
    padded = as_bytes(data + bytes(8))
    words: list[Any] = list(np.frombuffer(hash_key, np.uint64))

    low, _ = hash_kernels.siphash128(padded, 0, length, words[0], words[1])

    assert siphash128_low(data, hash_key) == int(low)
