"""Groups in time: what one of them cannot do ends neither its timer nor what has been done."""

import asyncio
from dataclasses import replace
from pathlib import Path

from siltstone.coordinator.group.classic import ClassicGroup
from siltstone.coordinator.group.classic_state import JoinRequest
from siltstone.coordinator.group.consumer import ConsumerGroup
from siltstone.coordinator.group.consumer_state import Heartbeat
from siltstone.coordinator.group.members import ClientOrigin, ProtocolOffer
from siltstone.coordinator.group.registry import GroupRegistry
from siltstone.coordinator.group.service import GroupCoordinator
from tests.unit.coordinator.group.test_offset_service import (
    GROUPS,
    SUBSCRIPTION,
    Coordinated,
    FixedTopics,
)

HERE = ClientOrigin("c", "/h")
QUICK = replace(GROUPS, group_min_session_timeout_ms=1)


def join_request(session_timeout_ms: int, **offers: bytes) -> JoinRequest:
    return JoinRequest(
        member_id="",
        instance_id=None,
        origin=HERE,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=tuple(ProtocolOffer(name, metadata) for name, metadata in offers.items()),
        needs_known_id=False,
        takes_skip_assignment=False,
    )


def test_a_group_that_cannot_be_downgraded_goes_on_and_its_members_still_expire(
    tmp_path: Path,
) -> None:
    coordinated = Coordinated(tmp_path / "logs")
    registry = GroupRegistry(
        coordinated.registry.topic, coordinated.clock, FixedTopics(), lambda: QUICK
    )

    async def live() -> None:
        members = GroupCoordinator(registry)
        joining = Heartbeat(
            "m", 0, HERE, rebalance_timeout_ms=60_000, topics=("t",), owned=frozenset()
        )
        members.consumer_heartbeat("g", joining)
        # What both classic members know makes no sense, as the first one says it.
        await members.join("g", join_request(2_000, fine=SUBSCRIPTION, broken=b""))
        second = await members.join("g", join_request(60_000, broken=SUBSCRIPTION))

        left = members.consumer_heartbeat("g", Heartbeat("m", -1, HERE))

        assert left.epoch == -1
        assert isinstance(registry.find("g"), ConsumerGroup)
        while not isinstance(found := registry.find("g"), ClassicGroup):
            await asyncio.sleep(0.01)
        assert list(found.members) == [second.member_id]
        members.close()

    asyncio.run(asyncio.wait_for(live(), 120))
    coordinated.close()
