"""The transactional APIs: who writes in which transaction, and how it ends."""

from collections.abc import Awaitable, Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of
from siltstone.broker.messages import Values, milliseconds
from siltstone.broker.room import with_room
from siltstone.broker.wire import Request
from siltstone.coordinator.patterns import find_matches
from siltstone.coordinator.state_topic import CONSUMER_OFFSETS
from siltstone.coordinator.transaction.errors import TransactionError
from siltstone.coordinator.transaction.markers import Ending
from siltstone.coordinator.transaction.service import Initialization
from siltstone.coordinator.transaction.state import (
    EPOCH_RAISING_VERSION,
    STATUS_BY_TITLE,
    Producer,
    Transaction,
)
from siltstone.errors import DecodeError, StorageError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NOBODY: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
# From these versions on, clients know PRODUCER_FENCED; before, it goes by another name.
_FENCING_INIT: Final = 4
_FENCING: Final = 2
_FIRST_IN_BATCHES: Final = 4  # of AddPartitionsToTxn, from brokers
_FIRST_RAISING_EPOCHS: Final = 5  # of EndTxn


async def handle_init(broker: Broker, request: Request) -> Values:
    """Give a transactional producer its id and epoch."""
    body = request.body
    producer = Producer(
        getattr(body, "producer_id", NO_PRODUCER_ID), getattr(body, "producer_epoch", -1)
    )
    try:
        if (producer.producer_id == NO_PRODUCER_ID) != (producer.epoch == NO_PRODUCER_EPOCH):
            raise TransactionError(ErrorCode.invalid_request, "a producer id without its epoch")
        transactions = broker.coordinators.transactions
        transactions.find(body.transactional_id)  # Raises for an empty one, before a topic is made.
        await transactions.topic.ensure()
        if broker.producer_ids.needs_disk:
            await broker.blocking(broker.producer_ids.reserve)
        given = transactions.initialize(
            Initialization(
                body.transactional_id,
                milliseconds(body.transaction_timeout),
                None if producer == NOBODY else producer,
            )
        )
    except Exception as error:  # noqa: BLE001 - its answer has a place for the code
        code = _code(error, request, _FENCING_INIT)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": given.producer_id, "producer_epoch": given.epoch}


def handle_add_partitions(broker: Broker, request: Request) -> Values:
    """Add partitions to transactions, or only see whether they are in them."""
    body = request.body
    if request.version < _FIRST_IN_BATCHES:
        producer = Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        name, topics = body.v3_and_below_transactional_id, body.v3_and_below_topics
        results = _add(broker, request, name, producer, topics, verify_only=False)
        return {"results_by_topic_v3_and_below": results}
    return {
        "results_by_transaction": [
            {
                "transactional_id": asked.transactional_id,
                "topic_results": _add(
                    broker,
                    request,
                    asked.transactional_id,
                    Producer(asked.producer_id, asked.producer_epoch),
                    asked.topics,
                    verify_only=asked.verify_only,
                ),
            }
            for asked in body.transactions
        ]
    }


def _add(
    broker: Broker,
    request: Request,
    name: str,
    producer: Producer,
    topics: Iterable[Any],
    *,
    verify_only: bool,
) -> list[Values]:
    partitions = [TopicPartition(t.name, number) for t in topics for number in t.partitions]
    transactions = broker.coordinators.transactions
    codes = {
        p: ErrorCode.unknown_topic_or_partition for p in partitions if not _is_there(broker, p)
    }
    if codes:
        # All or none: the others were not even tried.
        codes |= {p: ErrorCode.operation_not_attempted for p in partitions if p not in codes}
    elif verify_only:
        for partition in partitions:
            try:
                transactions.check_partition(name, producer, partition)
            except TransactionError as error:
                codes[partition] = error.code
    else:
        version = EPOCH_RAISING_VERSION if request.version >= _FIRST_IN_BATCHES else 0
        try:
            transactions.add_partitions(name, producer, frozenset(partitions), version)
        except Exception as error:  # noqa: BLE001 - its answer has a place for the code
            codes = dict.fromkeys(partitions, _code(error, request, _FENCING))
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": number,
                    "partition_error_code": codes.get(
                        TopicPartition(topic.name, number), ErrorCode.none
                    ),
                }
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]


def _is_there(broker: Broker, partition: TopicPartition) -> bool:
    try:
        count = broker.manager.describe(partition.topic).partition_count
    except UnknownTopicError:
        return False
    return 0 <= partition.partition < count


async def handle_add_offsets(broker: Broker, request: Request) -> Values:
    """Add the offsets of a group to a transaction: they are one more partition."""
    body = request.body
    try:
        topic = broker.groups.registry.topic
        await topic.ensure()
        number = topic.partition_for(body.group_id)
        broker.coordinators.transactions.add_partitions(
            body.transactional_id,
            Producer(body.producer_id, body.producer_epoch),
            frozenset({TopicPartition(CONSUMER_OFFSETS, number)}),
            0,
        )
    except Exception as error:  # noqa: BLE001 - its answer has a place for the code
        return {"error_code": _code(error, request, _FENCING)}
    return {}


