"""Offsets: committed, asked for, deleted, and forgotten when nobody has used them for long."""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.consumer_records import Place
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.records import (
    OffsetKey,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from siltstone.coordinator.group.registry import Group, GroupRegistry
from siltstone.coordinator.state_topic import KeyedValue, TransactionalProducer
from siltstone.errors import DecodeError

logger = logging.getLogger(__name__)

_MINUTE_MS: Final = 60_000
_FIRST_WITH_EPOCHS: Final = 9  # of OffsetCommit: from here on clients know the consumer protocol
# What one batch of tombstones takes; far below the largest batch that a log takes.
_TOMBSTONES_PER_BATCH: Final = 1000
# What is looked at before others are heard: a few milliseconds.
_OFFSETS_AT_ONCE: Final = 1000


class Committer(NamedTuple):
    """Who commits: a member in a generation, or nobody in particular."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int  # or the epoch of a member of the consumer protocol


class NewOffset(NamedTuple):
    """An offset as a client commits it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: uuid.UUID | None


class OffsetCoordinator:
    """Serves the offsets of all groups."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry: Final = registry

    # Committing

    def commit(
        self,
        committer: Committer,
        offsets: Sequence[NewOffset],
        *,
        version: int,
        retention_ms: int | None = None,
    ) -> list[ErrorCode]:
        """Write offsets down, and return a code for each; raise GroupError if none is taken."""
        group = self._find_or_create(committer, version)
        self._check(group, committer, offsets, is_transactional=False)
        codes, records = self._encode(committer.group_id, offsets, retention_ms)
        if records:
            self._registry.write(committer.group_id, records)
            store = self._registry.offsets(committer.group_id)
            for record in records:
                store.put(committer.group_id, record.key, record.value)
        return codes

    def commit_in_transaction(
        self, committer: Committer, offsets: Sequence[NewOffset], producer: TransactionalProducer
    ) -> list[ErrorCode]:
        """Write offsets down that count once a transaction commits."""
        group = self._find_or_create(committer, version=0)
        self._check(group, committer, offsets, is_transactional=True)
        codes, records = self._encode(committer.group_id, offsets, None)
        if records:
            self._registry.write(committer.group_id, records, producer)
            store = self._registry.offsets(committer.group_id)
            for record in records:
                assert record.value is not None
                store.put_pending(
                    committer.group_id, producer.producer_id, record.key, record.value
                )
        return codes

    def _check(
        self,
        group: Group,
        committer: Committer,
        offsets: Sequence[NewOffset],
        *,
        is_transactional: bool,
    ) -> None:
        group.check_commit(
            committer.member_id,
            committer.instance_id,
            committer.generation,
            (self._place(one) for one in offsets),
            is_transactional=is_transactional,
        )

    def _place(self, one: NewOffset) -> Place:
        if one.topic_id is not None:
            return one.topic_id, one.partition
        info = self._registry.topics.find(one.topic)
        return uuid.UUID(int=0) if info is None else info.topic_id, one.partition

    def on_transaction_end(self, partition: int, producer_id: int, commit: bool) -> None:
        """Learn that the marker of a transaction stands in a partition of `__consumer_offsets`."""
        store = self._registry.offsets_of(partition)
        for group_id in store.groups_of_producer(producer_id):
            store.end_transaction(group_id, producer_id, is_committed=commit)

    def _find_or_create(self, committer: Committer, version: int) -> Group:
        group_id = committer.group_id
        self._registry.check_served(group_id)
        group = self._registry.find(group_id)
        if group is not None:
            return group
        if committer.generation < 0:
            # Somebody who uses the group only to remember offsets by its name.
            return self._registry.create_classic(group_id)
        raise GroupError(
            ErrorCode.group_id_not_found
            if version >= _FIRST_WITH_EPOCHS
            else ErrorCode.illegal_generation,
            f"group {group_id} not found.",
        )

    def _encode(
        self, group_id: str, offsets: Sequence[NewOffset], retention_ms: int | None
    ) -> tuple[list[ErrorCode], list[KeyedValue]]:
        now_ms = self._registry.clock.now_ms()
        expire_time_ms = -1 if retention_ms is None else now_ms + retention_ms
        limit_bytes = self._registry.config.offset_metadata_max_bytes
        codes, records = [], []
        for one in offsets:
            if len(one.metadata.encode()) > limit_bytes:
                codes.append(ErrorCode.offset_metadata_too_large)
                continue
            codes.append(ErrorCode.none)
            key = OffsetKey(group_id, one.topic, one.partition)
            value = OffsetValue(
                one.offset, one.leader_epoch, one.metadata, now_ms, expire_time_ms, one.topic_id
            )
            records.append(KeyedValue(encode_offset_key(key), encode_offset_value(value)))
        return codes, records

    # Asking

    def find(self, key: OffsetKey) -> OffsetValue | None:
        """Return how far a group has come in a partition, or None."""
        return self._registry.offsets(key.group_id).find(key)

    def is_unstable(self, key: OffsetKey) -> bool:
        """Say whether a transaction that is not decided yet may change an offset."""
        return self._registry.offsets(key.group_id).is_unstable(key)

    def partitions(self, group_id: str) -> dict[str, list[int]]:
        """Return the partitions that a group has offsets for, by topic.

        As in Kafka, those are not among them that a transaction is about to give it its first for.
        """
        found: dict[str, list[int]] = {}
        for key in sorted(self._registry.offsets(group_id).keys(group_id)):
            found.setdefault(key.topic, []).append(key.partition)
        return found

    # Deleting

    def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Sequence[int]]
    ) -> dict[str, list[ErrorCode]]:
        """Delete some offsets of a group, and return a code for each."""
        self._registry.check_served(group_id)
        group = self._registry.find(group_id)
        if group is None:
            raise GroupError(ErrorCode.group_id_not_found, f"group {group_id} not found.")
        subscribed = _protected_topics(group)
        codes: dict[str, list[ErrorCode]] = {}
        doomed = []
        store = self._registry.offsets(group_id)
        for topic, numbers in partitions.items():
            info = self._registry.topics.find(topic)
            for number in numbers:
                code = ErrorCode.none
                if info is None or not 0 <= number < info.partition_count:
                    code = ErrorCode.unknown_topic_or_partition
                elif topic in subscribed:
                    code = ErrorCode.group_subscribed_to_topic
                elif store.find(key := OffsetKey(group_id, topic, number)) or store.is_unstable(
                    key
                ):
                    doomed.append(key)
                codes.setdefault(topic, []).append(code)
        self._delete(group_id, doomed)
        return codes

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        self._registry.check_served(group_id)
        group = self._registry.find(group_id)
        if group is None:
            raise GroupError(ErrorCode.group_id_not_found, f"group {group_id} not found.")
        if not group.is_empty:
            raise GroupError(ErrorCode.non_empty_group, f"group {group_id} has members")
        self._delete(group_id, self._registry.offsets(group_id).all_keys(group_id))
        self._forget(group)

    def on_topic_deleted(self, topic: str) -> None:
        """Delete the offsets of a topic that is gone; all state, if it is the one of groups."""
        if topic == self._registry.topic.topic:
            self._registry.clear()
        for group_id in list(self._registry.groups):
            store = self._registry.offsets(group_id)
            try:
                self._delete(group_id, store.keys_of_topic(group_id, topic))
            except GroupError as error:
                # They expire, or are deleted with their group.
                logger.error("offsets of %s in group %s stay: %s", topic, group_id, error)

    def _delete(self, group_id: str, keys: Sequence[OffsetKey]) -> None:
        store = self._registry.offsets(group_id)
        for first in range(0, len(keys), _TOMBSTONES_PER_BATCH):
            part = keys[first : first + _TOMBSTONES_PER_BATCH]
            records = [KeyedValue(encode_offset_key(key), None) for key in part]
            self._registry.write(group_id, records)
            for record in records:
                store.put(group_id, record.key, None)

    def _forget(self, group: Group) -> None:
        group_id = group.group_id
        self._registry.write(group_id, group.deletion_records())
        del self._registry.groups[group_id]

    # Time

    async def expire(self) -> None:
        """Delete the offsets that nobody has used for `offsets.retention.minutes`.

        There may be millions: others are heard in between.
        """
        seen_count = 0
        for group_id, group in list(self._registry.groups.items()):
            if seen_count >= _OFFSETS_AT_ONCE:
                seen_count = 0
                await asyncio.sleep(0)
            if self._registry.find(group_id) is not group:
                continue
            seen_count += 1 + self._registry.offsets(group_id).count(group_id)
            try:
                self._expire(group)
            except (GroupError, DecodeError) as error:
                logger.error("offsets of group %s cannot expire: %s", group_id, error)

    def _expire(self, group: Group) -> None:
        now_ms = self._registry.clock.now_ms()
        retention_ms = self._registry.config.offsets_retention_minutes * _MINUTE_MS
        group_id = group.group_id
        store = self._registry.offsets(group_id)
        if group.expiry_base_ms(0) is None:
            return  # Whatever the time of a commit is.
        used = _protected_topics(group)
        pending = store.pending_keys(group_id)
        doomed = []
        for key, value in list(store.items(group_id)):
            if key.topic in used or key in pending:
                continue
            if value.expire_time_ms >= 0:
                is_over = now_ms >= value.expire_time_ms
            else:
                since_ms = group.expiry_base_ms(value.commit_time_ms)
                is_over = since_ms is not None and now_ms - since_ms >= retention_ms
            if is_over:
                doomed.append(key)
        self._delete(group_id, doomed)
        if group.is_empty and not store.has_any(group_id):
            self._forget(group)


def _protected_topics(group: Group) -> frozenset[str]:
    """Return the topics whose offsets members need; raise if that cannot be known."""
    if group.is_empty:
        return frozenset()
    topics = group.subscribed_topics()
    if topics is None:
        raise GroupError(
            ErrorCode.non_empty_group, f"group {group.group_id} has members of an unknown kind"
        )
    return topics
