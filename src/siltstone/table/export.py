"""The table as files: Parquet, or an Iceberg table that Spark, DuckDB and Trino read.

An export knows up to which offset it has each partition. The next one reads only the changes since
then, as long as no deletion among them can have expired; otherwise, and the first time, everything.
It knows the id of its topic, too: one that was deleted and made anew has other offsets.

Parquet: a directory with one file per partition and bucket of keys, and a manifest that names the
files which count. A changed key makes its bucket be written anew, under a new name; the manifest is
replaced last, so a reader that goes by it sees one state or the other. Iceberg (`iceberg`): one
commit, in which changed keys are deleted and added; the offsets are in the table's properties.
"""

import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from siltstone.errors import StorageError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_reader import LogReader
from siltstone.table.columns import SCHEMA
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import read_view

MANIFEST: Final = "_silt-export.json"  # readers of a directory of Parquet files skip "_"
OFFSETS_METADATA: Final = "siltstone.offsets"
_BUCKET_KEYS: Final = 1_000_000
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export did."""

    rows_changed: int
    files_written: int
    end_offsets: Mapping[int, int]  # by partition


@dataclass(frozen=True, slots=True)
class Delta:
    """What an export lacks of one partition."""

    rows: pa.Table
    end_offset: int
    is_everything: bool  # or only what has changed, tombstones included

    def live_rows(self) -> pa.Table:
        """Return the rows without tombstones."""
        return self.rows.filter(pc.is_valid(self.rows["value"]))


@dataclass(frozen=True, slots=True)
class _Exported:
    """One partition of an export: up to where it goes, and in which files it is, by bucket."""

    end_offset: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What a directory holds already."""

    topic_id: str | None  # None: written before it was noted
    partitions: Mapping[int, _Exported]

    @property
    def files(self) -> set[str]:
        return {name for part in self.partitions.values() for name in part.files}


def export_parquet(
    reader: LogReader, topic: str, partitions: Sequence[int], target: Path
) -> ExportResult:
    """Write the table of a topic to a directory of Parquet files, or bring it up to date."""
    fs = FileSystem()
    fs.mkdir(target)
    before = _read_manifest(target, topic)
    topic_id = str(reader.describe(topic).topic_id)
    known = before.partitions if before.topic_id in (None, topic_id) else {}
    now = dict(known)
    changed = 0
    for number in partitions:
        partition = TopicPartition(topic, number)
        exported = known.get(number)
        delta = read_delta(reader, partition, None if exported is None else exported.end_offset)
        changed += delta.rows.num_rows
        if exported is None or delta.is_everything:
            files = _write_all(target, partition, delta)
        else:
            files = _update(target, partition, delta, exported.files)
        now[number] = _Exported(delta.end_offset, files)
    after = _Manifest(topic_id, now)
    for name in after.files - before.files:
        _make_durable(fs, target / name)  # or the manifest could outlive what it names
    document = {
        "version": _VERSION,
        "topic": topic,
        "topic_id": topic_id,
        "partitions": {
            str(number): {"end_offset": part.end_offset, "files": part.files}
            for number, part in sorted(now.items())
        },
    }
    fs.write_atomically(target / MANIFEST, json.dumps(document, indent=1).encode())
    for name in before.files - after.files:
        fs.unlink(target / name)
    ends = {number: now[number].end_offset for number in partitions}
    return ExportResult(changed, len(after.files - before.files), ends)


def read_delta(reader: LogReader, partition: TopicPartition, since: int | None) -> Delta:
    """Read what has changed since an offset; everything if a deletion may be missing in that."""
    if since is not None:
        snapshot = open_snapshot(reader, partition, start_offset=since)
        result = read_view(snapshot, ViewRequest(view=View.CHANGES, start_offset=since))
        if result.bounds.is_complete and since >= snapshot.log_start_offset:
            return Delta(result.to_reader().read_all(), result.bounds.end_offset, False)
    result = read_view(open_snapshot(reader, partition), ViewRequest())
    return Delta(result.to_reader().read_all(), result.bounds.end_offset, True)


def _write_all(target: Path, partition: TopicPartition, delta: Delta) -> tuple[str, ...]:
    live = delta.live_rows()
    bucket_count = max(1, -(-live.num_rows // _BUCKET_KEYS))
    return tuple(
        _write(target, partition, bucket, rows, delta.end_offset)
        for bucket, rows in enumerate(_split(live, bucket_count))
    )


def _update(
    target: Path, partition: TopicPartition, delta: Delta, files: Sequence[str]
) -> tuple[str, ...]:
    """Write the buckets anew that have changes; return the files of all."""
    updated = list(files)
    for bucket, rows in enumerate(_split(delta.rows, len(files))):
        if rows.num_rows:
            merged = _merge(target / files[bucket], rows)
            updated[bucket] = _write(target, partition, bucket, merged, delta.end_offset)
    return tuple(updated)


def _split(rows: pa.Table, bucket_count: int) -> list[pa.Table]:
    """Distribute rows over buckets by their key."""
    if bucket_count == 1:
        return [rows]
    keys = rows["key"].to_pylist()
    buckets = pa.array([zlib.crc32(key) % bucket_count for key in keys], pa.int32())
    return [rows.filter(pc.equal(buckets, bucket)) for bucket in range(bucket_count)]


def _merge(path: Path, changes: pa.Table) -> pa.Table:
    """Replace changed keys in what a file holds, and leave deleted ones out."""
    old = pq.read_table(path, schema=SCHEMA)
    is_kept = pc.invert(pc.is_in(old["key"], changes["key"].combine_chunks()))
    live = changes.filter(pc.is_valid(changes["value"]))
    return pa.concat_tables([old.filter(is_kept), live]).sort_by("offset")


def _write(
    target: Path, partition: TopicPartition, bucket: int, rows: pa.Table, end_offset: int
) -> str:
    name = f"{partition.topic}-{partition.partition}-{bucket:05d}-{uuid.uuid4().hex}.parquet"
    metadata = {OFFSETS_METADATA: json.dumps({partition.topic: {partition.partition: end_offset}})}
    pq.write_table(rows.replace_schema_metadata(metadata), target / name, compression="zstd")
    return name


def _make_durable(fs: FileSystem, path: Path) -> None:
    file = fs.open(path)
    try:
        fs.fsync(file)
    finally:
        file.close()


def _read_manifest(target: Path, topic: str) -> _Manifest:
    path = target / MANIFEST
    if not path.exists():
        if any(target.glob("*.parquet")):
            raise StorageError(
                f"{target} holds Parquet files but no {MANIFEST}: export to another directory"
            )
        return _Manifest(None, {})
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        if document["version"] != _VERSION or document["topic"] != topic:
            raise StorageError(
                f"{path} is of topic {document['topic']}, version {document['version']}: export "
                f"{topic} to another directory"
            )
        return _Manifest(
            document.get("topic_id"),
            {
                int(number): _Exported(part["end_offset"], tuple(part["files"]))
                for number, part in document["partitions"].items()
            },
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StorageError(
            f"{path} makes no sense ({error}): export to another directory, or delete this one"
        ) from error
