"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the consumer protocol of groups."""

import uuid
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.error_codes import ProtocolError, describe
from siltstone.broker.group_answers import HeartbeatReply, encode_heartbeat
from siltstone.broker.handlers.group_members import origin_of
from siltstone.broker.handlers.groups import GROUP_OPERATIONS, NOT_ASKED
from siltstone.broker.messages import Values, milliseconds
from siltstone.broker.wire import Payload, Request
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_member import AWAY_EPOCH, JOIN_EPOCH, ConsumerMember
from siltstone.coordinator.group.consumer_records import Places, by_topic
from siltstone.coordinator.group.consumer_state import Heartbeat
from siltstone.coordinator.group.errors import GroupError
from siltstone.coordinator.group.topics import Topics

_CONSUMER_MEMBER: Final = 1
_CLASSIC_MEMBER: Final = 0


def handle_heartbeat(broker: Broker, request: Request) -> Payload:
    """Learn that a member lives and what it wants, and tell it what it has."""
    body = request.body
    try:
        _check(body, request.version)
        heartbeat = Heartbeat(
            # A client of the first version may leave it to us to find a name for it.
            member_id=body.member_id or str(uuid.uuid4()),
            epoch=body.member_epoch,
            origin=origin_of(request),
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            rebalance_timeout_ms=_optional_ms(milliseconds(body.rebalance_timeout)),
            topics=body.subscribed_topic_names,
            regex=getattr(body, "subscribed_topic_regex", None),
            assignor=body.server_assignor,
            owned=_places(body.topic_partitions),
        )
        answer = broker.groups.consumer_heartbeat(body.group_id, heartbeat)
    except (GroupError, ProtocolError) as error:
        return encode_heartbeat(HeartbeatReply(error.code, describe(error)))
    interval_ms = broker.groups.registry.config.group_consumer_heartbeat_interval_ms
    return encode_heartbeat(
        HeartbeatReply(
            member_id=answer.member_id,
            epoch=answer.epoch,
            interval_ms=interval_ms if answer.epoch >= 0 else 0,
            assignment=None if answer.assignment is None else by_topic(answer.assignment),
        )
    )


def _check(body: Any, version: int) -> None:
    """Refuse what makes no sense, whatever the group is."""
    epoch = body.member_epoch
    if not body.member_id and (version >= 1 or epoch != JOIN_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if body.instance_id == "" or body.rack_id == "":
        raise _invalid("InstanceId and RackId can't be empty.")
    if epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if epoch == AWAY_EPOCH and body.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if epoch != JOIN_EPOCH:
        return
    if milliseconds(body.rebalance_timeout) < 0:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if body.topic_partitions is None or body.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    regex = getattr(body, "subscribed_topic_regex", None)
    if body.subscribed_topic_names is None and regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.invalid_request, reason)


def _optional_ms(duration_ms: int) -> int | None:
    return None if duration_ms < 0 else duration_ms


def _places(topics: Iterable[Any] | None) -> Places | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def handle_describe(broker: Broker, request: Request) -> Values:
    """Say who is in each group, what its members have, and what they are to have."""
    operations = GROUP_OPERATIONS if request.body.include_authorized_operations else NOT_ASKED
    groups: list[dict[str, Any]] = []
    for group_id in request.body.group_ids:
        try:
            group = broker.groups.describe_consumer(group_id)
        except GroupError as error:
            groups.append(
                {
                    "error_code": error.code,
                    "error_message": describe(error),
                    "group_id": group_id,
                    "group_state": "",
                    "group_epoch": 0,
                    "assignment_epoch": 0,
                    "assignor_name": "",
                    "members": (),
                }
            )
            continue
        groups.append(
            {
                "group_id": group_id,
                "group_state": group.state_name,
                "group_epoch": group.epoch,
                "assignment_epoch": group.target_epoch,
                "assignor_name": group.assignor_name(),
                "members": [
                    _describe_member(broker.groups.registry.topics, group, member)
                    for member in group.members.values()
                ],
                "authorized_operations": operations,
            }
        )
    return {"groups": groups}


def _describe_member(
    topics: Topics, group: ConsumerGroup, member: ConsumerMember
) -> dict[str, Any]:
    target = group.target.get(member.member_id, frozenset())
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.origin.client_id,
        "client_host": member.origin.host,
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": member.regex or "",
        "assignment": {"topic_partitions": _describe_places(topics, member.assigned)},
        "target_assignment": {"topic_partitions": _describe_places(topics, target)},
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _describe_places(topics: Topics, places: Places) -> list[dict[str, Any]]:
    found = []
    for topic_id, numbers in by_topic(places).items():
        info = topics.find_by_id(topic_id)
        if info is not None:
            found.append({"topic_id": topic_id, "topic_name": info.name, "partitions": numbers})
    return found
