"""Fixtures over a real Kafka. Everything under this directory carries the mark `kafka`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness, ensure_harness
from tests.kafka.log_ops import LogOps
from tests.kafka.tools import KafkaTools


class MakeBroker(Protocol):
    """Makes brokers that are not started yet; they are killed when the test is over."""

    def __call__(
        self, name: str = "broker", *, properties: Mapping[str, str] | None = None
    ) -> KafkaBroker: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def harness() -> Iterator[Harness]:
    """Our compiled Java helpers."""
    compiled = ensure_harness()
    yield compiled
    compiled.close()


@pytest.fixture(scope="session")
def kafka_tools(harness: Harness) -> KafkaTools:
    """Kafka's command line tools."""
    return KafkaTools(harness)


@pytest.fixture(scope="session")
def log_ops(harness: Harness) -> LogOps:
    """The process that drives Kafka's logs, one for all tests of the session."""
    return harness.log_ops


@pytest.fixture(scope="session")
def kafka_broker(
    harness: Harness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """A running broker that tests share: give topics names of their own, and leave it running."""
    with KafkaBroker(harness, tmp_path_factory.mktemp("kafka")) as broker:
        broker.start()
        yield broker


@pytest.fixture
def make_broker(harness: Harness, tmp_path: Path) -> Iterator[MakeBroker]:
    """Brokers of a test's own, to stop, kill and tamper with."""
    made: list[KafkaBroker] = []

    def make(name: str = "broker", *, properties: Mapping[str, str] | None = None) -> KafkaBroker:
        broker = KafkaBroker(harness, tmp_path / name, properties=properties)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.kill()
