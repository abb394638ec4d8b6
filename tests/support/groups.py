"""Wait for what a coordinator of groups does a moment after an answer, in raw frames."""

import uuid
from collections.abc import Sequence
from typing import Any

from siltstone.broker import wire
from tests.support.serving import RawClient
from tests.support.transactions import patiently
from tests.support.waiting import wait_until


def find_group(raw: RawClient, group: str) -> None:
    """Wait until a group is looked after: a real Kafka makes the topic first, and then loads it."""
    patiently(
        lambda: raw.ask(wire.FIND_COORDINATOR, 3, key=group, key_type=0), lambda a: a.error_code
    )
    asked = [{"group_id": group, "topics": None}]
    patiently(
        lambda: raw.ask(wire.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups[0],
        lambda answer: answer.error_code,
    )


def wait_until_known(raw: RawClient, topic: str, partitions: int) -> None:
    """Wait until the one coordinator of a broker has heard of a topic: another group is given it.

    A real Kafka tells its coordinators of topics after it has begun to serve them. A member that
    comes before is given nothing, and its group goes on to another epoch later.
    """
    group = f"before-{uuid.uuid4()}"
    find_group(raw, group)
    epoch, given = 0, 0

    def is_known() -> bool:
        nonlocal epoch, given
        answer = _heartbeat(raw, group, epoch, [topic])
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            given = sum(len(found.partitions) for found in answer.assignment.topic_partitions)
        return given == partitions

    wait_until(is_known)
    assert _heartbeat(raw, group, -1, None).error_code == 0


def _heartbeat(raw: RawClient, group: str, epoch: int, topics: Sequence[str] | None) -> Any:
    return raw.ask(
        wire.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id="first",
        member_epoch=epoch,
        rebalance_timeout=60_000,
        subscribed_topic_names=topics,
        topic_partitions=None if epoch else (),
    )
