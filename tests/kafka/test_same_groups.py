"""The tests of groups that any broker must pass, against a real Kafka: ours answers the same.

Left out: a pattern finds new topics within a second here, within ten minutes in Kafka; and Kafka at
times tells a new member among cooperative ones of librdkafka that there is no such group, for which
librdkafka gives up.
"""

import pytest

from tests.clients import (
    test_consumer_groups,
    test_group_answers,
    test_group_migration,
    test_groups,
    test_members,
)
from tests.clients.conftest import MakeTopic
from tests.clients.conftest import make_topic as make_led_topic
from tests.clients.test_consumer_groups import group
from tests.kafka.test_same_answers import raw, served
from tests.support.groups import wait_until_known
from tests.support.serving import RawClient

__all__ = ["group", "make_led_topic", "raw", "served"]


@pytest.fixture
def make_topic(raw: RawClient, make_led_topic: MakeTopic) -> MakeTopic:
    """Topics that the coordinator of groups has heard of, too."""

    def make(partitions: int = 1, **config: str) -> str:
        name = make_led_topic(partitions, **config)
        wait_until_known(raw, name, partitions)
        return name

    return make


_ONLY_OURS = {
    "test_a_pattern_finds_the_topics_that_come_later",
    "test_a_group_of_cooperative_members_is_upgraded_and_downgraded",
}
for _module in (
    test_consumer_groups,
    test_group_answers,
    test_group_migration,
    test_groups,
    test_members,
):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in _ONLY_OURS:
            globals()[_name] = _test
