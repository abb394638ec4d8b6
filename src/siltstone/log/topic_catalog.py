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


def find_places(states: Iterable[tuple[Path, DirectoryState]]) -> dict[TopicPartition, Path]:
    """Return the log directory of every partition; raise CorruptCheckpointError if it has two.

    A directory without a log file beside one with some is left over from an attempt to create the
    partition on a disk that refused.
    """
    places: dict[TopicPartition, tuple[Path, bool]] = {}
    for path, state in states:
        for partition in state.partitions:
            is_empty = partition in state.empty
            if partition not in places or places[partition][1]:
                places[partition] = (path, is_empty)
            elif not is_empty:
                other = places[partition][0] / str(partition)
                raise CorruptCheckpointError(
                    path / str(partition), f"is the same partition as {other}: delete one of them"
                )
    return {partition: path for partition, (path, _) in places.items()}


def merge_topics(
    store: TopicStore,
    states: Iterable[tuple[Path, DirectoryState]],
    places: Mapping[TopicPartition, Path],
) -> dict[str, TopicMetadata]:
    """Return every topic by name; raise CorruptCheckpointError if ids contradict each other."""
    partitions: dict[str, set[int]] = defaultdict(set)
    found_ids: dict[str, TopicId] = {}
    stored = {metadata.topic: metadata for metadata in store.list()}
    for path, state in states:
        for partition in state.partitions:
            if places.get(partition) != path:
                continue
            partitions[partition.topic].add(partition.partition)
            _check_id(path, partition, state.topic_ids, found_ids, stored)

    topics = dict(stored)
    for topic, numbers in partitions.items():
        count = max(numbers) + 1
        known = stored.get(topic)
        if known is None:
            topic_id = found_ids.get(topic, TopicId.random())
            topics[topic] = TopicMetadata(topic, topic_id, count, is_stored=False)
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
