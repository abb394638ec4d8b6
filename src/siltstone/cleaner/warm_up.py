"""A pass over a few records in memory, so that every kernel is loaded before the first real one.

A kernel is compiled once per machine and then comes from a cache; loading it still takes a tenth
of a second or more, which a process that is forked afterwards has for free.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from siltstone.cleaner.key_winners import KeyWinners
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan, Source
from siltstone.cleaner.slices import Piece, Share, Slice
from siltstone.cleaner.stages import index_slice, order_shares, rewrite_share, settle_modes
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import File, FileSystem
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record

_RECORDS: Final = (
    Record(0, 0, b"a", b"1"),
    Record(1, 0, b"a", b"2"),
    Record(2, 0, b"b", None),
)
_LZ4_RECORDS: Final = tuple(record._replace(offset=record.offset + 3) for record in _RECORDS)


def warm_up() -> None:
    """Load the kernels of a pass in one task."""
    data = _build_log()
    storage = _MemoryStorage({0: data})
    LocalEngine("warm-up", lambda _: storage).run(_plan(len(data)))


def warm_up_stages() -> None:
    """Load the kernels of a pass in stages."""
    data = _build_log()
    storage = _MemoryStorage({0: data})
    plan = _plan(len(data))
    part = Slice(0, (Piece(0, 0, len(data), 0, None),))
    report, blocks = index_slice(plan, storage, part, range_count=1)
    winners = KeyWinners(range_count=1)
    winners.enter(0, blocks[0].tobytes())
    winners.reserve(1 << 13)
    survivors = [(0, block.tobytes()) for block in winners.survivors(slice_count=1)]
    modes, _ = settle_modes(plan, [report])
    (order,) = order_shares([Share(plan.groups, (part,))], [report], modes)
    rewrite_share(plan, storage, "warm-up", order, survivors)


def _build_log() -> bytes:
    return build_batch(_RECORDS) + build_batch(_LZ4_RECORDS, codec=Codec.LZ4)


class _MemoryStorage:
    """Sources and outputs that are files only in name."""

    def __init__(self, sources: Mapping[int, bytes]) -> None:
        self._sources = sources
        self._fs = FileSystem()

    def open_source(self, base_offset: int) -> File:
        file = self.create(str(base_offset))
        self.write(file, 0, self._sources[base_offset])
        return file

    def create(self, name: str) -> File:
        return File(Path(name), os.memfd_create(name, os.MFD_CLOEXEC))

    def write(self, file: File, position: int, data: bytes | memoryview) -> None:
        self._fs.write(file, position, [data])

    def delete(self, name: str) -> None:
        pass


def _plan(size_bytes: int) -> CleaningPlan:
    return CleaningPlan(
        pass_id="warm-up",
        partition=TopicPartition("warm-up", 0),
        directory=Path(),
        reason="",
        sources=(Source(0, size_bytes, 0),),
        groups=((0,),),
        log_start_offset=0,
        first_dirty_offset=0,
        end_offset=len(_RECORDS) + len(_LZ4_RECORDS),
        aborted=(),
        last_records=(),
        now_ms=0,
        delete_retention_ms=0,
        segment_bytes=1 << 20,
        index_interval_bytes=4096,
        segment_index_bytes=4096,
        hash_key=bytes(16),
    )
