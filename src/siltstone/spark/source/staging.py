"""What a task of a write leaves behind: one file with batches, and a message that says where.

Nothing is in the log yet. The driver appends what the messages of the attempts that count name,
and deletes all other files of the same writer.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from siltstone.errors import UsageError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_reader import LogReader
from siltstone.spark.source import kernels
from siltstone.spark.source.options import SinkOptions
from siltstone.spark.source.packing import Binary, Packer, Rows, take_columns

STAGED_PREFIX: Final = "silt-sink-"
STAGED_SUFFIX: Final = ".staged"
BATCH_WRITERS: Final = "batch"  # What the ids of all batch writers begin with.


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """One batch in a staged file."""

    topic: str
    partition: int
    position: int
    size_bytes: int
    record_count: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it is to be appended."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class StagedFile(WriterCommitMessage):
    """What one task has staged; `name` is None if it had no rows."""

    name: str | None
    batches: tuple[StagedBatch, ...]


def staged_name(writer_id: str, unique: str) -> str:
    """Name a file of a writer."""
    return f"{STAGED_PREFIX}{writer_id}-{unique}{STAGED_SUFFIX}"


def find_attempt(name: str) -> str:
    """Return what the names of all files of one attempt at a batch have in common."""
    return name.rpartition("-")[0]


def is_staged_by(name: str, writer_id: str) -> bool:
    """Say whether a file was staged by a writer."""
    return name.startswith(f"{STAGED_PREFIX}{writer_id}-") and name.endswith(STAGED_SUFFIX)


class Stager:
    """Packs the rows of one task and writes them to a file of its own."""

    def __init__(self, options: SinkOptions, writer_id: str, fs: FileSystem | None = None) -> None:
        self._options = options
        self._fs = fs or FileSystem()
        self._reader = LogReader(options.paths)
        self._partition_counts: dict[str, int] = {}
        self._path = options.paths[0] / staged_name(writer_id, uuid.uuid4().hex)
        self._packer = Packer(time.time_ns() // 1_000_000)
        context = TaskContext.get()
        # Like a producer that stays with one partition for a while; the same in each attempt.
        self._keyless = 0 if context is None else context.partitionId()

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedFile:
        """Write all rows, durably."""
        staged: list[StagedBatch] = []
        file = None
        position = 0
        for rows in (batch for batch in batches if batch.num_rows):
            for partition, data, count in self._pack(rows):
                if file is None:
                    file = self._fs.open(self._path, create=True)
                self._fs.write(file, position, [data])
                staged.append(
                    StagedBatch(partition.topic, partition.partition, position, len(data), count)
                )
                position += len(data)
            self._keyless += 1
        if file is None:
            return StagedFile(None, ())
        self._fs.fsync(file)
        file.close()
        return StagedFile(self._path.name, tuple(staged))

    def _pack(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, bytes, int]]:
        columns = take_columns(batch, with_headers=self._options.include_headers)
        for topic, rows in self._by_topic(batch):
            partitions = self._choose_partitions(topic, batch, columns[0], rows)
            order = np.argsort(partitions, kind="stable")
            numbers, starts = np.unique(partitions[order], return_index=True)
            for number, members in zip(numbers, np.split(rows[order], starts[1:]), strict=True):
                partition = TopicPartition(topic, int(number))
                for count, data in self._packer.iter_batches(columns, members):
                    yield partition, data, count

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        if self._options.topic is not None:
            yield self._options.topic, np.arange(batch.num_rows)
            return
        column = batch.column("topic")
        if column.null_count:
            raise UsageError("a row has no topic: fill its column, or give the option topic")
        names = column.dictionary_encode()
        codes = names.indices.to_numpy()
        for code, topic in enumerate(names.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _choose_partitions(
        self, topic: str, batch: pa.RecordBatch, keys: Binary, rows: Rows
    ) -> Rows:
        count = self._partition_count(topic)
        partitions = np.empty(batch.num_rows, np.int64)
        kernels.choose_partitions(*keys, count, self._keyless % count, partitions)
        at = batch.schema.get_field_index("partition")
        if at >= 0:
            wanted = batch.column(at)
            given = wanted.is_valid().to_numpy(zero_copy_only=False)
            numbers = wanted.fill_null(0).to_numpy().astype(np.int64)
            partitions = np.where(given, numbers, partitions)
        partitions = partitions[rows]
        if partitions.size and not (partitions.min() >= 0 and partitions.max() < count):
            raise UsageError(
                f"topic {topic} has partitions 0 to {count - 1}, a row says "
                f"{partitions.max() if partitions.max() >= count else partitions.min()}"
            )
        return partitions

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            self._partition_counts[topic] = self._reader.describe(topic).partition_count
        return self._partition_counts[topic]
