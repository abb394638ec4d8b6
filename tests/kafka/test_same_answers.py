"""The tests of our broker that any broker must pass, against a real Kafka: ours answers the same.

Left out is what only ours promises: the nearest name to a wrong one, answers that end with a whole
batch (Kafka's end where the limit is, in the middle of one), and that a request without records is
answered (Kafka never does), or one for far too many partitions refused (Kafka's controller fails),
or one for more partitions of a coordinator's topic (Kafka leaves that to its tools).
"""

from collections.abc import Iterator

import pytest

from tests.clients import (
    test_administering,
    test_confluent,
    test_fetching,
    test_producing,
    test_transactional_offsets,
    test_transactions,
)
from tests.clients.conftest import make_topic
from tests.clients.test_confluent import admin
from tests.clients.test_transactional_offsets import group
from tests.clients.test_transactions import make_producer, new_id
from tests.kafka.broker import KafkaBroker
from tests.support.serving import RawClient

__all__ = ["admin", "group", "make_producer", "make_topic", "new_id"]


class ServedKafka:
    """A real Kafka where the tests expect one of ours."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.bootstrap = broker.bootstrap
        self.port = int(broker.bootstrap.rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def served(kafka_broker: KafkaBroker) -> ServedKafka:
    return ServedKafka(kafka_broker)


@pytest.fixture
def raw(served: ServedKafka) -> Iterator[RawClient]:
    with RawClient(served.port) as client:
        yield client


_ONLY_OURS = {
    "test_a_partition_without_records_is_refused",
    "test_no_more_partitions_are_added_than_may_be_at_once",
    "test_no_partitions_are_added_where_coordinators_keep_their_state",
    "test_the_first_batch_comes_whole_and_the_rest_as_far_as_it_fits",
    "test_a_wrong_setting_is_refused_with_its_name",
    "test_a_client_that_leaves_while_it_waits_leaves_nothing_behind",
    "test_a_topic_is_made_when_somebody_writes_to_it",
    "test_the_cluster_is_this_broker",
}
for _module in (
    test_administering,
    test_confluent,
    test_fetching,
    test_producing,
    test_transactional_offsets,
    test_transactions,
):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in _ONLY_OURS:
            globals()[_name] = _test
