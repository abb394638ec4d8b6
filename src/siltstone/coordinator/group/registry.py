"""All groups of this broker, and the log that they are written down in.

What is in memory is what the log says: a change is appended first, and a restart reads it again.
Each partition of `__consumer_offsets` has its own groups, and is read by itself: one that cannot
be leaves the groups of the others alone.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.clock import Clock
from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import ClassicState, Timing
from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_records import Key, Kind, decode_key
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.loading import OtherRecord, load_partition
from siltstone.coordinator.group.members import ClientOrigin, Member, ProtocolOffer
from siltstone.coordinator.group.migration import (
    common_protocol,
    downgraded_members,
    upgraded_members,
)
from siltstone.coordinator.group.offsets import OffsetStore
from siltstone.coordinator.group.records import (
    GROUP_KEY,
    GroupValue,
    StoredMember,
    decode_group_key,
    decode_group_value,
    encode_group_key,
    encode_group_value,
)
from siltstone.coordinator.group.subscription import CONSUMER
from siltstone.coordinator.group.topics import Topics
from siltstone.coordinator.state_topic import KeyedValue, StateTopic, TransactionalProducer
from siltstone.errors import DecodeError, RecordTooLargeError, StorageError, UnknownTopicError

logger = logging.getLogger(__name__)

_CONSUMER_KINDS: Final = frozenset(Kind)

Group = ClassicGroup | ConsumerGroup


class GroupRegistry:
    """Groups by their names, and the offsets of each."""

    def __init__(
        self, topic: StateTopic, clock: Clock, topics: Topics, config: Callable[[], GroupConfig]
    ) -> None:
        self.topic: Final = topic
        self.clock: Final = clock
        self.topics: Final = topics
        self._config: Final = config
        self.groups: Final[dict[str, Group]] = {}
        self._stores: dict[int, OffsetStore] = {}
        self._unread: dict[int, str] = {}

    @property
    def config(self) -> GroupConfig:
        """The settings, as they are now."""
        return self._config()

    # Finding

    def check_served(self, group_id: str) -> None:
        """Raise unless the state of a group of this name is known here."""
        if not self.topic.exists:
            raise GroupError(
                ErrorCode.not_coordinator, "nobody has asked for a coordinator: find it first"
            )
        partition = self.topic.partition_for(group_id)
        if partition in self._unread:
            raise GroupError(
                ErrorCode.coordinator_not_available,
                f"{self.topic.topic}-{partition} cannot be read: {self._unread[partition]}",
            )

    def offsets(self, group_id: str) -> OffsetStore:
        """Return the offsets of the partition that a group belongs to."""
        return self.offsets_of(self.topic.partition_for(group_id))

    def offsets_of(self, partition: int) -> OffsetStore:
        """Return the offsets of a partition."""
        return self._stores.setdefault(partition, OffsetStore())

    def find(self, group_id: str) -> Group | None:
        """Return a group, or None."""
        return self.groups.get(group_id)

    def create_classic(self, group_id: str) -> ClassicGroup:
        """Make a group without members; nothing is written before something happens in it."""
        group = self._make_classic(group_id)
        self.groups[group_id] = group
        return group

    def _make_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._timing, self.clock, make_member_id, self.persist)

    def create_consumer(self, group_id: str) -> ConsumerGroup:
        """Make a group of the consumer protocol, without members."""
        group = self._make_consumer(group_id)
        self.groups[group_id] = group
        return group

    def _make_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            self._config,
            self.topics,
            self.clock.now_ms,
            lambda records: self.write(group_id, records),
        )

    def upgrade(self, group: ClassicGroup, now_ms: int) -> ConsumerGroup:
        """Make a classic group one of the consumer protocol, with all its members."""
        group_id = group.group_id
        try:
            members = upgraded_members(group, self.topics)
        except DecodeError as error:
            raise GroupError(
                ErrorCode.group_id_not_found, f"Group {group_id} cannot be upgraded: {error}"
            ) from error
        upgraded = self._make_consumer(group_id)
        records = upgraded.adopt(members, group.generation)
        self.write(group_id, [*group.deletion_records(), *records])
        self.groups[group_id] = upgraded
        upgraded.resume(now_ms)
        group.abandon(ErrorCode.rebalance_in_progress)
        logger.info("group %s has been upgraded to the consumer protocol", group_id)
        return upgraded

    def downgrade(self, group: ConsumerGroup, now_ms: int) -> ClassicGroup:
        """Make a group whose members are all classic a classic group."""
        group_id = group.group_id
        protocol = common_protocol(group)
        downgraded = self._make_classic(group_id)
        members = downgraded_members(group, self.topics, protocol)
        downgraded.restore(
            generation=group.epoch,
            protocol_type=CONSUMER,
            protocol=protocol,
            leader=members[0].member_id,
            state_since_ms=self.clock.now_ms(),
            members=members,
        )
        self.write(group_id, [*group.deletion_records(), self._group_record(downgraded)])
        self.groups[group_id] = downgraded
        downgraded.resume(now_ms)
        downgraded.rebalance(now_ms)
        logger.info("group %s has been downgraded to the classic protocol", group_id)
        return downgraded

    def delete(self, group: Group) -> None:
        """Forget a group; its offsets stay."""
        self.write(group.group_id, group.deletion_records())
        del self.groups[group.group_id]

    def _timing(self) -> Timing:
        config = self.config
        return Timing(config.group_initial_rebalance_delay_ms, config.group_max_size)

    # Writing

    def write(
        self,
        group_id: str,
        records: Sequence[KeyedValue],
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Append records of one group; raise GroupError if the log does not take them."""
        try:
            self.topic.append(self.topic.partition_for(group_id), records, producer)
        except (StorageError, UnknownTopicError) as error:
            raise GroupError(ErrorCode.coordinator_not_available, str(error)) from error
        except RecordTooLargeError as error:
            raise GroupError(ErrorCode.unknown_server_error, str(error)) from error

    def persist(self, group: ClassicState) -> None:
        """Write a classic group down as it is."""
        self.write(group.group_id, [self._group_record(group)])

    def _group_record(self, group: ClassicState) -> KeyedValue:
        value = GroupValue(
            group.protocol_type or "",
            group.generation,
            group.protocol,
            group.leader,
            group.state_since_ms,
            tuple(
                StoredMember(
                    m.member_id,
                    m.instance_id,
                    m.origin.client_id,
                    m.origin.host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.metadata_for(group.protocol),
                    m.assignment,
                )
                for m in group.members.values()
            ),
        )
        return KeyedValue(encode_group_key(group.group_id), encode_group_value(value))

    # After a restart

    def load(self) -> None:
        """Read everything that is written down."""
        if not self.topic.exists:
            return
        began = time.monotonic()
        for partition in range(self.topic.partition_count):
            try:
                self._load_partition(partition)
            except (StorageError, UnknownTopicError, DecodeError) as error:
                logger.error("%s-%d cannot be read: %s", self.topic.topic, partition, error)
                self._unread[partition] = str(error)
                self._drop(partition)
        logger.info(
            "%d groups with %d offsets read in %.1f s",
            len(self.groups),
            sum(len(store) for store in self._stores.values()),
            time.monotonic() - began,
        )

    def _load_partition(self, partition: int) -> None:
        store = self.offsets_of(partition)
        buffer_bytes = self.topic.config.load_buffer_bytes
        for record in load_partition(self.topic.log(partition), store, buffer_bytes):
            self._take(record)
        for group_id in store.groups():
            if group_id not in self.groups:
                self.create_classic(group_id)

    def _drop(self, partition: int) -> None:
        """Forget what a partition has told so far: what it has not told may say otherwise."""
        self._stores.pop(partition, None)
        for group_id in list(self.groups):
            if self.topic.partition_for(group_id) == partition:
                del self.groups[group_id]

    def _take(self, record: OtherRecord) -> None:
        if record.kind == GROUP_KEY:
            self._take_classic(decode_group_key(record.key), record.value)
        elif record.kind in _CONSUMER_KINDS:
            self._take_consumer(decode_key(record.key), record.value)
        else:
            # Of another kind of group, or from a Kafka that is yet to come.
            logger.debug("a record of kind %d is left alone", record.kind)

    def _take_classic(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._restore(self.create_classic(group_id), decode_group_value(value))
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            del self.groups[group_id]

    def _take_consumer(self, key: Key, value: bytes | None) -> None:
        group = self.groups.get(key.group_id)
        if value is None and not isinstance(group, ConsumerGroup):
            return
        if not isinstance(group, ConsumerGroup):
            group = self.create_consumer(key.group_id)
        group.take(key, value)
        if key.kind is Kind.GROUP and value is None:
            del self.groups[key.group_id]

    def _restore(self, group: ClassicGroup, value: GroupValue) -> None:
        group.restore(
            generation=value.generation,
            protocol_type=value.protocol_type,
            protocol=value.protocol,
            leader=value.leader,
            state_since_ms=value.state_since_ms,
            members=(_member(m, value.protocol) for m in value.members),
        )

    def clear(self) -> None:
        """Forget everything: the topic that it was written down in is gone."""
        for group in self.groups.values():
            group.abandon(ErrorCode.not_coordinator)
        self.groups.clear()
        self._stores.clear()
        self._unread.clear()

    def resume(self, now_ms: int) -> Iterable[Group]:
        """Give all members time to be heard of, and return the groups that have some."""
        for group in self.groups.values():
            group.resume(now_ms)
        return [group for group in self.groups.values() if group.members]


def make_member_id(prefix: str) -> str:
    """Return a name that no other member has."""
    return f"{prefix}-{uuid.uuid4()}"


def _member(stored: StoredMember, protocol: str | None) -> Member:
    return Member(
        stored.member_id,
        stored.instance_id,
        ClientOrigin(stored.client_id, stored.client_host),
        stored.rebalance_timeout_ms,
        stored.session_timeout_ms,
        (ProtocolOffer(protocol or "", stored.subscription),),
        stored.assignment,
    )
