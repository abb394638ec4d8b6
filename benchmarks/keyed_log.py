"""Log directories to clean: as many records as wanted over as many keys, made in seconds.

All records of a log are equally long, so that a batch is one of a few templates with other keys in
it, and numpy writes thousands of them at a time. The last segment is active and empty.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import WrongAnswerError
from benchmarks.loading import CarelessFileSystem
from benchmarks.workload import BatchShape, produced_batches
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.log_manager import LogManager
from siltstone.records.batch import read_header
from siltstone.records.builder import encode_batch
from siltstone.records.compression import Codec, compress
from siltstone.records.layout import HEADER_SIZE
from siltstone.records.scan import scan, walk

TOPIC: Final = "bench"
SETTINGS: Final = {"cleanup.policy": "compact"}

_SEGMENT_BYTES: Final = 512 << 20
_TEMPLATE_COUNT: Final = 8
_BATCHES_AT_ONCE: Final = 512
_SEED: Final = 20_260_000
_LIMIT_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is in a log; every key is in it, others come again until there are enough records."""

    shape: BatchShape
    record_count: int
    key_count: int
    partition_count: int = 1

    def describe(self) -> dict[str, Any]:
        """Describe it for a result."""
        return {
            "records": self.record_count,
            "keys": self.key_count,
            "partitions": self.partition_count,
            **self.shape.describe(),
        }


class KeyedLogs:
    """A log directory that is copied for each run; its segments are never written to."""

    def __init__(self, path: Path, workload: Workload) -> None:
        batch_count = -(-workload.record_count // workload.shape.record_count)
        self.workload = workload
        self.record_count = batch_count * workload.shape.record_count  # of each partition
        self._path = path / "original"
        self._copy_path = path / "copy"
        self.size_bytes = _write_directory(self._path, workload, batch_count)
        os.sync()  # Or the first rounds would share the disk with what was just written.

    @property
    def total_bytes(self) -> int:
        """The size of all partitions."""
        return self.size_bytes * self.workload.partition_count

    @property
    def total_records(self) -> int:
        """The records of all partitions."""
        return self.record_count * self.workload.partition_count

    @property
    def log_paths(self) -> list[Path]:
        """The segments with records, of all partitions."""
        return [path for path in sorted(self._path.glob("*/*.log")) if path.stat().st_size]

    def copy(self) -> Path:
        """Return a fresh copy, in which the segments are the same files by another name."""
        shutil.rmtree(self._copy_path, ignore_errors=True)
        shutil.copytree(self._path, self._copy_path, copy_function=_link_segments)
        return self._copy_path

    def check_kept(self, kept_count: int) -> None:
        """Raise WrongAnswerError unless so many records are what a pass must leave."""
        expected = self.workload.key_count * self.workload.partition_count
        if kept_count != expected:
            raise WrongAnswerError(f"{kept_count} records are left, not {expected}")

    def delete(self) -> None:
        """Make room for the next ones."""
        shutil.rmtree(self._path.parent)


def partition_path(directory: Path, number: int) -> Path:
    """Return where a partition lies."""
    return directory / filenames.partition_dir_name(TopicPartition(TOPIC, number))


def _link_segments(source: str, target: str) -> None:
    if source.endswith(filenames.LOG) and Path(source).stat().st_size:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _write_directory(path: Path, workload: Workload, batch_count: int) -> int:
    """Write the segments, and let recovery make everything else; return a partition's size."""
    path.mkdir(parents=True)
    with LogManager([path], fs=CarelessFileSystem()) as manager:
        manager.create_topic(TOPIC, workload.partition_count, SETTINGS)
    first, *others = [partition_path(path, n) for n in range(workload.partition_count)]
    size_bytes = _write_segments(first, workload, batch_count)
    for other in others:
        for segment in first.glob(f"*{filenames.LOG}"):
            (other / segment.name).unlink(missing_ok=True)
            os.link(segment, other / segment.name)
    (path / filenames.CLEAN_SHUTDOWN).unlink()
    (path / filenames.RECOVERY_POINTS).unlink()
    with LogManager([path], fs=CarelessFileSystem()) as manager:
        for log in manager.logs.values():
            log.roll()
            log.update_high_watermark(log.log_end_offset)
    return size_bytes


def _write_segments(directory: Path, workload: Workload, batch_count: int) -> int:
    total = 0
    base_offset = 0
    size_bytes = 0
    file = filenames.log_path(directory, 0).open("wb", buffering=0)
    for first_offset, data in _iter_batches(workload, batch_count):
        if size_bytes + len(data) > _SEGMENT_BYTES:
            file.close()
            base_offset, size_bytes = first_offset, 0
            file = filenames.log_path(directory, base_offset).open("wb", buffering=0)
        size_bytes += file.write(data)
        total += len(data)
    file.close()
    return total


def _iter_batches(workload: Workload, batch_count: int) -> Iterator[tuple[int, bytes]]:
    """Yield many batches at a time, with the offset of the first."""
    shape = workload.shape
    plain = replace(shape, codec=Codec.NONE)
    templates = list(produced_batches(plain, _TEMPLATE_COUNT, first_ms=1_700_000_000_000))
    columns = _key_columns(templates[0], shape)
    header = read_header(templates[0])._replace(leader_epoch=0, attributes=int(shape.codec))
    stacked = np.stack([np.frombuffer(template, np.uint8) for template in templates])
    keys = _draw_keys(batch_count * shape.record_count, workload.key_count)
    for first in range(0, batch_count, _BATCHES_AT_ONCE):
        count = min(_BATCHES_AT_ONCE, batch_count - first)
        rows = stacked[np.arange(first, first + count) % _TEMPLATE_COUNT]
        start = first * shape.record_count
        drawn = keys[start : start + count * shape.record_count]
        rows[:, columns] = decimal_digits(drawn, shape.key_bytes).reshape(count, -1)
        batches = [
            encode_batch(
                header._replace(base_offset=start + number * shape.record_count),
                compress(shape.codec, row[HEADER_SIZE:].tobytes()),
            )
            for number, row in enumerate(rows)
        ]
        yield start, b"".join(batches)


def _key_columns(template: bytes, shape: BatchShape) -> NDArray[np.int64]:
    """Find where in a batch the bytes of its keys are."""
    found = scan(template, walk(template).batches, limit_bytes=_LIMIT_BYTES)
    starts = found.records["key_position"]
    return (starts[:, None] + np.arange(shape.key_bytes)).ravel()


def _draw_keys(record_count: int, key_count: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(_SEED)
    keys = np.arange(record_count) % key_count
    # Each key at least once; which ones come again, and when, is left to chance.
    keys[key_count:] = rng.integers(0, key_count, max(record_count - key_count, 0))
    rng.shuffle(keys)
    return keys


def decimal_digits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Write numbers in so many ASCII digits, a row each."""
    digits = np.empty((len(numbers), width), np.uint8)
    for column in range(width - 1, -1, -1):
        numbers, digit = np.divmod(numbers, 10)
        digits[:, column] = digit + ord("0")
    return digits
