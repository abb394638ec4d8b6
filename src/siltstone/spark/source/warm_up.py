"""A read and a write of a few records, so that every kernel of the source is compiled.

The package takes compiled kernels along to executors, where each would take a second or more.
"""

import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.spark.source import kernels
from siltstone.spark.source.batch_reader import BatchReader
from siltstone.spark.source.options import parse_source_options
from siltstone.spark.source.packing import Packer, take_columns
from siltstone.table.key_slices import KeySlice, index_slice, resolve_range
from siltstone.table.request import ViewRequest
from siltstone.table.snapshot import open_snapshot

_READS: Final = (
    {"view": "log"},
    {"view": "log", "includeHeaders": "true"},
    {"view": "latest"},
    {"view": "latest", "minPartitions": "4"},
    {"view": "changes", "keyFilter": "k"},
)


def warm_up_source() -> None:
    """Load the kernels, and compile those that were not used on this machine before."""
    rows = pa.record_batch({"key": [b"key", b"other"] * 8, "value": [b"value", None] * 8})
    columns = take_columns(rows, with_headers=False)
    kernels.choose_partitions(*columns[0], 2, 0, np.empty(rows.num_rows, np.int64))
    with tempfile.TemporaryDirectory() as directory:
        with LogManager([Path(directory)]) as manager:
            manager.create_topic("warm-up", 1)
            log = manager.get_log(TopicPartition("warm-up", 0))
            for _ in range(4):
                for _, data in Packer(0).iter_batches(columns, np.arange(rows.num_rows)):
                    log.append(data)
        for options in _READS:
            given = {"path": directory, "subscribe": "warm-up", **options}
            reader = BatchReader(parse_source_options(given, is_streaming=False))
            for part in reader.partitions():
                for _ in reader.read(part):
                    pass
        _find_winners(LogReader([Path(directory)]))


def _find_winners(reader: LogReader) -> None:
    """Do what the tasks of `read_in_stages` do before they read."""
    partition = TopicPartition("warm-up", 0)
    snapshot = open_snapshot(reader, partition)
    part = KeySlice(partition, 0, snapshot.log_end_offset, is_last=True, hash_key=bytes(16))
    blocks = index_slice(snapshot, ViewRequest(), part, 1)
    resolve_range([(0, blocks[0].tobytes())], 1, 1)
