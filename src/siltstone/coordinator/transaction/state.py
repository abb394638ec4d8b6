"""One transactional id, and which step may come next. No clock, no files, no network.

A transaction goes Empty -> Ongoing -> Prepare -> Complete -> Ongoing -> ... What is *prepared* is
decided, whatever happens then: its markers are written, again after a crash if need be, and only
when each partition has one it is *complete*. Every step is in the log of the coordinator before
anybody acts upon it, so that what a replay gives is never behind what somebody was told.

Epochs tell a producer from its predecessors. Whoever initialises an id anew gets the next one and
so fences all before; if their transaction is still open it is aborted first. With version 2 of the
protocol every end of a transaction raises the epoch as well: a batch that was late on its way can
never fall into the next transaction of the same producer. Epochs end; then the id goes on with a
new producer id at epoch 0.

A `Transaction` never changes: the functions here check a request against one and return its
successor, or raise TransactionError with the code that Kafka gives.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from siltstone.coordinator.transaction.errors import TransactionError
from siltstone.ids import TopicPartition
from siltstone.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_EPOCH: Final = 2**15 - 1
# The one above it is kept, so that the last producer of an id can be fenced too.
LAST_USED_EPOCH: Final = MAX_EPOCH - 1
NO_TIME: Final = -1
EPOCH_RAISING_VERSION: Final = 2


class Status(IntEnum):
    """Where a transaction is, by the number in the coordinator's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # never stored; clients may ask for it by name
    PREPARE_EPOCH_FENCE = 7  # likewise

    @property
    def title(self) -> str:
        """The name that clients and tools know."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED: Final = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
ENDED: Final = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
STATUS_BY_TITLE: Final = {status.title: status for status in Status}


class Producer(NamedTuple):
    """Who a request says that it comes from."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the coordinator knows of one transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: Status
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # decided on, and in use once this one is complete
    last_epoch: int = NO_PRODUCER_EPOCH  # before this one, if the same producer had it; not stored
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    client_version: int = 0  # of the transaction protocol that the producer speaks

    @property
    def producer(self) -> Producer:
        """Return the producer that may write."""
        return Producer(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no producer may have an epoch after this one."""
        return self.epoch >= LAST_USED_EPOCH

    @property
    def commits(self) -> bool:
        """Whether what is prepared, or complete, is a commit."""
        return self.status in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)

    def numbers_by_topic(self) -> dict[str, list[int]]:
        """Return the partitions of each topic, in order."""
        numbers: dict[str, list[int]] = {}
        for partition in sorted(self.partitions):
            numbers.setdefault(partition.topic, []).append(partition.partition)
        return numbers

    def is_timed_out(self, now_ms: int) -> bool:
        """Say whether it has been open for too long."""
        return self.status is Status.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Say whether the id was silent for so long that it may be forgotten."""
        return self.status in ENDED and self.updated_ms <= now_ms - expiration_ms


def new_transaction(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """Return the state of an id that is not known yet; `initialize` gives it its first epoch."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        status=Status.EMPTY,
        updated_ms=now_ms,
    )


def check_may_initialize(txn: Transaction, expected: Producer | None) -> None:
    """Raise unless a producer may take over an id; `expected` is who it says it is already."""
    check_not_prepared(txn)
    if expected is not None and not (
        txn.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == txn.producer_id
        # It may not have heard of the new producer id that it was given.
        or (expected.producer_id == txn.previous_producer_id and expected.epoch >= LAST_USED_EPOCH)
    ):
        raise _fenced(txn, expected)


def needs_new_producer_id(txn: Transaction, expected: Producer | None) -> bool:
    """Say whether `initialize` has no epoch left to give."""
    return txn.is_exhausted and (expected is None or expected.epoch == txn.epoch)


def initialize(
    txn: Transaction,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """Give a producer an epoch of its own; no transaction of the id may be open any more."""
    fresh = replace(
        txn,
        status=Status.EMPTY,
        previous_producer_id=txn.producer_id,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIME,
        updated_ms=now_ms,
    )
    if new_producer_id != NO_PRODUCER_ID:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else txn.epoch
        return replace(fresh, producer_id=new_producer_id, epoch=0, last_epoch=last_epoch)
    if expected is None:
        return replace(fresh, epoch=txn.epoch + 1, last_epoch=NO_PRODUCER_EPOCH)
    if txn.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return replace(fresh, epoch=txn.epoch + 1, last_epoch=txn.epoch)
    if expected.epoch == txn.last_epoch:
        return fresh  # A retry: it has not heard of the epoch that it has.
    raise _fenced(txn, expected)


def check_producer(txn: Transaction, producer: Producer) -> None:
    """Raise unless a request comes from the producer that may write, and it may write now."""
    if txn.producer_id != producer.producer_id:
        raise unknown_producer(txn.transactional_id, producer)
    if txn.epoch != producer.epoch:
        raise _fenced(txn, producer)
    check_not_prepared(txn)


def check_not_prepared(txn: Transaction) -> None:
    """Raise while the end of a transaction is decided, but not everywhere yet.

    To be asked before who the producer is: it may be told already who it will be then.
    """
    if txn.status in PREPARED:
        raise concurrent(txn)


def add_partitions(
    txn: Transaction,
    producer: Producer,
    partitions: AbstractSet[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Begin the transaction with some partitions, or add them to it."""
    check_not_prepared(txn)
    check_producer(txn, producer)
    if txn.status is Status.ONGOING and partitions <= txn.partitions:
        return txn
    return replace(
        txn,
        status=Status.ONGOING,
        previous_producer_id=txn.producer_id,
        partitions=txn.partitions | partitions,
        started_ms=txn.started_ms if txn.status is Status.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def find_finished(
    txn: Transaction, producer: Producer, commit: bool, client_version: int
) -> Transaction | None:
    """Return the transaction if it has ended already as a retry asks it to; None if it may end.

    Raise if it may not, or not in that way.
    """
    check_not_prepared(txn)
    raises_epoch = client_version >= EPOCH_RAISING_VERSION
    was_renamed = (
        raises_epoch
        and txn.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_USED_EPOCH
        and txn.epoch == 0
    )
    is_retry = raises_epoch and (was_renamed or txn.epoch == producer.epoch + 1)
    if txn.producer_id != producer.producer_id and not was_renamed:
        raise unknown_producer(txn.transactional_id, producer)
    has_ended = txn.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
    if txn.epoch != producer.epoch and not (is_retry and has_ended):
        raise _fenced(txn, producer)
    match txn.status:
        case Status.ONGOING:
            return None
        case Status.COMPLETE_COMMIT | Status.COMPLETE_ABORT if txn.commits == commit and (
            is_retry or not raises_epoch
        ):
            return txn
        case Status.EMPTY | Status.COMPLETE_COMMIT | Status.COMPLETE_ABORT if (
            raises_epoch and not commit and not is_retry
        ):
            # Its first batch may still be on its way: the new epoch keeps it out.
            return None
        case _:
            raise TransactionError(
                ErrorCode.invalid_txn_state,
                f"transactional id {txn.transactional_id} is {txn.status.title}: it cannot "
                f"{'commit' if commit else 'abort'}",
            )


def prepare(
    txn: Transaction,
    commit: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """Decide how a transaction ends; from here on it does."""
    raises_epoch = client_version >= EPOCH_RAISING_VERSION
    return replace(
        txn,
        status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        epoch=txn.epoch + 1 if raises_epoch else txn.epoch,
        last_epoch=txn.epoch if raises_epoch else txn.last_epoch,
        started_ms=txn.started_ms if txn.status is Status.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """End a prepared transaction, whose markers are all written."""
    assert txn.status in PREPARED
    is_renamed = (
        txn.next_producer_id != NO_PRODUCER_ID and txn.client_version >= EPOCH_RAISING_VERSION
    )
    return replace(
        txn,
        status=Status.COMPLETE_COMMIT if txn.commits else Status.COMPLETE_ABORT,
        previous_producer_id=txn.producer_id,
        producer_id=txn.next_producer_id if is_renamed else txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0 if is_renamed else txn.epoch,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def concurrent(txn: Transaction) -> TransactionError:
    """Make the error for who has to wait until a transaction is complete."""
    return TransactionError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of {txn.transactional_id} is {txn.status.title}: try again",
    )


def unknown_producer(transactional_id: str, producer: Producer) -> TransactionError:
    """Make the error for a producer id that is not the one of the transactional id."""
    return TransactionError(
        ErrorCode.invalid_producer_id_mapping,
        f"producer {producer.producer_id} is not that of transactional id {transactional_id}",
    )


def _fenced(txn: Transaction, producer: Producer) -> TransactionError:
    return TransactionError(
        ErrorCode.producer_fenced,
        f"producer {producer.producer_id} with epoch {producer.epoch} of transactional id "
        f"{txn.transactional_id}: there is a newer one, {txn.producer_id} with epoch {txn.epoch}",
    )
