"""10,000 lookups and scans, and a follower, while a producer appends and passes commit."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import siltstone
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.warm_up import warm_up
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.make_log import HastyDisk

KEYS: Final = 50
LOOKUPS: Final = 9_800
SCANS: Final = 200
PARTITION: Final = TopicPartition("orders", 0)


class Writer:
    """Appends rising numbers to all keys, and knows which are acknowledged.

    Every eleventh number is a tombstone, so that keys come and go.
    """

    def __init__(self, manager: LogManager) -> None:
        self.log = manager.get_log(PARTITION)
        self.acknowledged = [0] * KEYS
        self.begun = [0] * KEYS

    def append(self, number: int) -> None:
        keys = [(number * 7 + step) % KEYS for step in range(3)]
        for key in keys:
            self.begun[key] = number
        records = [
            Record(at, number, b"key-%d" % key, b"%d" % number if number % 11 else None)
            for at, key in enumerate(dict.fromkeys(keys))
        ]
        self.log.append(build_batch(records))
        self.log.update_high_watermark(self.log.log_end_offset)
        for key in keys:
            self.acknowledged[key] = number


def run_all(actions: list[Callable[[], None]]) -> None:
    """Run each in a thread of its own; raise what the first of them raised."""
    errors: list[BaseException] = []

    def guard(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.slow
def test_no_read_is_wrong_while_passes_commit_and_a_producer_writes(tmp_path: Path) -> None:
    warm_up()  # Or the first pass may wait for the compiler until all reads are over.
    fs, clock = HastyDisk(), SystemClock()
    manager = LogManager([tmp_path / "data"], fs=fs, clock=clock)
    config = {"cleanup.policy": "compact", "segment.bytes": "20000", "file.delete.delay.ms": "0"}
    manager.create_topic("orders", 1, config)
    writer = Writer(manager)
    done = threading.Event()
    passes = []
    reads = {"lookups": 0, "scans": 0}

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            writer.append(number)
            done.wait(0.002)

    def clean() -> None:
        checkpoints = CleanerCheckpoints(fs, tmp_path / "data")
        runner = PassRunner(fs, clock, LocalEngine(), checkpoints)
        while not done.is_set():
            now_ms = clock.now_ms()
            log = writer.log
            log.roll()
            assessment, _ = assess_log(log, checkpoints.find(PARTITION), now_ms)
            if assessment.first_uncleanable_offset > log.segments.first.base_offset:
                passes.append(runner.run(log, plan_pass(log, assessment, now_ms)))
            log.delete_due_files()
            done.wait(0.1)

    def check(key: int, low: int, value: bytes | None, high: int) -> None:
        if value is not None:
            assert low <= int(value) <= high, (key, low, value, high)
        else:
            assert any(n % 11 == 0 for n in range(low, high + 1)) or low == 0, (key, low, high)

    table = siltstone.open(tmp_path / "data").table("orders")

    def look_up() -> None:
        for number in range(LOOKUPS // 2):
            key = number % KEYS
            low = writer.acknowledged[key]
            value = table.get(f"key-{key}")
            check(key, low, value, writer.begun[key])
            reads["lookups"] += 1

    def scan() -> None:
        for _ in range(SCANS):
            lows = list(writer.acknowledged)
            state: dict[bytes, bytes] = {}
            table.restore_into(state)
            highs = list(writer.begun)
            for key in range(KEYS):
                check(key, lows[key], state.get(b"key-%d" % key), highs[key])
            reads["scans"] += 1

    followed: dict[bytes, bytes] = {}
    positions: dict[int, int] = {}

    def catch_up() -> None:
        for change in table.follow(positions, waits=False):
            positions[change.partition] = change.offset + 1
            if change.value is None:
                followed.pop(change.key, None)
            else:
                followed[change.key] = change.value

    def follow() -> None:
        while not done.wait(0.02):
            catch_up()

    def read() -> None:
        try:
            run_all([look_up, look_up, scan])
        finally:
            done.set()

    run_all([write, clean, read, follow])
    catch_up()
    last: dict[bytes, bytes] = {}
    table.restore_into(last)

    assert reads["lookups"] == LOOKUPS
    assert reads["scans"] == SCANS
    assert len(passes) > 5
    assert followed == last  # with all that passes took away before it was read
    manager.close()
