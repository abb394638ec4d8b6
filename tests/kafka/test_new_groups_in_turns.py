"""A group of the consumer protocol, on a directory in turns.

Its members are the test's: they go on with the epochs that they have, and are not to notice that
another broker answers.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.coordinator.group import consumer_records as consumer
from siltstone.coordinator.group import records as classic
from siltstone.coordinator.group.consumer_records import Kind
from siltstone.coordinator.state_topic import CONSUMER_OFFSETS
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.records.record import Record
from tests.clients.test_consumer_groups import commit, heartbeat, join, owned, partitions
from tests.kafka import tools
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import MakeBroker
from tests.kafka.tools import KafkaTools
from tests.support.groups import find_group
from tests.support.log_checks import fetch_all
from tests.support.serving import RawClient, ServedBroker
from tests.support.waiting import wait_until

GROUP = "turns"
TOPIC = "turns"
OURS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.compression.codec": "4",
}
# By the number of a kind: read, and written again.
RECODED = {
    classic.OFFSET_KEY: (classic.decode_offset_value, classic.encode_offset_value),
    classic.GROUP_KEY: (classic.decode_group_value, classic.encode_group_value),
    Kind.GROUP: (consumer.decode_group, consumer.encode_group),
    Kind.MEMBER: (consumer.decode_member, consumer.encode_member),
    Kind.TARGET: (consumer.decode_target_epoch, consumer.encode_target_epoch),
    Kind.TARGET_MEMBER: (consumer.decode_target, consumer.encode_target),
    Kind.CURRENT_MEMBER: (consumer.decode_current, consumer.encode_current),
}


@contextmanager
def talking_to(broker: KafkaBroker | ServedBroker) -> Iterator[RawClient]:
    """Connect, and wait until the group is served."""
    with RawClient(int(broker.bootstrap.rsplit(":", 1)[1])) as raw:
        find_group(raw, GROUP)
        yield raw


def fetch_offsets(raw: RawClient) -> Any:
    asked = [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": range(4)}]}]
    return raw.ask(wire.OFFSET_FETCH, 8, groups=asked, require_stable=True).groups[0]


def committed(raw: RawClient) -> dict[int, tuple[int, str | None]]:
    answer = fetch_offsets(raw)
    assert answer.error_code == ErrorCode.none, answer
    return {
        part.partition_index: (part.committed_offset, part.metadata)
        for topic in answer.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def described(raw: RawClient) -> Any:
    """Return all that a broker tells of the group, in an order that does not matter to anybody."""
    answer = raw.ask(
        wire.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[GROUP], include_authorized_operations=False
    )
    (group,) = answer.groups

    def places(assignment: Any) -> list[tuple[str, list[int]]]:
        return sorted((t.topic_name, sorted(t.partitions)) for t in assignment.topic_partitions)

    members = {
        m.member_id: (
            m.instance_id,
            m.member_epoch,
            m.client_id,
            m.client_host,
            tuple(m.subscribed_topic_names),
            places(m.assignment),
            places(m.target_assignment),
        )
        for m in group.members
    }
    return (
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
    ), members


def settle(raw: RawClient, group: str, members: dict[str, Any]) -> None:
    """Let all members do as they are told until nobody is told anything any more."""
    while True:
        told = 0
        for name, member in members.items():
            answer = heartbeat(raw, group, name, member["epoch"], topic_partitions=member["owned"])
            assert answer.error_code == ErrorCode.none, answer
            told += answer.member_epoch != member["epoch"] or answer.assignment is not None
            member["epoch"] = answer.member_epoch
            if answer.assignment is not None:
                member["owned"] = (
                    owned(answer, partitions(answer)) if answer.assignment.topic_partitions else ()
                )
        if not told:
            return


def share_out(raw: RawClient, members: dict[str, Any]) -> list[int]:
    """Let the members settle, and return the partitions that they have then."""
    settle(raw, GROUP, members)
    return sorted(p for m in members.values() for topic in m["owned"] for p in topic["partitions"])


def enter(raw: RawClient, members: dict[str, Any], name: str, **values: Any) -> None:
    answer = join(raw, GROUP, name, [TOPIC], **values)
    assert answer.error_code == ErrorCode.none, answer
    assigned = answer.assignment.topic_partitions
    members[name] = {
        "epoch": answer.member_epoch,
        "owned": owned(answer, partitions(answer)) if assigned else (),
    }


def state_records(log_dir: Path) -> list[Record]:
    log = LogReader([log_dir]).get_log(TopicPartition(CONSUMER_OFFSETS, 0))
    return [
        record
        for batch in fetch_all(log, 1 << 20)
        if not batch.header.is_control
        for record in batch.iter_records()
    ]


def test_a_group_of_the_consumer_protocol_goes_from_kafka_to_ours_and_back(
    make_broker: MakeBroker, kafka_tools: KafkaTools
) -> None:
    kafka = make_broker()
    kafka.start()
    kafka.create_topic(TOPIC, 4)
    members: dict[str, Any] = {}
    with talking_to(kafka) as raw:
        enter(raw, members, "one")
        enter(raw, members, "static", instance_id="s", rack_id="r", server_assignor="uniform")
        # Kafka's coordinator may hear of the topic after the members have come.
        wait_until(lambda: share_out(raw, members) == [0, 1, 2, 3])
        epoch = members["one"]["epoch"]
        numbers = {n: m["owned"][0]["partitions"] for n, m in members.items()}
        assert commit(raw, GROUP, "one", epoch, TOPIC, numbers["one"][0]) == ErrorCode.none
        first_offsets, first = committed(raw), described(raw)
    kafka.stop()
    _check_our_bytes(state_records(kafka.log_dir))

    with ServedBroker(kafka.log_dir, OURS) as ours:
        ours.start()
        with talking_to(ours) as raw:
            assert (committed(raw), described(raw)) == (first_offsets, first)
            before = {name: dict(member) for name, member in members.items()}
            settle(raw, GROUP, members)
            assert members == before  # Nobody has been told anything: the topics are the same.
            assert described(raw) == first
            enter(raw, members, "new")
            settle(raw, GROUP, members)
            assert {m["epoch"] for m in members.values()} == {epoch + 1}
            assert commit(raw, GROUP, "new", epoch + 1, TOPIC, 0) == ErrorCode.none
            second_offsets, second = committed(raw), described(raw)
        ours.kill()

        dumped = kafka_tools.run(
            tools.DUMP_LOG_SEGMENTS,
            "--offsets-decoder",
            "--files",
            str(kafka.log_dir / f"{CONSUMER_OFFSETS}-0" / "00000000000000000000.log"),
        )
        _check_decoded(dumped, epoch + 1)

        kafka.start()
        with talking_to(kafka) as raw:
            assert (committed(raw), described(raw)) == (second_offsets, second)
            before = {name: dict(member) for name, member in members.items()}
            settle(raw, GROUP, members)
            assert members == before
            assert heartbeat(raw, GROUP, "new", -1).error_code == ErrorCode.none
            del members["new"]
            settle(raw, GROUP, members)
            assert {m["epoch"] for m in members.values()} == {epoch + 2}
            third = described(raw)
        kafka.stop()

        ours.start()
        with talking_to(ours) as raw:
            assert (committed(raw), described(raw)) == (second_offsets, third)
    assert kafka.complaints() == []


def _check_our_bytes(records: list[Record]) -> None:
    """Hold what we would write against what Kafka has written."""
    seen = set()
    for record in records:
        assert record.key is not None
        kind = classic.kind_of(record.key)
        if record.value is None:
            continue
        decode, encode = RECODED[kind]
        assert encode(decode(record.value)) == record.value, (kind, record.value.hex())  # type: ignore[operator]
        seen.add(kind)
    assert seen >= {classic.OFFSET_KEY, *RECODED} - {classic.GROUP_KEY}


def _check_decoded(dumped: str, epoch: int) -> None:
    """Look at what Kafka's tool says of the records of both."""
    lines = [line for line in dumped.splitlines() if "payload:" in line]
    payloads = [
        (json.loads(found[1]), json.loads(found[2]))
        for line in lines
        if (found := re.search(r"key: (\{.*\}) payload: (.*)$", line))
    ]
    assert len(payloads) == len(lines) > 0
    latest: dict[str, Any] = {json.dumps(key, sort_keys=True): value for key, value in payloads}
    by_type: dict[str, list[Any]] = {}
    for key, value in latest.items():
        by_type.setdefault(str(json.loads(key)["type"]), []).append(value)
    (group,) = by_type[str(int(Kind.GROUP))]
    assert group["data"]["epoch"] == epoch
    (target,) = by_type[str(int(Kind.TARGET))]
    assert target["data"]["assignmentEpoch"] == epoch
    assert target["data"]["assignmentTimestamp"] > 0
    for kind in (Kind.MEMBER, Kind.TARGET_MEMBER, Kind.CURRENT_MEMBER):
        assert len(by_type[str(int(kind))]) == 3
    for current in by_type[str(int(Kind.CURRENT_MEMBER))]:
        assert current["data"]["memberEpoch"] == epoch