def handle_end(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    """Commit or abort."""
    try:
        known = broker.coordinators.transactions.find(request.body.transactional_id)
    except TransactionError as error:
        return {"error_code": _code(error, request, _FENCING)}
    return with_room(
        broker, () if known is None else known.partitions, lambda: _end(broker, request)
    )


def _end(broker: Broker, request: Request) -> Values:
    body = request.body
    raises_epoch = request.version >= _FIRST_RAISING_EPOCHS
    try:
        producer = broker.coordinators.transactions.end(
            body.transactional_id,
            Producer(body.producer_id, body.producer_epoch),
            commit=body.committed,
            client_version=EPOCH_RAISING_VERSION if raises_epoch else 0,
        )
    except Exception as error:  # noqa: BLE001 - its answer has a place for the code
        return {"error_code": _code(error, request, _FENCING)}
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def handle_write_markers(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    """Write markers as told, whatever the coordinator knows: for another one, or for a tool."""
    marked = {
        TopicPartition(topic.name, number)
        for asked in request.body.markers
        for topic in asked.topics
        for number in topic.partition_indexes
    }
    return with_room(broker, marked, lambda: _write_markers(broker, request))


def _write_markers(broker: Broker, request: Request) -> Values:
    results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for asked in request.body.markers:
        ending = Ending(
            Producer(asked.producer_id, asked.producer_epoch),
            asked.transaction_result,
            asked.coordinator_epoch,
            getattr(asked, "transaction_version", 0),
        )
        for topic in asked.topics:
            codes = results.setdefault(asked.producer_id, {}).setdefault(topic.name, {})
            for number in topic.partition_indexes:
                codes[number] = _write_marker(broker, TopicPartition(topic.name, number), ending)
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": number, "error_code": code}
                            for number, code in codes.items()
                        ],
                    }
                    for name, codes in topics.items()
                ],
            }
            for producer_id, topics in results.items()
        ]
    }


def _write_marker(broker: Broker, partition: TopicPartition, ending: Ending) -> ErrorCode:
    if ending.producer.producer_id < 0 or ending.producer.epoch < 0:
        return ErrorCode.invalid_request  # A marker is somebody's.
    try:
        broker.coordinators.markers.write(partition, ending)
    except Exception as error:  # noqa: BLE001 - one partition must not stop the others
        return code_of(error, f"marker for {partition}")
    return ErrorCode.none


def handle_describe(broker: Broker, request: Request) -> Values:
    """Say what is known of some transactional ids."""
    return {
        "transaction_states": [_describe(broker, name) for name in request.body.transactional_ids]
    }


def _describe(broker: Broker, name: str) -> Values:
    try:
        txn = broker.coordinators.transactions.find(name)
        if txn is None:
            raise TransactionError(ErrorCode.transactional_id_not_found, f"no {name}")
    except TransactionError as error:
        return {
            "error_code": error.code,
            "transactional_id": name,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": (),
        }
    return {
        "transactional_id": name,
        "transaction_state": txn.status.title,
        "transaction_timeout": txn.timeout_ms,
        "transaction_start_time": txn.started_ms,
        "producer_id": txn.producer_id,
        "producer_epoch": txn.epoch,
        "topics": [
            {"topic": topic, "partitions": numbers}
            for topic, numbers in txn.numbers_by_topic().items()
        ],
    }


def handle_list(broker: Broker, request: Request) -> Values:
    """List the transactional ids that pass all filters."""
    body = request.body
    statuses = {STATUS_BY_TITLE[name] for name in body.state_filters if name in STATUS_BY_TITLE}
    longer_than_ms = getattr(body, "duration_filter", -1)
    now_ms = broker.clock.now_ms()

    def is_wanted(txn: Transaction) -> bool:
        return (
            (not body.producer_id_filters or txn.producer_id in body.producer_id_filters)
            and (not body.state_filters or txn.status in statuses)
            and (longer_than_ms < 0 or now_ms - txn.started_ms > longer_than_ms)
        )

    wanted = [txn for txn in broker.coordinators.transactions.transactions() if is_wanted(txn)]
    pattern = getattr(body, "transactional_id_pattern", None)
    if pattern:
        try:
            matching = find_matches(pattern, (txn.transactional_id for txn in wanted))
        except DecodeError:
            return {
                "error_code": ErrorCode.invalid_regular_expression,
                "unknown_state_filters": (),
                "transaction_states": (),
            }
        wanted = [txn for txn in wanted if txn.transactional_id in matching]
    return {
        "unknown_state_filters": [n for n in body.state_filters if n not in STATUS_BY_TITLE],
        "transaction_states": [
            {
                "transactional_id": txn.transactional_id,
                "producer_id": txn.producer_id,
                "transaction_state": txn.status.title,
            }
            for txn in wanted
        ],
    }


def _code(error: Exception, request: Request, fencing_version: int) -> ErrorCode:
    """Return the code that a client of this version knows for an error of the coordinator."""
    if isinstance(error, StorageError | UnknownTopicError):
        return ErrorCode.coordinator_not_available
    code = code_of(error, request)
    if code is ErrorCode.producer_fenced and request.version < fencing_version:
        return ErrorCode.invalid_producer_epoch
    return code
