"""The settings of coordinators that are refused: what is said about them."""

import pytest

from siltstone.broker.config import IGNORED, parse_server_config
from siltstone.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "group.share.max.size",
            "7",
            "group.share.max.size is refused: share groups are not served",
        ),
        (
            "group.streams.max.size",
            "7",
            "group.streams.max.size is refused: streams groups are not served",
        ),
        (
            "transaction.two.phase.commit.enable",
            "true",
            "transaction.two.phase.commit.enable must be false: two-phase commit is not served, "
            "got true",
        ),
        (
            "group.coordinator.rebalance.protocols",
            "consumer",
            "group.coordinator.rebalance.protocols must be of classic, consumer, share, streams, "
            "with classic among them, got consumer",
        ),
        (
            "offsets.topic.compression.codec",
            "5",
            "offsets.topic.compression.codec must be the number of a codec: 0 none, 1 gzip, "
            "2 snappy, 3 lz4, 4 zstd, got 5",
        ),
        (
            "group.consumer.session.timeout.ms",
            "1000",
            "group.consumer.session.timeout.ms must be 45000 "
            "(group.consumer.min.session.timeout.ms) to 60000 "
            "(group.consumer.max.session.timeout.ms), got 1000",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_the_reason(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server_config({name: value})

    assert str(caught.value) == said


def test_heartbeats_come_more_often_than_a_session_lasts() -> None:
    settings = {
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": "5000",
    }
    with pytest.raises(ConfigError, match=r"heartbeat.* less than group\.consumer\.session"):
        parse_server_config(settings)


def test_what_has_nothing_to_act_on_is_taken() -> None:
    config = parse_server_config(dict.fromkeys(IGNORED, "1"))

    assert config.given.keys() == IGNORED
