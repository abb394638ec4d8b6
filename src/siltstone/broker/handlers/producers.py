"""InitProducerId and DescribeProducers: who writes, and numbers for those who are new."""

from collections.abc import Awaitable
from typing import Any

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of, describe
from siltstone.broker.handlers import transactions
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request


def handle_init(broker: Broker, request: Request) -> Values | Awaitable[Values]:
    """Give an idempotent producer its number; transactions have their coordinator for it."""
    if request.body.transactional_id is not None:
        return transactions.handle_init(broker, request)
    if broker.producer_ids.needs_disk:
        return _take(broker)
    return _given(broker.producer_ids.take())


async def _take(broker: Broker) -> Values:
    return _given(await broker.blocking(broker.producer_ids.take))


def _given(producer_id: int) -> Values:
    return {"producer_id": producer_id, "producer_epoch": 0}


def handle_describe(broker: Broker, request: Request) -> Values:
    """List the producers that partitions remember."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(broker, topic.name, number) for number in topic.partition_indexes
                ],
            }
            for topic in request.body.topics
        ]
    }


def _describe(broker: Broker, topic: str, number: int) -> dict[str, Any]:
    try:
        state = broker.partitions.get(topic, number).log.producer_state
        entries = state.active_producers().values()
    except Exception as error:  # noqa: BLE001 - one partition must not stop the others
        return {
            "partition_index": number,
            "error_code": code_of(error, f"producers of {topic}-{number}"),
            "error_message": describe(error),
            "active_producers": (),
        }
    return {
        "partition_index": number,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp_ms,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": -1
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            }
            for entry in entries
        ],
    }
