"""Batch and streaming writes: tasks stage, the driver appends.

A task that is repeated stages a second file, and only one of the two is named to the driver.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from siltstone.errors import UsageError
from siltstone.spark.source.options import SinkOptions
from siltstone.spark.source.sink_commit import SinkCommit
from siltstone.spark.source.staging import BATCH_WRITERS, StagedFile, Stager

_BYTES: Final = (BinaryType(), StringType())
_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: Final[dict[str, tuple[DataType, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (_HEADERS,),
}


def check_columns(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Refuse rows that are no records."""
    if overwrite:
        raise UsageError("a log is only ever appended to: write with mode append")
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in _COLUMNS:
            allowed = ", ".join(_COLUMNS)
            raise UsageError(f"column {field.name} is not one of {allowed}: drop or rename it")
        kinds = _COLUMNS[field.name]
        if not any(_is_same(field.dataType, kind) for kind in kinds):
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise UsageError(
                f"column {field.name} must be {wanted}, it is {field.dataType.simpleString()}"
            )
    if "value" not in names:
        raise UsageError("there is no column value: each record needs one, null for a tombstone")
    if "topic" not in names and options.topic is None:
        raise UsageError("there is no column topic: add one, or give the option topic")


class BatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame to topics."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._writer_id = f"{BATCH_WRITERS}-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return Stager(self._options, self._writer_id).stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what was staged, in the order of the tasks."""
        SinkCommit(self._options.paths, self._writer_id).append(_staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave nothing behind."""
        SinkCommit(self._options.paths, self._writer_id).discard(_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a streaming query, each of them once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query_id = find_query_id(options.checkpoint_location)
        self._attempt_id = f"{self._query_id}-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return Stager(self._options, self._attempt_id).stage(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Append what was staged, unless this batch was appended before."""
        SinkCommit(self._options.paths, self._query_id).append_once(_staged(messages), batchId)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Leave nothing behind."""
        SinkCommit(self._options.paths, self._query_id).discard(_staged(messages))


def find_query_id(checkpoint_location: str | None) -> str:
    """Read the id of a query from its checkpoint: it stays the same over restarts."""
    if checkpoint_location is None:
        raise UsageError(
            "give checkpointLocation as an option of the query: the sink tells by it whether a "
            "batch was written before"
        )
    location = checkpoint_location.replace("s3a://", "s3://", 1)
    if "://" not in location and not location.startswith("file:"):
        location = str(Path(location).absolute())
    try:
        files, path = pyarrow.fs.FileSystem.from_uri(location)
        with files.open_input_stream(f"{path.rstrip('/')}/metadata") as stream:
            query_id: str = json.loads(stream.read())["id"]
            return str(uuid.UUID(query_id))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UsageError(
            f"cannot read the query's id from {checkpoint_location}/metadata: {error}"
        ) from error


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message for message in messages if isinstance(message, StagedFile)]


def _is_same(found: DataType, wanted: DataType) -> bool:
    """Compare types; whether there may be nulls does not matter."""
    return found.simpleString() == wanted.simpleString()
