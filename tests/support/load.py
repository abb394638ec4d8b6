"""Clients that never give up: they write, read and administer while their broker is killed.

The record at offset n of a partition has the number n in it, in every partition and whatever was
cleaned: nothing is lost, doubled or out of order as long as that holds.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from kio.index import load_response_schema
from kio.serial import entity_reader

from siltstone.broker import wire
from siltstone.clock import SystemClock
from siltstone.ids import TopicPartition
from siltstone.records.batch import Batch, iter_batches
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.serving import frame_of

KEY_COUNT: Final = 7
_PAUSE_SECONDS: Final = 0.1
_FETCH_BYTES: Final = 200_000
_CLOCK: Final = SystemClock()


class Channel:
    """A connection that comes back when its broker does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0
        self.losses = 0

    async def ask(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a request, once more after each loss of the connection, until it is answered."""
        self._correlation_id += 1
        frame = frame_of(api_key, version, values, self._correlation_id)
        while True:
            try:
                return _decoded(api_key, version, await self._exchange(frame))
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                self.losses += 1
                await asyncio.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, frame: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(frame)
        await writer.drain()
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        assert struct.unpack_from(">i", data) == (self._correlation_id,), "answers come in order"
        return data


def _decoded(api_key: int, version: int, data: bytes) -> Any:
    response_type = load_response_schema(api_key, version)
    is_tagged = api_key != wire.API_VERSIONS and response_type.__header_schema__.__version__ >= 1
    answer, _ = entity_reader(response_type)(data, 5 if is_tagged else 4)
    return answer


class Writer:
    """An idempotent producer, the only one of its partitions; `counts` were acknowledged."""

    def __init__(
        self, channel: Channel, partitions: Sequence[TopicPartition], chance: random.Random
    ) -> None:
        self.channel = channel
        self.counts = dict.fromkeys(partitions, 0)
        self._chance = chance
        self._producer_id = -1

    async def step(self) -> None:
        """Append to some of its partitions, and see all of it acknowledged."""
        if self._producer_id < 0:
            answer = await self.channel.ask(
                wire.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=60_000
            )
            self._producer_id = answer.producer_id
        count = self._chance.randrange(1, 6)
        chosen = self._chance.sample(list(self.counts), min(3, len(self.counts)))
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for partition in chosen:
            part = {"index": partition.partition, "records": self._batch(partition, count)}
            by_topic.setdefault(partition.topic, []).append(part)
        answer = await self.channel.ask(
            wire.PRODUCE,
            9,
            transactional_id=None,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": t, "partition_data": parts} for t, parts in by_topic.items()],
        )
        for topic in answer.responses:
            for part in topic.partition_responses:
                partition = TopicPartition(topic.name, part.index)
                assert part.error_code == 0, (partition, part)
                assert part.base_offset == self.counts[partition], (partition, part)
                self.counts[partition] += count

    def _batch(self, partition: TopicPartition, count: int) -> bytes:
        first, now_ms = self.counts[partition], _CLOCK.now_ms()
        records = [
            Record(number - first, now_ms, b"%d" % (number % KEY_COUNT), b"%0100d" % number)
            for number in range(first, first + count)
        ]
        return build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )


class Reader:
    """A consumer of some partitions that has seen everything up to `positions`."""

    def __init__(
        self, channel: Channel, partitions: Sequence[TopicPartition], *, has_gaps: bool
    ) -> None:
        self.channel = channel
        self.positions = dict.fromkeys(partitions, 0)
        self._has_gaps = has_gaps  # as after compaction

    async def step(self) -> None:
        """Fetch what is new, or wait for it for a moment."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for partition, position in self.positions.items():
            wanted = {"partition": partition.partition, "fetch_offset": position}
            wanted |= {"partition_max_bytes": _FETCH_BYTES}
            by_topic.setdefault(partition.topic, []).append(wanted)
        answer = await self.channel.ask(
            wire.FETCH,
            12,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[{"topic": t, "partitions": parts} for t, parts in by_topic.items()],
            forgotten_topics_data=(),
        )
        for topic in answer.responses:
            for part in topic.partitions:
                assert part.error_code == 0, (topic.topic, part)
                self._take(TopicPartition(topic.topic, part.partition_index), part.records or b"")

    def _take(self, partition: TopicPartition, data: bytes) -> None:
        position = self.positions[partition]
        for _, batch in iter_batches(data):
            for record in numbered_records(batch):
                # A batch is sent whole, so also what stands in it before the position.
                if record.offset < position:
                    continue
                assert self._has_gaps or record.offset == position, (partition, record)
                position = record.offset + 1
            position = max(position, batch.header.next_offset)
        self.positions[partition] = position


class Administrator:
    """Makes, changes, describes and deletes a topic of its own, again and again."""

    # Asked again after a kill, a topic may be there already, or gone; that of another may be half
    # made when all are listed.
    _EXPECTED: Final = {
        "none",
        "topic_already_exists",
        "unknown_topic_or_partition",
        "leader_not_available",
    }

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name

    async def step(self) -> None:
        """Lead a topic through its life."""
        config = [{"name": "retention.ms", "value": "1000000"}]
        topic = {"name": self._name, "num_partitions": 2, "replication_factor": 1}
        topic |= {"assignments": (), "configs": config}
        asked = {"resource_type": 2, "resource_name": self._name}
        change = {"name": "segment.bytes", "config_operation": 0, "value": "20000"}
        steps: tuple[tuple[int, int, dict[str, Any]], ...] = (
            (wire.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000, "validate_only": False}),
            (wire.METADATA, 4, {"topics": None, "allow_auto_topic_creation": False}),
            (
                wire.INCREMENTAL_ALTER_CONFIGS,
                1,
                {"resources": [{**asked, "configs": [change]}], "validate_only": False},
            ),
            (
                wire.DESCRIBE_CONFIGS,
                1,
                {
                    "resources": [{**asked, "configuration_keys": None}],
                    "include_synonyms": True,
                },
            ),
            (wire.DELETE_TOPICS, 5, {"topic_names": [self._name], "timeout": 30_000}),
        )
        for api_key, version, values in steps:
            answer = await self.channel.ask(api_key, version, **values)
            codes = {code.name for code in _error_codes(answer)}
            assert codes <= self._EXPECTED, (api_key, codes)
        await asyncio.sleep(1)


def _error_codes(answer: Any) -> Iterator[Any]:
    if isinstance(answer, tuple):
        for item in answer:
            yield from _error_codes(item)
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            yield value
        else:
            yield from _error_codes(value)


def numbered_records(batch: Batch) -> Iterator[Record]:
    """Go through the records of a batch, each of which has its offset in its value."""
    batch.check_crc()
    for record in batch.iter_records():
        assert record.value is not None
        assert int(record.value) == record.offset, record
        yield record


Client: TypeAlias = Writer | Reader | Administrator


async def repeat(client: Client, is_over: Callable[[], bool]) -> None:
    """Let a client work until the end; its last request is answered before it leaves."""
    while not is_over():
        await client.step()
    client.channel.close()
