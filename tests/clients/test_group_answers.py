"""What groups answer to the odd request, in raw frames."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from tests.clients.conftest import MakeTopic
from tests.clients.test_consumer_groups import group
from tests.support.serving import RawClient
from tests.support.waiting import wait_until

__all__ = ["group"]


def join(raw: RawClient, group: str, **values: Any) -> Any:
    return raw.ask(
        wire.JOIN_GROUP,
        5,
        **{
            "group_id": group,
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            **values,
        },
    )


def commit(
    raw: RawClient, group: str, topic: str, version: int = 8, partition: int = 0, **values: Any
) -> int:
    part = {
        "partition_index": partition,
        "committed_offset": 5,
        "committed_leader_epoch": 3,
        "committed_metadata": values.pop("metadata", "m"),
    }
    answer = raw.ask(
        wire.OFFSET_COMMIT,
        version,
        **{
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": [part]}],
            **values,
        },
    )
    return int(answer.topics[0].partitions[0].error_code)


def fetch(raw: RawClient, group: str, topics: Any) -> Any:
    asked = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
    (answer,) = raw.ask(wire.OFFSET_FETCH, 9, groups=asked, require_stable=True).groups
    return answer


def test_a_group_that_is_not_there_has_no_members(raw: RawClient, group: str) -> None:
    member = {"group_id": group, "generation_id": 1, "member_id": "m"}
    leavers = [{"member_id": "m", "group_instance_id": None, "reason": None}]

    assert join(raw, group, member_id="m").error_code == ErrorCode.unknown_member_id
    assert raw.ask(wire.HEARTBEAT, 4, **member).error_code == ErrorCode.unknown_member_id
    synced = raw.ask(wire.SYNC_GROUP, 4, **member, assignments=())
    assert synced.error_code == ErrorCode.unknown_member_id
    left = raw.ask(wire.LEAVE_GROUP, 2, group_id=group, member_id="m")
    assert left.error_code == ErrorCode.unknown_member_id
    left = raw.ask(wire.LEAVE_GROUP, 4, group_id=group, members=leavers)
    assert left.error_code == ErrorCode.none
    assert left.members[0].error_code == ErrorCode.unknown_member_id


def test_a_group_that_is_not_there_is_described_and_deleted_as_such(
    raw: RawClient, group: str
) -> None:
    asked = {"groups": [group], "include_authorized_operations": False}

    (old,) = raw.ask(wire.DESCRIBE_GROUPS, 5, **asked).groups
    (new,) = raw.ask(wire.DESCRIBE_GROUPS, 6, **asked).groups
    (deleted,) = raw.ask(wire.DELETE_GROUPS, 2, groups_names=[group]).results

    assert (old.error_code, old.group_state) == (ErrorCode.none, "Dead")
    assert (new.error_code, new.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert new.error_message == f"Group {group} not found."
    assert deleted.error_code == ErrorCode.group_id_not_found


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": 1}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 10_000_000}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({}, ErrorCode.member_id_required),
    ],
)
def test_a_join_is_refused(
    raw: RawClient, group: str, values: dict[str, Any], code: ErrorCode
) -> None:
    assert join(raw, group, **values).error_code == code


def test_offsets_are_committed_by_nobody_in_particular(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)

    assert commit(raw, group, topic) == ErrorCode.none
    found = fetch(raw, group, None)
    some = fetch(raw, group, [{"name": topic, "partition_indexes": [0, 1]}])

    (part,) = found.topics[0].partitions
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata) == (5, 3, "m")
    assert [p.committed_offset for p in some.topics[0].partitions] == [5, -1]
    assert [p.metadata for p in some.topics[0].partitions] == ["m", ""]
    listed = raw.ask(wire.LIST_GROUPS, 5, states_filter=["empty"], types_filter=["Classic"])
    (one,) = (g for g in listed.groups if g.group_id == group)
    assert (one.protocol_type, one.group_state, one.group_type) == ("", "Empty", "classic")
    others = raw.ask(wire.LIST_GROUPS, 5, states_filter=["stable"], types_filter=())
    assert group not in [g.group_id for g in others.groups]


def test_offsets_of_several_groups_are_fetched_at_once(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    assert commit(raw, group, topic) == ErrorCode.none
    asked = [{"name": topic, "partition_indexes": [0]}]
    groups = [{"group_id": name, "topics": asked} for name in (group, f"{group}-other")]

    answer = raw.ask(wire.OFFSET_FETCH, 8, groups=groups, require_stable=True)

    assert [g.group_id for g in answer.groups] == [group, f"{group}-other"]
    assert [g.error_code for g in answer.groups] == [ErrorCode.none] * 2
    parts = [g.topics[0].partitions[0] for g in answer.groups]
    assert [(part.committed_offset, part.metadata) for part in parts] == [(5, "m"), (-1, "")]


def test_a_commit_is_refused(raw: RawClient, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(1)
    as_member: dict[str, Any] = {"generation_id_or_member_epoch": 1, "member_id": "m"}

    assert commit(raw, group, topic, 8, **as_member) == ErrorCode.illegal_generation
    assert commit(raw, group, topic, 9, **as_member) == ErrorCode.group_id_not_found
    assert commit(raw, group, "nothing") == ErrorCode.unknown_topic_or_partition
    too_long = commit(raw, group, topic, metadata="m" * 5000)
    assert too_long == ErrorCode.offset_metadata_too_large
    assert fetch(raw, group, None).topics == ()


def test_offsets_are_deleted_one_by_one(raw: RawClient, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic(2)
    commit(raw, group, topic)
    commit(raw, group, topic, partition=1)
    asked = [
        {"name": topic, "partitions": [{"partition_index": 0}]},
        {"name": "nothing", "partitions": [{"partition_index": 0}]},
    ]

    answer = raw.ask(wire.OFFSET_DELETE, 0, group_id=group, topics=asked)

    codes = {t.name: t.partitions[0].error_code for t in answer.topics}
    assert codes == {topic: ErrorCode.none, "nothing": ErrorCode.unknown_topic_or_partition}
    (left,) = fetch(raw, group, None).topics[0].partitions
    assert left.partition_index == 1


def test_offsets_go_with_their_topic(raw: RawClient, make_topic: MakeTopic, group: str) -> None:
    topic, other = make_topic(1), make_topic(1)
    commit(raw, group, topic)
    commit(raw, group, other)

    deleted = raw.ask(wire.DELETE_TOPICS, 5, topic_names=[topic], timeout=30_000)

    assert deleted.responses[0].error_code == ErrorCode.none
    # A real Kafka takes its time.
    wait_until(lambda: [t.name for t in fetch(raw, group, None).topics] == [other])


def test_more_than_a_batch_takes_is_refused(
    raw: RawClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(300)
    parts = [
        {
            "partition_index": number,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": "m" * 4000,
        }
        for number in range(300)
    ]

    code = commit(raw, group, topic, topics=[{"name": topic, "partitions": parts}])

    assert code == ErrorCode.unknown_server_error
    assert fetch(raw, group, None).topics == ()


def test_a_share_that_no_batch_takes_is_refused(raw: RawClient, group: str) -> None:
    named = join(raw, group)
    joined = join(raw, group, member_id=named.member_id)

    answer = raw.ask(
        wire.SYNC_GROUP,
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        assignments=[{"member_id": joined.member_id, "assignment": bytes(1_100_000)}],
    )

    assert answer.error_code == ErrorCode.unknown_server_error
    # The others, if there are any, begin again.
    again = join(raw, group, member_id=joined.member_id)
    assert (again.error_code, again.generation_id) == (ErrorCode.none, 2)
