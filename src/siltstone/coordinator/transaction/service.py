"""The coordinator of transactions: states in memory and in `__transaction_state`, and markers.

Every call runs from its first line to its last on the event loop: whoever ends a transaction has
its markers in all partitions, and it is complete, before anybody else is heard. Only a disk that
refuses leaves one prepared; it is tried again until the disk, or the next start, lets it end.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.clock import Clock
from siltstone.coordinator.state_topic import KeyedValue, StateTopic
from siltstone.coordinator.transaction import state
from siltstone.coordinator.transaction.config import TransactionConfig
from siltstone.coordinator.transaction.errors import TransactionError
from siltstone.coordinator.transaction.markers import Ending, MarkerWriter
from siltstone.coordinator.transaction.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from siltstone.coordinator.transaction.state import (
    EPOCH_RAISING_VERSION,
    PREPARED,
    Producer,
    Status,
    Transaction,
)
from siltstone.errors import (
    CoordinatorFencedError,
    DecodeError,
    InvalidProducerEpochError,
    RecordTooLargeError,
    StorageError,
    UnknownTopicError,
)
from siltstone.ids import TopicPartition
from siltstone.records.layout import NO_PRODUCER_ID

logger = logging.getLogger(__name__)

# What this coordinator speaks where it ends a transaction by itself.
_OWN_VERSION: Final = EPOCH_RAISING_VERSION


class Initialization(NamedTuple):
    """What a producer asks for when it takes over a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None  # who it was before, if it goes on after an error


