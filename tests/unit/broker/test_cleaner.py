"""The cleaner beside the broker, with an engine that runs here and now."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from siltstone.broker.cleaner import Cleaner
from siltstone.broker.config import parse_server_config
from siltstone.broker.engine_process import Work
from siltstone.broker.pass_figures import recall_figures
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.progress import PassProgress
from siltstone.errors import EngineError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.log_checks import fetch_all

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.01",
}


class Engine:
    """Runs plans with the kernels; fails those of the partitions that it is told."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.fails: set[TopicPartition] = set()
        self.on_run: Callable[[], None] = lambda: None

    def run_all(
        self, work: Work, on_progress: Callable[[PassProgress], None] | None = None
    ) -> Iterator[PassOutcome]:
        self.works.append(work)
        for plan in work.plans:
            if plan.partition in self.fails:
                yield PassOutcome(plan, error=EngineError("Spark is out"))
            else:
                result = LocalEngine().run(plan)
                self.on_run()
                yield PassOutcome(plan, result)

    def close(self) -> None:
        pass


class House:
    """Logs, a cleaner over them, and its engine."""

    def __init__(self, path: Path, clock: ManualClock, **settings: str) -> None:
        self.clock = clock
        self.manager = LogManager([path], clock=clock)
        self.engine = Engine()
        config = parse_server_config({k.replace("_", "."): v for k, v in settings.items()})
        self.cleaner = Cleaner(
            self.manager, FileSystem(), clock, self.engine, lambda: config.broker
        )

    def fill(self, topic: str, count: int = 20) -> TopicPartition:
        self.manager.create_topic(topic, 1, SETTINGS)
        partition = TopicPartition(topic, 0)
        self.append(partition, count)
        return partition

    def append(self, partition: TopicPartition, count: int) -> None:
        log = self.manager.get_log(partition)
        for number in range(count):
            record = Record(0, self.clock.now_ms(), b"k%d" % (number % 2), b"v%d" % number)
            log.append(build_batch([record]))
        log.update_high_watermark(log.log_end_offset)

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        batches = fetch_all(self.manager.get_log(partition), 100_000)
        return [record.value for batch in batches for record in batch.iter_records()]


@pytest.fixture
def house(tmp_path: Path, clock: ManualClock) -> Iterator[House]:
    made = House(tmp_path / "logs", clock)
    yield made
    made.manager.close()


def test_a_log_that_is_due_is_cleaned_and_then_is_not_due_any_more(house: House) -> None:
    partition = house.fill("t")
    before = house.values(partition)

    assert house.cleaner.clean_due() == 1
    assert house.cleaner.clean_due() == 0

    after = house.values(partition)
    assert len(after) < len(before)
    assert after[-2:] == before[-2:]
    assert list(house.manager.get_log(partition).directory.glob("*.keyindex"))
    assert house.cleaner.figures[partition].pass_count == 1
    figures = house.cleaner.figures[partition]
    assert figures.removed_records.total() == len(before) - len(after)
    # A broker that starts later finds the same beside the log.
    assert recall_figures(FileSystem(), house.manager.get_log(partition)).last == figures.last


def test_a_pass_leaves_the_block_that_operators_search_for(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "siltstone.cleaner")
    house.fill("t")

    house.cleaner.clean_due()

    (block,) = (m for m in caplog.messages if "cleaned log t-0" in m)
    patterns = (
        r"Log cleaner cleaned log t-0 \(dirty section = \[0, \d+\]\)",
        r"\t[\d.]+ MB of log processed in [\d.]+ seconds \([\d.]+ MB/sec\)\.",
        r"\tIndexed [\d.]+ MB in [\d.]+ seconds \([\d.]+ MB/sec, [\d.]+% of total time\)",
        r"\tBuffer utilization: 0\.0%",
        r"\tCleaned [\d.]+ MB in [\d.]+ seconds \([\d.]+ MB/sec, [\d.]+% of total time\)",
        r"\tStart size: [\d.]+ MB \(\d+ messages\)",
        r"\tEnd size: [\d.]+ MB \(\d+ messages\)",
        r"\t[\d.]+% size reduction \([\d.]+% fewer messages\)",
    )
    for pattern, line in zip(patterns, block.split("\n"), strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_log_that_fails_is_named_waits_longer_each_time_and_stops_no_other(
    house: House,
) -> None:
    bad, good = house.fill("bad", count=30), house.fill("good", count=20)
    house.engine.fails.add(bad)

    house.cleaner.clean_due()
    first = house.cleaner.uncleanable[bad]
    cleaned = house.cleaner.clean_due()

    assert first.reason == "Spark is out"
    assert first.retry_ms == house.clock.now_ms() + 30_000
    assert cleaned == 1
    assert good not in house.cleaner.uncleanable

    house.clock.advance_ms(29_999)
    assert house.cleaner.clean_due() == 0
    house.clock.advance_ms(1)
    house.cleaner.clean_due()
    assert house.cleaner.uncleanable[bad].failure_count == 2
    assert house.cleaner.uncleanable[bad].retry_ms == house.clock.now_ms() + 60_000

    house.engine.fails.clear()
    house.clock.advance_ms(60_000)
    assert house.cleaner.clean_due() == 1
    assert house.cleaner.uncleanable == {}


def test_the_filthiest_log_comes_first_and_as_many_as_there_are_threads(
    tmp_path: Path, clock: ManualClock
) -> None:
    house = House(tmp_path / "logs", clock, log_cleaner_threads="2")
    partitions = [house.fill(f"t{number}") for number in range(3)]
    while house.cleaner.clean_due():
        pass
    for count, partition in zip((4, 60, 20), partitions, strict=True):
        house.append(partition, count)
    house.engine.works.clear()

    house.cleaner.clean_due()

    (work,) = house.engine.works
    assert [plan.partition for plan in work.plans] == [partitions[1], partitions[2]]
    house.manager.close()


def test_a_topic_that_is_deleted_while_it_is_cleaned_stays_deleted(house: House) -> None:
    partition = house.fill("t")
    house.engine.on_run = lambda: house.manager.delete_topic("t")

    assert house.cleaner.clean_due() == 0
    house.engine.on_run = lambda: None
    assert house.cleaner.clean_due() == 0

    assert partition not in house.manager.logs
    assert partition not in house.cleaner.uncleanable


def test_records_that_are_appended_while_a_log_is_cleaned_are_kept(house: House) -> None:
    partition = house.fill("t")
    house.engine.on_run = lambda: house.append(partition, 10)

    assert house.cleaner.clean_due() == 1

    assert house.values(partition)[-10:] == [b"v%d" % number for number in range(10)]


def test_the_throttle_is_handed_on(tmp_path: Path, clock: ManualClock) -> None:
    house = House(tmp_path / "logs", clock, log_cleaner_io_max_bytes_per_second="1000000.0")
    house.fill("t")

    house.cleaner.clean_due()

    assert house.engine.works[0].io_bytes_per_second == 1_000_000
    house.manager.close()
