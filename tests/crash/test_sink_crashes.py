"""A crash at any step of a streaming write: repeated, each record is there once."""

import os
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.errors import StorageError
from siltstone.ids import TopicPartition
from siltstone.log import directory_lock
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from siltstone.spark.source.options import SinkOptions, parse_sink_options
from siltstone.spark.source.sink_commit import SinkCommit
from siltstone.spark.source.staging import STAGED_SUFFIX, StagedFile, Stager
from tests.support.crashable_disk import CrashableDisk
from tests.support.crashing_disk import Crash, SimulatedCrash, every_crash

QUERY = "9b2e2c0a-0000-0000-0000-000000000001"
TOPIC = "out"


class Sink:
    """A sink on a disk that may crash."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self.path = root / "logs"
        with LogManager([self.path]) as manager:
            manager.create_topic(TOPIC, 2, {"segment.bytes": "2000"})
        self.disk = CrashableDisk(root)
        self.options: SinkOptions = parse_sink_options({"path": str(self.path), "topic": TOPIC})

    def stage(self, batch_id: int) -> list[StagedFile]:
        """Do the work of two tasks."""
        found = []
        attempt = f"{QUERY}-{uuid.uuid4().hex}"
        for task in range(2):
            values = [f"{batch_id}.{task}.{row}" for row in range(12)]
            rows = pa.record_batch({"key": values, "value": [v * 9 for v in values]})
            found.append(Stager(self.options, attempt, self.disk).stage(iter([rows, rows[:0]])))
        return found

    def commit(self, files: Sequence[StagedFile], batch_id: int) -> None:
        """Do the work of the driver."""
        SinkCommit([self.path], QUERY, self.disk).append_once(files, batch_id)

    def run(self, batch_id: int) -> None:
        """Run one batch of the query."""
        self.commit(self.stage(batch_id), batch_id)

    def append_by_another(self) -> None:
        """Let somebody else write, before the query goes on."""
        with LogManager([self.path], fs=self.disk) as manager:
            log = manager.get_log(TopicPartition(TOPIC, 0))
            log.append(build_batch([Record(0, 0, b"other", b"other")]))
            log.flush()

    def counts(self) -> Counter[bytes | None]:
        """Count the records by their key."""
        reader = LogReader([self.path], fs=FileSystem())
        found: Counter[bytes | None] = Counter()
        for number in range(2):
            log = reader.get_log(TopicPartition(TOPIC, number))
            for segment in log.segments:
                for _, batch in segment.iter_batches():
                    found.update(record.key for record in batch.iter_records())
        return found

    def staged_names(self) -> list[str]:
        """List what is staged."""
        return [p.name for p in self.path.iterdir() if p.name.endswith(STAGED_SUFFIX)]


def expected(batch_count: int) -> Counter[bytes | None]:
    return Counter(
        f"{batch}.{task}.{row}".encode()
        for batch in range(batch_count)
        for task in range(2)
        for row in range(12)
    )


def run_and_crash(sink: Sink, crash: Crash | None) -> None:
    sink.run(0)
    files = sink.stage(1)
    sink.disk.arm(crash)
    try:
        sink.commit(files, 1)
    except SimulatedCrash:
        directory_lock._held.clear()  # The process that held it is gone.


@pytest.mark.parametrize("power_seed", [None, 2])
def test_a_repeated_batch_is_completed_and_never_doubled(
    tmp_path: Path, power_seed: int | None
) -> None:
    probe = Sink(tmp_path / "probe")
    run_and_crash(probe, None)
    crashes = list(every_crash(probe.disk.steps, within_writes=False))

    for number, crash in enumerate(crashes):
        sink = Sink(tmp_path / str(number))
        run_and_crash(sink, crash)
        if power_seed is None:
            sink.disk.restart()
        else:
            sink.disk.lose_unflushed_writes(power_seed + 10 * number if power_seed else 0)
        sink.append_by_another()
        for name in sink.staged_names():
            os.utime(sink.path / name, (0, 0))  # Long ago, or it would be left alone.

        sink.run(1)
        sink.run(1)
        sink.run(2)

        assert sink.counts() == expected(3) + Counter([b"other"]), crash
        assert sink.staged_names() == [], crash
    assert len(crashes) > 20


def test_a_batch_that_was_written_is_not_written_again(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")

    for batch_id in (0, 0, 1, 0, 1, 2):
        sink.run(batch_id)

    assert sink.counts() == expected(3)
    assert sink.staged_names() == []


def test_a_driver_that_was_taken_for_dead_does_no_harm_to_its_successor(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")
    late = sink.stage(0)
    sink.run(0)
    successors = sink.stage(1)

    sink.commit(late, 0)
    sink.commit(successors, 1)

    assert sink.counts() == expected(2)
    assert sink.staged_names() == []


def test_a_staged_file_that_is_gone_is_an_error_that_a_restart_cures(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")
    files = sink.stage(0)
    (sink.path / str(files[1].name)).unlink()

    with pytest.raises(StorageError, match="is gone before it was appended"):
        sink.commit(files, 0)

    sink.run(0)
    assert sink.counts() == expected(1)
