"""The tests of groups that any broker must pass, against a real Kafka: ours answers the same.

Left out: a pattern finds new topics within a second here, within ten minutes in Kafka; and Kafka at
times tells a new member among cooperative ones of librdkafka that there is no such group, for which
librdkafka gives up.
"""

from tests.clients import (
    test_consumer_groups,
    test_group_answers,
    test_group_migration,
    test_groups,
    test_members,
)
from tests.clients.conftest import make_topic
from tests.clients.test_consumer_groups import group
from tests.kafka.test_same_answers import raw, served

__all__ = ["group", "make_topic", "raw", "served"]

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
