"""Which topics there are: those in the store, and those that only directories speak of.

A directory that a stock Kafka wrote has no store. Its topics are found by the names of their
partition directories, with the id that lies in them and without settings of their own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from siltstone.errors import CorruptCheckpointError
from siltstone.ids import TopicId, TopicPartition
from siltstone.log.log_directory import DirectoryState
from siltstone.log.topic_store import TopicMetadata, TopicStore


def merge_topics(
    store: TopicStore, states: Iterable[tuple[Path, DirectoryState]]
) -> dict[str, TopicMetadata]:
    """Return every topic by name; raise CorruptCheckpointError if ids contradict each other."""
    partitions: dict[str, set[int]] = defaultdict(set)
    found_ids: dict[str, TopicId] = {}
    stored = {metadata.topic: metadata for metadata in store.list()}
    places: dict[TopicPartition, Path] = {}
    for path, state in states:
        for partition in state.partitions:
            if partition in places:
                other = places[partition] / str(partition)
                raise CorruptCheckpointError(
                    path / str(partition), f"is the same partition as {other}: delete one of them"
                )
            places[partition] = path
            partitions[partition.topic].add(partition.partition)
            _check_id(path, partition, state.topic_ids, found_ids, stored)

    topics = dict(stored)
    for topic, numbers in partitions.items():
        count = max(numbers) + 1
        known = stored.get(topic)
        if known is None:
            topic_id = found_ids.get(topic, TopicId.random())
            topics[topic] = TopicMetadata(topic, topic_id, count)
        elif known.partition_count < count:
            topics[topic] = TopicMetadata(topic, known.topic_id, count, known.config)
    return dict(sorted(topics.items()))


def _check_id(
    path: Path,
    partition: TopicPartition,
    topic_ids: Mapping[TopicPartition, TopicId],
    found_ids: dict[str, TopicId],
    stored: Mapping[str, TopicMetadata],
) -> None:
    topic_id = topic_ids.get(partition)
    if topic_id is None:
        return
    expected = found_ids.setdefault(partition.topic, topic_id)
    if partition.topic in stored:
        expected = stored[partition.topic].topic_id
    if topic_id != expected:
        raise CorruptCheckpointError(
            path / str(partition), f"topic id is {topic_id}, expected {expected}"
        )
