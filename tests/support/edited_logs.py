"""Log directories to tamper with: their batches and files taken apart, changed, put back."""

import json
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from siltstone.cleaner.rebuild import rebuild_batch
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_offsets, parse_offsets
from siltstone.log.index_entries import IndexBuilder
from siltstone.records.batch import Batch, BatchHeader, iter_batches, read_batch
from siltstone.records.builder import build_empty_batch, encode_batch
from siltstone.records.crc32c import crc32c
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.record import Record

Edit = Callable[[list[Record]], list[Record]]

_INDEX_BYTES: Final = 1 << 20


class EditedLog:
    """A partition in a log directory that nobody owns.

    Whatever is done to batches, both indexes follow, unless `keeps_indexes` says otherwise: a
    change must be found for what it is, not for what it does to an index.
    """

    def __init__(self, log_dir: Path, partition: TopicPartition) -> None:
        self.log_dir = log_dir
        self.partition = partition
        self.directory = log_dir / filenames.partition_dir_name(partition)

    # Batches

    def base_offsets(self) -> list[int]:
        """Return the segments that there are."""
        files = (filenames.parse_segment_file(path.name) for path in self.directory.iterdir())
        return sorted(f.base_offset for f in files if f and (f.extension, f.suffix) == (".log", ""))

    def batches(self, base_offset: int) -> list[bytes]:
        """Return the batches of a segment."""
        data = filenames.log_path(self.directory, base_offset).read_bytes()
        return [bytes(batch.data) for _, batch in iter_batches(data)]

    def write(
        self, base_offset: int, batches: Iterable[bytes], *, keeps_indexes: bool = False
    ) -> None:
        """Put batches in the place of those of a segment."""
        contents = list(batches)
        filenames.log_path(self.directory, base_offset).write_bytes(b"".join(contents))
        if keeps_indexes:
            return
        builder = IndexBuilder(base_offset, 0)
        position = 0
        for header in (read_batch(data).header for data in contents):
            row = position, header.last_offset, header.max_timestamp_ms
            builder.add(*(np.array([value]) for value in row))
            position += header.size_bytes
        self.path(base_offset, ".index").write_bytes(builder.pack_offset_index(_INDEX_BYTES))
        self.path(base_offset, ".timeindex").write_bytes(builder.pack_time_index(_INDEX_BYTES))

    def segment_of(self, offset: int) -> int:
        """Return the base of the segment that holds an offset."""
        return max(base for base in self.base_offsets() if base <= offset)

    def batch(self, offset: int) -> Batch:
        """Return the batch that holds an offset."""
        return next(
            b for b in map(read_batch, self.batches(self.segment_of(offset))) if _has(b, offset)
        )

    def position(self, offset: int) -> int:
        """Return where the batch begins that holds an offset."""
        position = 0
        for batch in map(read_batch, self.batches(self.segment_of(offset))):
            if _has(batch, offset):
                return position
            position += batch.header.size_bytes
        raise KeyError(offset)

    def find(self, key: str, value: str | None = "") -> int:
        """Return the offset of the last record of a key whose value begins so, or is None."""
        return max(
            record.offset
            for batch in self._all_batches()
            if not batch.header.is_control
            for record in batch.iter_records()
            if record.key == key.encode()
            and (
                record.value is None
                if value is None
                else record.value is not None and record.value.startswith(value.encode())
            )
        )

    def find_batch(
        self, producer_id: int, *, is_control: bool = False, is_empty: bool = False
    ) -> int:
        """Return the base offset of the last batch of a kind that a producer has."""
        return max(
            batch.header.base_offset
            for batch in self._all_batches()
            if (batch.header.producer_id, batch.header.is_control, batch.header.is_empty)
            == (producer_id, is_control, is_empty)
        )

    def _all_batches(self) -> Iterator[Batch]:
        return (read_batch(data) for base in self.base_offsets() for data in self.batches(base))

    def replace(self, offset: int, *data: bytes, keeps_indexes: bool = False) -> None:
        """Put others in the place of the batch that holds an offset."""
        base_offset = self.segment_of(offset)
        parts = [
            new
            for old in self.batches(base_offset)
            for new in (data if _has(read_batch(old), offset) else (old,))
        ]
        self.write(base_offset, parts, keeps_indexes=keeps_indexes)

    def drop(self, offset: int) -> None:
        """Take away the batch that holds an offset."""
        self.replace(offset)

    def insert(self, data: bytes) -> None:
        """Put a batch where its offsets belong."""
        first_offset = read_batch(data).header.base_offset
        base_offset = self.segment_of(first_offset)
        parts = [*self.batches(base_offset), data]
        self.write(base_offset, sorted(parts, key=lambda p: read_batch(p).header.base_offset))

    def edit(self, offset: int, change: Edit) -> None:
        """Change the records of the batch that holds an offset, and sign it again."""
        batch = self.batch(offset)
        records = change(list(batch.iter_records()))
        header = batch.header
        data = (
            rebuild_batch(header, records, header.delete_horizon_ms)
            if records
            else build_empty_batch(header)
        )
        self.replace(offset, data)

    def drop_record(self, offset: int) -> None:
        """Take one record away; a batch without records goes as a whole."""
        if self.batch(offset).header.record_count == 1:
            self.drop(offset)
        else:
            self.edit(offset, lambda records: [r for r in records if r.offset != offset])

    def change_record(self, offset: int, **fields: Any) -> None:
        """Change fields of one record."""
        self.edit(
            offset,
            lambda records: [r._replace(**fields) if r.offset == offset else r for r in records],
        )

    def change_header(self, offset: int, **fields: Any) -> None:
        """Change fields of the header of a batch, and sign it again."""
        batch = self.batch(offset)
        header = BatchHeader(**{**batch.header._asdict(), **fields})
        self.replace(offset, encode_batch(header, bytes(batch.data[HEADER_SIZE:])))

    def flip(self, offset: int, position: int) -> None:
        """Flip a bit of the batch that holds an offset, and leave the checksum as it is."""
        data = bytearray(self.batch(offset).data)
        data[position] ^= 1
        base_offset = self.segment_of(offset)
        parts = [
            bytes(data) if _has(read_batch(p), offset) else p for p in self.batches(base_offset)
        ]
        filenames.log_path(self.directory, base_offset).write_bytes(b"".join(parts))

    # Other files

    def path(self, base_offset: int, extension: str) -> Path:
        """Return a file of a segment."""
        return self.directory / filenames.SegmentFile(base_offset, extension).name

    def edit_entries(
        self, path: Path, entry: str, change: Callable[[list[list[int]]], Sequence[Sequence[int]]]
    ) -> None:
        """Change the entries of an index, whose form `struct` knows."""
        form = struct.Struct(entry)
        rows = [list(row) for row in form.iter_unpack(path.read_bytes())]
        path.write_bytes(b"".join(form.pack(*row) for row in change(rows)))

    def write_offset(self, name: str, offset: int) -> None:
        """Write another offset of the partition into a checkpoint."""
        path = self.log_dir / name
        known = parse_offsets(path, path.read_bytes()) if path.exists() else {}
        path.write_bytes(format_offsets({**known, self.partition: offset}))

    def manifests(self) -> list[Path]:
        """Return the manifests, oldest first."""
        return sorted(p for p in self.directory.iterdir() if filenames.is_manifest(p.name))

    def edit_manifest(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the newest manifest."""
        path = self.manifests()[-1]
        fields = json.loads(path.read_text())
        change(fields)
        path.write_text(json.dumps(fields))

    def sign_manifest(self) -> None:
        """Let the newest manifest say that its pass has left the files as they are."""

        def sign(fields: dict[str, Any]) -> None:
            written = 0
            for group in fields["groups"]:
                for output in group["outputs"]:
                    for file in output["files"]:
                        data = self.path(output["base_offset"], file["extension"]).read_bytes()
                        file.update(size_bytes=len(data), crc32c=crc32c(data))
                        written += len(data) if file["extension"] == filenames.LOG else 0
                if group["is_unchanged"]:
                    (base_offset,) = group["base_offsets"]
                    data = self.path(base_offset, filenames.LOG).read_bytes()
                    for source in [*fields["inputs"], *fields["plan"]["sources"]]:
                        if source["base_offset"] == base_offset:
                            source["size_bytes"] = len(data)
                    for source in fields["inputs"]:
                        if source["base_offset"] == base_offset:
                            source["crc32c"] = crc32c(data)
            fields["counts"]["bytes_written"] = written
            fields["counts"]["bytes_read"] = sum(s["size_bytes"] for s in fields["inputs"])

        self.edit_manifest(sign)

    def forget_manifests(self) -> None:
        """Remove all manifests, as if another cleaner had run."""
        for path in self.manifests():
            path.unlink()

    def copy_to(self, target: Path) -> "EditedLog":
        """Copy the whole log directory."""
        return EditedLog(Path(shutil.copytree(self.log_dir, target)), self.partition)


def _has(batch: Batch, offset: int) -> bool:
    return batch.header.base_offset <= offset <= batch.header.last_offset
