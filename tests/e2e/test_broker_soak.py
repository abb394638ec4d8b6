"""A broker under load that is killed again and again, with compaction on.

`make soak` runs it for ten minutes with 500 connections and 2,000 partitions. By default it is
short; SILTSTONE_SOAK_SECONDS, SILTSTONE_SOAK_CONNECTIONS and SILTSTONE_SOAK_PARTITIONS say
otherwise.
"""

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from tests.e2e.test_broker_life import create
from tests.support.load import (
    KEY_COUNT,
    Administrator,
    Channel,
    Client,
    Reader,
    Writer,
    numbered_records,
    repeat,
)
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker

SECONDS = int(os.environ.get("SILTSTONE_SOAK_SECONDS", "15"))
CONNECTIONS = int(os.environ.get("SILTSTONE_SOAK_CONNECTIONS", "60"))
PARTITIONS = int(os.environ.get("SILTSTONE_SOAK_PARTITIONS", "100"))
KILL_SECONDS = 30 if SECONDS > 60 else 5
SEGMENT_BYTES = 20_000 if SECONDS > 60 else 3_000
PARTITIONS_PER_TOPIC = 50
SETTINGS = {
    "log.flush.interval.messages": "1",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.threads": "8",
    "log.segment.delete.delay.ms": "1000",
    "log.index.size.max.bytes": "100000",
}


class Sample(NamedTuple):
    """What a broker holds shortly before it is killed."""

    resident_bytes: int
    has_cleaned: bool
    sockets: int
    files: int
    stray_files: int  # that are deleted, or open twice
    segments: int  # on disk, as every one has a file open


def kill(broker: ServedBroker) -> Sample:
    """Kill a broker, and tell what it held."""
    handles, resident_bytes = broker.open_files(), broker.resident_bytes()
    has_cleaned = "Log cleaner cleaned log" in broker.log()
    assert "a bug" not in broker.log()
    broker.kill()
    files = [handle for handle in handles if handle.startswith(str(broker.directory))]
    strays = sum("deleted" in file for file in files) + len(files) - len(set(files))
    segments = sum(1 for _ in broker.directory.glob("*/*.log"))
    sockets = sum(handle.startswith("socket:") for handle in handles)
    return Sample(resident_bytes, has_cleaned, sockets, len(files), strays, segments)


def test_nothing_acknowledged_is_lost_or_doubled_under_load_and_kills(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "logs", SETTINGS) as broker:
        broker.start()
        plain, compacted = make_topics(broker)

        writers, samples = asyncio.run(run_load(broker, plain, compacted))

        assert broker.stop() == 0
    counts = {partition: count for writer in writers for partition, count in writer.counts.items()}
    assert all(writer.channel.losses for writer in writers)
    check_plain(tmp_path / "logs", {partition: counts[partition] for partition in plain})
    check_compacted(tmp_path / "logs", {partition: counts[partition] for partition in compacted})
    check_flat(samples)


def make_topics(
    broker: ServedBroker,
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Make topics of both policies, and return their partitions."""
    found: dict[str, list[TopicPartition]] = {"plain": [], "compacted": []}
    with RawClient(broker.port) as client:
        for number in range(PARTITIONS // PARTITIONS_PER_TOPIC):
            kind = "plain" if number % 2 else "compacted"
            topic, config = f"{kind}-{number}", {}
            if kind == "compacted":
                config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.3"}
                config |= {"segment_bytes": str(SEGMENT_BYTES)}
            assert create(client, topic, PARTITIONS_PER_TOPIC, **config) == 0
            found[kind] += [TopicPartition(topic, p) for p in range(PARTITIONS_PER_TOPIC)]
    return found["plain"], found["compacted"]


async def run_load(
    broker: ServedBroker, plain: Sequence[TopicPartition], compacted: Sequence[TopicPartition]
) -> tuple[list[Writer], list[Sample]]:
    """Run all clients, and kill the broker under them."""
    is_over = False
    chance = random.Random(6)
    writers = [
        Writer(Channel(broker.port), own, random.Random(chance.random()))
        for own in dealt([*plain, *compacted], CONNECTIONS * 6 // 10)
    ]
    reader_count = CONNECTIONS * 3 // 20  # of each policy
    readers = [
        Reader(Channel(broker.port), own, has_gaps=own[0] in compacted)
        for some in (plain, compacted)
        for own in dealt(chance.sample(some, min(len(some), 3 * reader_count)), reader_count)
    ]
    others = CONNECTIONS - len(writers) - len(readers)
    administrators = [Administrator(Channel(broker.port), f"churn-{n}") for n in range(others)]
    clients: list[Client] = [*writers, *readers, *administrators]
    tasks = [asyncio.create_task(repeat(client, lambda: is_over)) for client in clients]
    samples: list[Sample] = []
    for _ in range(SECONDS // KILL_SECONDS):
        finished, _ = await asyncio.wait(
            tasks, timeout=KILL_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in finished:
            task.result()  # Nobody leaves before the end but by a failure.
        if not samples:
            await wait_for_a_pass(broker)
        samples.append(kill(broker))
        await asyncio.to_thread(broker.start)
    is_over = True
    await asyncio.gather(*tasks)
    return writers, samples


async def wait_for_a_pass(broker: ServedBroker) -> None:
    """Let the first life be as long as Spark takes to start: compaction is part of the load."""
    async with asyncio.timeout(300):
        while "Log cleaner cleaned log" not in broker.log():
            await asyncio.sleep(0.2)


def dealt(partitions: Sequence[TopicPartition], count: int) -> Iterator[Sequence[TopicPartition]]:
    """Deal partitions out to so many, each with some."""
    return (partitions[number::count] for number in range(count) if partitions[number::count])


def check_plain(directory: Path, counts: dict[TopicPartition, int]) -> None:
    """Find every record, once."""
    reader = LogReader([directory])
    for partition, count in counts.items():
        batches = fetch_all(reader.get_log(partition), 1 << 20)
        offsets = [record.offset for batch in batches for record in numbered_records(batch)]
        assert offsets == list(range(count)), partition


def check_compacted(directory: Path, counts: dict[TopicPartition, int]) -> None:
    """Find the last record of every key, and what else there is in its place."""
    reader = LogReader([directory])
    cleaned = 0
    for partition, count in counts.items():
        batches = fetch_all(reader.get_log(partition), 1 << 20)
        offsets = [record.offset for batch in batches for record in numbered_records(batch)]
        assert offsets == sorted(set(offsets)), partition
        last = set(range(max(count - KEY_COUNT, 0), count))
        assert last <= set(offsets), partition
        assert not offsets or offsets[-1] == count - 1, partition
        cleaned += len(offsets) < count
    assert cleaned, "no pass was committed"


def check_flat(samples: Sequence[Sample]) -> None:
    """Compare the first brokers with the last: they had more to recover, but not more to hold."""
    last = samples[-1]
    # With one that has come as far, if it can be: the first pass takes the most memory.
    others = [*samples[1:-1], samples[0]]
    alike = (sample for sample in others if sample.has_cleaned == last.has_cleaned)
    first = next(alike, samples[1])
    assert last.resident_bytes < 1.2 * first.resident_bytes, samples
    for sample in samples:
        assert sample.sockets <= CONNECTIONS + 10, samples
        assert sample.files <= 3 * sample.segments + 100, samples
        assert sample.stray_files <= 100, samples
