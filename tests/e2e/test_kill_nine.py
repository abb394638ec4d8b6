"""A real process that appends is killed with SIGKILL, again and again: nothing is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.records.record import Record
from tests.support.appender import PARTITION, digest
from tests.support.crash_runs import ROUNDS, told
from tests.support.crashed_directory import make_crashed_directory
from tests.support.log_checks import check_lookups, check_segments, fetch_all

SETTINGS = {
    "flush.messages": "1",
    "segment.bytes": "20000",
    "segment.index.bytes": "4096",
    "index.interval.bytes": "500",
    "retention.ms": "-1",
}


class Appender:
    """The process that makes processes which append."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.appender"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._pid = 0

    def start(self, seed: int, path: Path, settings: dict[str, str]) -> None:
        """Begin a round."""
        self._stdin.write(json.dumps([seed, str(path), settings]).encode() + b"\n")
        self._stdin.flush()
        word, pid = self.read()
        assert word == "pid"
        self._pid = int(pid)

    def read(self) -> list[str]:
        """Return the next line of a process that is alive, word by word."""
        words = self._read_line()
        assert words[0] != "end", "it ended before it was killed"
        return words

    def _read_line(self) -> list[str]:
        line = self._stdout.readline()
        assert line.endswith(b"\n"), "the appender is gone"
        return line.decode().split()

    def kill(self) -> list[list[str]]:
        """Kill the process of this round, and return what it had still said."""
        os.kill(self._pid, signal.SIGKILL)
        said = []
        while (words := self._read_line())[0] != "end":
            said.append(words)
        assert words == ["end", str(-signal.SIGKILL)], "it ended before it was killed"
        return said

    def close(self) -> None:
        self._stdin.close()
        self._process.wait(timeout=30)
        self._stdout.close()


@pytest.fixture
def appender() -> Iterator[Appender]:
    appender = Appender()
    yield appender
    appender.close()


class Acknowledged:
    """What the appender was told is durable, by offset."""

    def __init__(self) -> None:
        self.hashes: dict[int, str] = {}

    def take(self, words: list[str]) -> bool:
        """Note what a line says, and say whether it was an acknowledgement."""
        if words[0] == "ack":
            offset = int(words[1])
            assert self.hashes.get(offset) in (None, words[2]), f"offset {offset} was given twice"
            self.hashes[offset] = words[2]
        return words[0] == "ack"

    def check(self, records: list[Record], log_start_offset: int = 0) -> None:
        """Check that all of it is among the records, and that none of those is made up."""
        for record in records:
            assert record.value is not None
            assert record.key == digest(record.value), record
        found = {r.offset: r.key.decode() for r in records if r.key is not None}
        assert list(found) == list(range(log_start_offset, log_start_offset + len(found)))
        expected = {o: key for o, key in self.hashes.items() if o >= log_start_offset}
        assert expected.items() <= found.items()


def read_records(log: PartitionLog) -> list[Record]:
    return [record for batch in fetch_all(log, 100_000) for record in batch.iter_records()]


def run_until_killed(
    appender: Appender,
    seed: int,
    path: Path,
    settings: dict[str, str],
    acknowledged: Acknowledged,
) -> None:
    """Let a process append, and kill it at a moment that the seed chooses."""
    chance = random.Random(seed)
    appender.start(seed, path, settings)
    wanted = chance.choice([0, 1, 3, 30])
    while wanted:
        wanted -= acknowledged.take(appender.read())
    # Not right after an answer, but anywhere in what comes next; while it opens, if none came.
    deadline = time.perf_counter() + chance.random() * 0.02
    while time.perf_counter() < deadline:
        pass
    for words in appender.kill():
        acknowledged.take(words)


@pytest.mark.timeout(300)
def test_no_acknowledged_record_is_lost_by_kill_nine(tmp_path: Path, appender: Appender) -> None:
    acknowledged = Acknowledged()
    path = tmp_path / "logs"
    for seed in range(15 * ROUNDS):
        run_until_killed(appender, seed, path, SETTINGS, acknowledged)

        with told(f"round {seed}"):
            # The next process finds the directory as this one left it.
            reader = LogReader([path])
            if reader.topics():
                acknowledged.check(read_records(reader.get_log(PARTITION)))
            else:
                assert not acknowledged.hashes

    with LogManager([path]) as manager:
        log = manager.get_log(PARTITION)
        acknowledged.check(read_records(log))
        check_segments(log)
        check_lookups(log)
    assert len(acknowledged.hashes) > 50


@pytest.mark.timeout(300)
def test_kill_nine_between_rolls_and_retention_leaves_a_log_without_a_hole(
    tmp_path: Path, appender: Appender
) -> None:
    settings = {
        **SETTINGS,
        "segment.bytes": "3000",
        "retention.bytes": "9000",
        "file.delete.delay.ms": "0",
    }
    acknowledged = Acknowledged()
    path = tmp_path / "logs"
    for seed in range(100, 100 + 6 * ROUNDS):
        run_until_killed(appender, seed, path, settings, acknowledged)

        with told(f"round {seed}"):
            manager = LogManager([path])
            if manager.topics():
                log = manager.get_log(PARTITION)
                acknowledged.check(read_records(log), log.log_start_offset)
                assert log.size_bytes >= 6_000 or log.log_start_offset == 0
                check_segments(log)
                check_lookups(log)
            for directory in manager.directories:
                directory.release()


@pytest.mark.timeout(300)
def test_a_reader_beside_the_appender_sees_whole_records_in_order_also_when_it_is_killed(
    tmp_path: Path, appender: Appender
) -> None:
    acknowledged = Acknowledged()
    path = tmp_path / "logs"
    appender.start(1, path, SETTINGS)
    while not acknowledged.take(appender.read()):
        pass
    reader = LogReader([path])
    seen: list[Record] = []

    def read_on() -> None:
        known = dict(acknowledged.hashes)
        log = reader.get_log(PARTITION)
        # One read ends with its segment.
        while batches := list(log.read(len(seen), 1_000_000).batches()):
            for batch in batches:
                seen.extend(record for record in batch.iter_records() if record.offset >= len(seen))
        assert max(known) < len(seen), "an acknowledged record is not to be seen"

    while len(seen) < 200:
        for _ in range(3):
            acknowledged.take(appender.read())
        read_on()
    for words in appender.kill():
        acknowledged.take(words)
    read_on()

    acknowledged.check(seen)


@pytest.mark.parametrize("seed", range(8))
def test_a_directory_that_was_made_to_crash_opens_with_all_that_was_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    crashed = make_crashed_directory(seed, tmp_path / "logs")

    with LogManager([crashed.path]) as manager:
        for name, partition in crashed.partitions.items():
            records = _read_data(manager, name)
            assert records in (
                partition.acknowledged,
                partition.acknowledged + partition.in_flight,
            )


def _read_data(manager: LogManager, partition: TopicPartition) -> list[Record]:
    return [
        record
        for batch in fetch_all(manager.get_log(partition))
        if not batch.header.is_control
        for record in batch.iter_records()
    ]
