"""Members of groups in raw frames, a connection for each: what a rebalance costs the broker."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.broker_load import AnyBroker, cpu_seconds
from benchmarks.harness import Work, WrongAnswerError
from siltstone.broker import wire
from tests.support.serving import RawClient

MEMBER_COUNT: Final = 100
_JOIN_VERSION: Final = 9
_SYNC_VERSION: Final = 5
_HEARTBEAT_VERSION: Final = 1
_SHARE: Final = b"x" * 50
_TRIES: Final = 100
_LEFT: Final = -1


@dataclass(slots=True)
class NewMember:
    """A member of the consumer protocol."""

    client: RawClient
    member_id: str
    epoch: int = 0
    owned: tuple[dict[str, Any], ...] = ()

    def heartbeat(self, group: str, **values: Any) -> bool:
        """Say that it lives, and what it has; return whether it was told something else."""
        answer = self.client.ask(
            wire.CONSUMER_GROUP_HEARTBEAT,
            _HEARTBEAT_VERSION,
            group_id=group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            **{"topic_partitions": self.owned, **values},
        )
        if answer.error_code != 0:
            raise WrongAnswerError(f"a heartbeat of {self.member_id} was answered with {answer}")
        is_news = answer.member_epoch != self.epoch or answer.assignment is not None
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = tuple(
                {"topic_id": topic.topic_id, "partitions": topic.partitions}
                for topic in answer.assignment.topic_partitions
            )
        return is_news

    @property
    def owned_count(self) -> int:
        return sum(len(topic["partitions"]) for topic in self.owned)


class Bench:
    """One broker under groups."""

    def __init__(
        self,
        broker: AnyBroker,
        *,
        committed_topic: str,
        committed_partitions: int,
        shared_topic: str,
        shared_partitions: int,
    ) -> None:
        self._broker = broker
        self._committed_topic = committed_topic
        self._committed_partitions = committed_partitions
        self._shared_topic = shared_topic
        self._shared_partitions = shared_partitions
        self._number = 0

    @property
    def _port(self) -> int:
        return int(self._broker.bootstrap.rsplit(":", 1)[1])

    def _new_group(self, raw: RawClient) -> str:
        """Find a name, and wait until the broker looks after groups: Kafka first makes a topic."""
        self._number += 1
        name = f"bench-{self._number}"
        asked = [{"group_id": name, "topics": None}]
        for _ in range(_TRIES):
            found = raw.ask(wire.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[name])
            if (
                found.coordinators[0].error_code == 0
                and raw.ask(wire.OFFSET_FETCH, 8, groups=asked).groups[0].error_code == 0
            ):
                return name
            time.sleep(0.1)
        raise WrongAnswerError(f"nobody coordinates {name}")

    @contextmanager
    def _clients(self) -> Iterator[list[RawClient]]:
        with ExitStack() as stack:
            yield [stack.enter_context(RawClient(self._port)) for _ in range(MEMBER_COUNT)]

    # The classic protocol

    def classic(self, rounds: int) -> Work:
        """Bring all members into one generation after the other."""
        with self._clients() as clients:
            group = self._new_group(clients[0])
            members = [self._get_id(group, client) for client in clients]
            self._generation(group, clients, members)
            cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
            for _ in range(rounds):
                self._generation(group, clients, members)
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(self._broker.pid) - cpu
            self._leave(group, clients[0], members)
        return Work(seconds, 0, rounds * MEMBER_COUNT, rounds, details={"cpu_seconds": cpu})

    def _get_id(self, group: str, client: RawClient) -> str:
        self._send_join(group, client, "")
        return str(client.receive(wire.JOIN_GROUP, _JOIN_VERSION).member_id)

    def _send_join(self, group: str, client: RawClient, member_id: str) -> None:
        client.send(
            wire.JOIN_GROUP,
            _JOIN_VERSION,
            {
                "group_id": group,
                "session_timeout": 60_000,
                "rebalance_timeout": 60_000,
                "member_id": member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": self._subscription()}],
            },
        )

    def _subscription(self) -> bytes:
        """Say what a member reads, with another word each time: the same again changes nothing."""
        topic = self._shared_topic.encode()
        word = time.perf_counter_ns()
        return struct.pack(f">hih{len(topic)}siq", 0, 1, len(topic), topic, 8, word)

    def _generation(self, group: str, clients: list[RawClient], members: list[str]) -> None:
        answers = self._join_all(group, clients, members)
        found = {(a.error_code, a.generation_id) for a in answers}
        if len(found) != 1:
            raise WrongAnswerError(f"members of {group} are in different generations: {found}")
        self._sync_all(group, clients, members, answers)

    def _join_all(self, group: str, clients: list[RawClient], members: list[str]) -> list[Any]:
        for client, member_id in zip(clients, members, strict=True):
            self._send_join(group, client, member_id)
        return [client.receive(wire.JOIN_GROUP, _JOIN_VERSION) for client in clients]

    def _sync_all(
        self, group: str, clients: list[RawClient], members: list[str], joined: list[Any]
    ) -> None:
        for client, member_id, answer in zip(clients, members, joined, strict=True):
            shares = [{"member_id": m.member_id, "assignment": _SHARE} for m in answer.members]
            client.send(
                wire.SYNC_GROUP,
                _SYNC_VERSION,
                {
                    "group_id": group,
                    "generation_id": answer.generation_id,
                    "member_id": member_id,
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                    "assignments": shares,
                },
            )
        for client in clients:
            answer = client.receive(wire.SYNC_GROUP, _SYNC_VERSION)
            if answer.assignment != _SHARE:
                raise WrongAnswerError(f"a member of {group} got {answer}")

    def _leave(self, group: str, client: RawClient, members: list[str]) -> None:
        leavers = [{"member_id": member_id} for member_id in members]
        client.ask(wire.LEAVE_GROUP, 5, group_id=group, members=leavers)

    # The consumer protocol

    def consumer(self, rounds: int) -> Work:
        """Let one member stop to read and begin again, until all have what they are to have."""
        with self._clients() as clients:
            group = self._new_group(clients[0])
            members = [NewMember(client, f"m-{n}") for n, client in enumerate(clients)]
            for member in members:
                member.heartbeat(
                    group, rebalance_timeout=60_000, subscribed_topic_names=[self._shared_topic]
                )
            self._settle(group, members)
            cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
            for number in range(rounds):
                wanted = [] if number % 2 == 0 else [self._shared_topic]
                members[0].heartbeat(group, subscribed_topic_names=wanted)
                self._settle(group, members)
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(self._broker.pid) - cpu
            for member in members:
                member.epoch = _LEFT
                member.heartbeat(group)
        return Work(seconds, 0, rounds * MEMBER_COUNT, rounds, details={"cpu_seconds": cpu})

    def _settle(self, group: str, members: list[NewMember]) -> None:
        for _ in range(_TRIES):
            if not sum(member.heartbeat(group) for member in members):
                break
        count = sum(member.owned_count for member in members)
        if count != self._shared_partitions or len({m.epoch for m in members}) != 1:
            raise WrongAnswerError(f"{group}: {count} of {self._shared_partitions} are shared out")

    # Offsets

    def commit(self, count: int) -> Work:
        """Commit 10 offsets at a time, one request after the other, and look at the last."""
        with RawClient(self._port) as client:
            group = self._new_group(client)
            for number in range(count + 1):
                if number == 1:
                    cpu, started = cpu_seconds(self._broker.pid), time.perf_counter()
                self._commit(client, group, number)
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(self._broker.pid) - cpu
            asked = [{"group_id": group, "topics": None}]
            (answer,) = client.ask(wire.OFFSET_FETCH, 8, groups=asked).groups
        found = [p.committed_offset for p in answer.topics[0].partitions]
        if found != [count] * self._committed_partitions:
            raise WrongAnswerError(f"offsets {found} after {count} commits")
        records = count * self._committed_partitions
        return Work(seconds, 0, records, count, details={"cpu_seconds": cpu})

    def _commit(self, client: RawClient, group: str, offset: int) -> None:
        parts = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index in range(self._committed_partitions)
        ]
        client.ask(
            wire.OFFSET_COMMIT,
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": self._committed_topic, "partitions": parts}],
        )