class TransactionCoordinator:
    """All transactional ids of this broker."""

    def __init__(
        self,
        topic: StateTopic,
        markers: MarkerWriter,
        clock: Clock,
        take_producer_id: Callable[[], int],
        config: Callable[[], TransactionConfig],
    ) -> None:
        self.topic: Final = topic
        self._markers: Final = markers
        self._clock: Final = clock
        self._take_producer_id: Final = take_producer_id
        self._config: Final = config
        self._transactions: dict[str, Transaction] = {}
        self._unmarked: dict[str, frozenset[TopicPartition]] = {}
        self._unloaded: set[int] = set()

    # Life

    def load(self) -> None:
        """Learn what is in the topic, and finish what was decided before the broker ended."""
        if not self.topic.exists:
            return
        for partition in range(self.topic.partition_count):
            try:
                self._transactions |= self._read(partition)
            except (StorageError, UnknownTopicError, DecodeError) as error:
                logger.error("transactions of partition %d are not served: %s", partition, error)
                self._unloaded.add(partition)
        if self._transactions:
            logger.info("%d transactional ids loaded", len(self._transactions))
        self.finish_prepared()

    def _read(self, partition: int) -> dict[str, Transaction]:
        """Return the states of a partition; of one that cannot be read whole none is to be used."""
        found: dict[str, Transaction] = {}
        for batch in self.topic.replay(partition):
            if batch.header.is_control:
                continue
            for record in batch.iter_records():
                transactional_id = None if record.key is None else decode_key(record.key)
                if transactional_id is None:
                    continue
                if record.value is None:
                    found.pop(transactional_id, None)
                    continue
                try:
                    txn = decode_value(transactional_id, record.value)
                except (DecodeError, ValueError) as error:
                    logger.error("state of transactional id %s: %s", transactional_id, error)
                    continue
                found[transactional_id] = txn
        return found

    def finish_prepared(self) -> None:
        """Complete what is prepared: after a start, and once a disk is there again."""
        for txn in [txn for txn in self._transactions.values() if txn.status in PREPARED]:
            with _left_for_later(txn):
                self._finish(txn)

    def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for too long, and fence their producers."""
        now_ms = self._clock.now_ms()
        for txn in [txn for txn in self._transactions.values() if txn.is_timed_out(now_ms)]:
            logger.info("%s: aborted after %d ms", txn.transactional_id, txn.timeout_ms)
            with _left_for_later(txn):
                self._end(txn, commit=False, client_version=_OWN_VERSION)

    def remove_expired(self) -> int:
        """Forget the ids that nobody has used for too long, and return how many."""
        now_ms = self._clock.now_ms()
        expiration_ms = self._config().transactional_id_expiration_ms
        expired = [
            txn for txn in self._transactions.values() if txn.is_expired(now_ms, expiration_ms)
        ]
        known_count = len(self._transactions)
        for txn in expired:
            name = txn.transactional_id
            with _left_for_later(txn):
                tombstone = KeyedValue(encode_key(name), None)
                self.topic.append(self.topic.partition_for(name), [tombstone])
                del self._transactions[name]
        return known_count - len(self._transactions)

    def on_topic_deleted(self, topic: str) -> None:
        """Forget everything if it was the topic that it is written down in."""
        if topic == self.topic.topic:
            self._transactions.clear()
            self._unmarked.clear()
            self._unloaded.clear()

    # What is

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the state of an id, or None if it is not known."""
        if not transactional_id:
            raise TransactionError(ErrorCode.invalid_request, "the transactional id is empty")
        if self._unloaded and self.topic.partition_for(transactional_id) in self._unloaded:
            raise TransactionError(
                ErrorCode.coordinator_not_available,
                f"the state of transactional id {transactional_id} cannot be read",
            )
        return self._transactions.get(transactional_id)

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id that a transactional id has, had or is about to have; or -1."""
        return max(
            (
                max(txn.producer_id, txn.previous_producer_id, txn.next_producer_id)
                for txn in self._transactions.values()
            ),
            default=NO_PRODUCER_ID,
        )

    def transactions(self) -> Iterable[Transaction]:
        """Return all that is known."""
        return self._transactions.values()

    # What producers ask for

    def initialize(self, asked: Initialization) -> Producer:
        """Give a producer its id and epoch, and fence those who had the transactional id before.

        A transaction that they left open is aborted; the producer is to ask again then.
        """
        name, timeout_ms, expected = asked
        max_timeout_ms = self._config().transaction_max_timeout_ms
        if not 0 < timeout_ms <= max_timeout_ms:
            raise TransactionError(
                ErrorCode.invalid_transaction_timeout,
                f"a timeout of {timeout_ms} ms: at most {max_timeout_ms} is allowed "
                "(transaction.max.timeout.ms)",
            )
        now_ms = self._clock.now_ms()
        txn = self.find(name)
        if txn is None:
            txn = state.new_transaction(name, self._take_producer_id(), timeout_ms, now_ms)
        state.check_may_initialize(txn, expected)
        if txn.status is Status.ONGOING:
            self._end(txn, commit=False, client_version=_OWN_VERSION)
            raise state.concurrent(txn)
        new_producer_id = NO_PRODUCER_ID
        if state.needs_new_producer_id(txn, expected):
            new_producer_id = self._take_producer_id()
        return self._put(
            state.initialize(txn, expected, timeout_ms, now_ms, new_producer_id)
        ).producer

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: AbstractSet[TopicPartition],
        client_version: int,
    ) -> None:
        """Let a producer write to partitions in its transaction, which begins with the first."""
        txn = self._get(transactional_id, producer)
        after = state.add_partitions(
            txn, producer, partitions, client_version, self._clock.now_ms()
        )
        if after is not txn:
            self._put(after)

    def check_partition(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> None:
        """Raise unless a partition is in the producer's transaction, which is open.

        May be called from another thread, by one who holds the lock of the partition's log: the
        marker comes later then, or the decision to write it was there before.
        """
        txn = self._get(transactional_id, producer)
        state.check_producer(txn, producer)
        if partition not in txn.partitions:
            raise TransactionError(
                ErrorCode.transaction_abortable,
                f"{partition} is not in the transaction of {transactional_id}",
            )

    def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> Producer:
        """End a transaction, and return who the producer is from now on."""
        txn = self._get(transactional_id, producer)
        finished = state.find_finished(txn, producer, commit, client_version)
        if finished is not None:
            return finished.producer
        return self._end(txn, commit=commit, client_version=client_version)

    def _get(self, transactional_id: str, producer: Producer) -> Transaction:
        txn = self.find(transactional_id)
        if txn is None:
            raise state.unknown_producer(transactional_id, producer)
        return txn

    # How they end

    def _end(self, txn: Transaction, *, commit: bool, client_version: int) -> Producer:
        next_producer_id = NO_PRODUCER_ID
        if client_version >= EPOCH_RAISING_VERSION and txn.is_exhausted:
            next_producer_id = self._take_producer_id()
        now_ms = self._clock.now_ms()
        prepared = self._put(state.prepare(txn, commit, client_version, now_ms, next_producer_id))
        self._finish(prepared)
        # Even if a marker is still to come: it will, and this is who the producer is then.
        return state.complete(prepared, now_ms).producer

    def _finish(self, txn: Transaction) -> None:
        """Write the markers that are missing; complete the transaction if that was all."""
        name = txn.transactional_id
        ending = Ending(
            txn.producer,
            txn.commits,
            self.topic.coordinator_epoch(self.topic.partition_for(name)),
            txn.client_version,
        )
        refused = frozenset(
            partition
            for partition in sorted(self._unmarked.pop(name, txn.partitions))
            if not self._write_marker(name, partition, ending)
        )
        if refused:
            self._unmarked[name] = refused
            return
        try:
            self._put(state.complete(txn, self._clock.now_ms()))
        except (StorageError, UnknownTopicError) as error:
            logger.error("%s: not complete yet: %s", name, error)
            self._unmarked[name] = refused

    def _write_marker(self, name: str, partition: TopicPartition, ending: Ending) -> bool:
        """Say whether a partition needs no marker any more."""
        try:
            self._markers.write(partition, ending)
        except UnknownTopicError:
            logger.info("%s: %s is deleted, and needs no marker", name, partition)
        except (InvalidProducerEpochError, CoordinatorFencedError) as error:
            # A newer one has written there, so this transaction is not open there any more.
            logger.warning("%s: no marker: %s", name, error)
        except StorageError as error:
            logger.error("%s: no marker in %s yet: %s", name, partition, error)
            return False
        return True

    def _put(self, txn: Transaction) -> Transaction:
        """Write a state down; only then it counts."""
        name = txn.transactional_id
        record = KeyedValue(encode_key(name), encode_value(txn))
        try:
            self.topic.append(self.topic.partition_for(name), [record])
        except RecordTooLargeError as error:
            raise TransactionError(ErrorCode.unknown_server_error, str(error)) from error
        self._transactions[name] = txn
        return txn


@contextlib.contextmanager
def _left_for_later(txn: Transaction) -> Iterator[None]:
    """Leave a transaction as it is if its log refuses: it must not hold up the others."""
    try:
        yield
    except (StorageError, UnknownTopicError, TransactionError) as error:
        logger.error("%s: tried again later: %s", txn.transactional_id, error)
