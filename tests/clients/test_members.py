"""Members in processes of their own, of the clients that are written in Python: they come, go, die.

Who has what is what the broker tells about the group.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import MakeTopic
from tests.support.serving import ServedBroker

WAIT_SECONDS = 120

KAFKA_PYTHON = """
import signal, sys
import kafka
servers, group, topic = sys.argv[1:]
consumer = kafka.KafkaConsumer(topic, bootstrap_servers=servers, group_id=group,
                               session_timeout_ms=3000, heartbeat_interval_ms=100)
is_over = []
signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
while not is_over:
    consumer.poll(timeout_ms=50)
consumer.close()
"""

AIOKAFKA = """
import asyncio, signal, sys
import aiokafka
servers, group, topic = sys.argv[1:]
async def run():
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=group,
                                         session_timeout_ms=3000, heartbeat_interval_ms=100)
    await consumer.start()
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    await is_over.wait()
    await consumer.stop()
asyncio.run(run())
"""


class Member(Protocol):
    """A member that can be ended: in order with SIGTERM, or at once with SIGKILL."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def shares_of(admin: AdminClient, group: str) -> tuple[list[list[int]], str]:
    """Return the partitions of each member that has some, and what else the broker tells."""
    described = admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)
    shares = {
        member.member_id: sorted(place.partition for place in member.assignment.topic_partitions)
        for member in described.members
        if member.assignment is not None
    }
    found = sorted(share for share in shares.values() if share)
    return found, f"{described.state.name}: {shares}"


def watch_members(bootstrap: str, group: str, start: Callable[[], Member]) -> None:
    """Let members of a group that reads two partitions come, go and die."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def wait_for(expected: list[list[int]]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := shares_of(admin, group))[0] != expected:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    members = [start()]
    try:
        wait_for([[0, 1]])
        members.append(start())
        wait_for([[0], [1]])
        members[1].terminate()
        wait_for([[0, 1]])
        members.append(start())
        wait_for([[0], [1]])
        members[0].kill()
        wait_for([[0, 1]])
    finally:
        for member in members:
            member.kill()


class PythonMember:
    """A Python program that reads in a group."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", program, *arguments])

    def terminate(self) -> None:
        self._process.terminate()
        assert self._process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_SECONDS)


@pytest.mark.parametrize("program", [KAFKA_PYTHON, AIOKAFKA], ids=["kafka-python", "aiokafka"])
def test_members_come_go_and_die(served: ServedBroker, make_topic: MakeTopic, program: str) -> None:
    topic = make_topic(2)

    watch_members(
        served.bootstrap, topic, lambda: PythonMember(program, served.bootstrap, topic, topic)
    )
