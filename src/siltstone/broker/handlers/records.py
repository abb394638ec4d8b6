"""DeleteRecords: move the start of logs."""

from typing import Any

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import code_of
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request


async def handle_delete(broker: Broker, request: Request) -> Values:
    """Delete the records below an offset of each partition."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _delete(broker, topic.name, part) for part in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


async def _delete(broker: Broker, topic: str, part: Any) -> Values:
    try:
        partition = broker.partitions.get(topic, part.partition_index)
        low_watermark = await broker.blocking(lambda: partition.log.delete_records(part.offset))
        partition.changed()
    except Exception as error:  # noqa: BLE001 - one partition must not stop the others
        code = code_of(error, f"records of {topic}-{part.partition_index}")
        return {"partition_index": part.partition_index, "low_watermark": -1, "error_code": code}
    return {"partition_index": part.partition_index, "low_watermark": low_watermark}
