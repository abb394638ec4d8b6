"""Produce in transactions: no batch gets into a log unless its transaction is open there.

A batch that came late, after its transaction was ended, would never be committed nor aborted, and
hold up all readers of committed records for ever. So each one is checked against the coordinator,
and again under the lock of its log: a marker is written either after it, or it is refused.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError
from siltstone.broker.wire import Request
from siltstone.coordinator.transaction.errors import TransactionError
from siltstone.coordinator.transaction.service import TransactionCoordinator
from siltstone.coordinator.transaction.state import EPOCH_RAISING_VERSION, Producer
from siltstone.errors import InvalidRecordError, SiltstoneError, StorageError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.records.layout import HEADER_SIZE

_PRODUCER: Final = struct.Struct(">qh")  # id, epoch
_PRODUCER_POSITION: Final = 43
_FIRST_KNOWING_ABORTABLE: Final = 11
_FIRST_ADDING: Final = 12  # a batch is enough to have its partition in the transaction
_FIRST_ADDING_OFFSETS: Final = 5  # likewise, of TxnOffsetCommit
_PRODUCE_AHEAD: Final = _FIRST_ADDING - _FIRST_ADDING_OFFSETS

# What clients try again, of the one API and of the other; they give up after what they do not know.
_PRODUCE_RETRIED: Final = ErrorCode.not_enough_replicas
_OFFSETS_RETRIED: Final = ErrorCode.coordinator_not_available


@dataclass(frozen=True, slots=True)
class Membership:
    """One partition in the transaction of one producer."""

    transactions: TransactionCoordinator
    transactional_id: str
    producer: Producer
    partition: TopicPartition
    version: int  # of the request
    is_verified: bool

    def check(self) -> None:
        """Raise unless the transaction is open, and the partition is in it."""
        if not self.is_verified:
            return
        try:
            self.transactions.check_partition(self.transactional_id, self.producer, self.partition)
        except TransactionError as error:
            raise _translated(error, self.version, _PRODUCE_RETRIED) from error


def membership_of(
    broker: Broker, request: Request, partition: TopicPartition, records: bytes
) -> Membership:
    """Read from a transactional batch whose it is."""
    transactional_id = request.body.transactional_id
    if transactional_id is None:
        raise ProtocolError(
            ErrorCode.transactional_id_authorization_failed,
            f"{partition}: a transactional batch in a request without a transactional id",
        )
    if len(records) < HEADER_SIZE:
        raise InvalidRecordError(str(partition), "a batch that is shorter than its header")
    producer = Producer(*_PRODUCER.unpack_from(records, _PRODUCER_POSITION))
    return Membership(
        broker.coordinators.transactions,
        transactional_id,
        producer,
        partition,
        request.version,
        request.version >= _FIRST_ADDING
        or broker.server_config.broker.transaction_partition_verification_enable,
    )


def admit(
    broker: Broker, request: Request, members: Sequence[Membership]
) -> dict[Membership | None, SiltstoneError]:
    """Add partitions to their transaction if clients may expect that; return those refused."""
    refused: dict[Membership | None, SiltstoneError] = {}
    if request.version < _FIRST_ADDING:
        return refused  # They were added before, or else `check` finds out.
    by_producer: dict[Producer, list[Membership]] = {}
    for member in members:
        by_producer.setdefault(member.producer, []).append(member)
    for producer, those in by_producer.items():
        try:
            broker.coordinators.transactions.add_partitions(
                request.body.transactional_id,
                producer,
                frozenset(member.partition for member in those),
                EPOCH_RAISING_VERSION,
            )
        except TransactionError as error:
            translated = _translated(error, request.version, _PRODUCE_RETRIED)
            refused |= dict.fromkeys(those, translated)
        except (StorageError, UnknownTopicError) as error:
            refused |= dict.fromkeys(those, _unwritten(error, _PRODUCE_RETRIED))
    return refused


def admit_offsets(broker: Broker, request: Request, partition: TopicPartition) -> None:
    """Raise unless the offsets of a group may be written in a transaction.

    From the version on that adds them, TxnOffsetCommit is enough to have them in it.
    """
    body = request.body
    producer = Producer(body.producer_id, body.producer_epoch)
    transactions = broker.coordinators.transactions
    try:
        if request.version >= _FIRST_ADDING_OFFSETS:
            transactions.add_partitions(
                body.transactional_id, producer, frozenset({partition}), EPOCH_RAISING_VERSION
            )
        elif broker.server_config.broker.transaction_partition_verification_enable:
            transactions.check_partition(body.transactional_id, producer, partition)
    except TransactionError as error:
        # Its version 4 is what version 11 is for Produce, and so on.
        version = request.version + _PRODUCE_AHEAD
        raise _translated(error, version, _OFFSETS_RETRIED) from error
    except (StorageError, UnknownTopicError) as error:
        raise _unwritten(error, _OFFSETS_RETRIED) from error


def _unwritten(error: SiltstoneError, retried: ErrorCode) -> ProtocolError:
    return ProtocolError(retried, f"the coordinator cannot write: {error}")


def _translated(error: TransactionError, version: int, retried: ErrorCode) -> ProtocolError:
    """Say what the coordinator says with a code that the client knows."""
    code = error.code
    if code is ErrorCode.producer_fenced:
        code = ErrorCode.invalid_producer_epoch
    if code is ErrorCode.coordinator_not_available:
        code = retried
    if code is ErrorCode.transaction_abortable and version < _FIRST_KNOWING_ABORTABLE:
        code = ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and version < _FIRST_ADDING:
        code = retried
    return ProtocolError(code, error.reason)
