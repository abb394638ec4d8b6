"""Every setting of Kafka's coordinators: ours takes it with Kafka's default, or says why not."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from siltstone.broker.config import IGNORED, NOT_SERVED, BrokerConfig
from siltstone.settings import settings_of
from tests.kafka.broker import _DEFAULTS, KafkaBroker

PREFIXES = (
    "add.partitions.to.txn.",
    "group.",
    "offset.",
    "offsets.",
    "producer.id.",
    "transaction.",
    "transactional.id.",
)


def test_every_setting_of_the_coordinators_is_known(kafka_broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (future,) = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
    theirs = {
        name: entry.value for name, entry in future.result().items() if name.startswith(PREFIXES)
    }
    own = settings_of(BrokerConfig)

    unknown = {
        name
        for name in theirs
        if name not in own and name not in IGNORED and not name.startswith(tuple(NOT_SERVED))
    }
    other_defaults = {
        name: (declared.format(declared.default), theirs[name])
        for name, declared in own.items()
        if name in theirs
        and name not in _DEFAULTS  # what the tests' Kafka is told
        and declared.format(declared.default) != theirs[name]
    }

    assert len(theirs) > 50
    assert unknown == set()
    assert other_defaults == {}
