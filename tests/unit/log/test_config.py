import pickle
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.make_config_docs import TARGET, render
from siltstone.errors import ConfigError, UnknownSettingError
from siltstone.log.config import CleanupPolicy, LogConfig
from siltstone.records.batch import TimestampType
from siltstone.records.compression import Codec
from siltstone.settings import MAX_INT, MAX_LONG

# Kafka 4.3.1's own table: name, type, default. Bounds are tested one by one below.
KAFKA_SETTINGS = {
    "cleanup.policy": ("list", "delete"),
    "compression.gzip.level": ("int", "-1"),
    "compression.lz4.level": ("int", "9"),
    "compression.type": ("string", "producer"),
    "compression.zstd.level": ("int", "3"),
    "delete.retention.ms": ("long", "86400000"),
    "file.delete.delay.ms": ("long", "60000"),
    "flush.messages": ("long", "9223372036854775807"),
    "flush.ms": ("long", "9223372036854775807"),
    "index.interval.bytes": ("int", "4096"),
    "local.retention.bytes": ("long", "-2"),
    "local.retention.ms": ("long", "-2"),
    "max.compaction.lag.ms": ("long", "9223372036854775807"),
    "max.message.bytes": ("int", "1048588"),
    "message.timestamp.after.max.ms": ("long", "3600000"),
    "message.timestamp.before.max.ms": ("long", "9223372036854775807"),
    "message.timestamp.type": ("string", "CreateTime"),
    "min.cleanable.dirty.ratio": ("double", "0.5"),
    "min.compaction.lag.ms": ("long", "0"),
    "min.insync.replicas": ("int", "1"),
    "preallocate": ("boolean", "false"),
    "remote.log.copy.disable": ("boolean", "false"),
    "remote.log.delete.on.disable": ("boolean", "false"),
    "remote.storage.enable": ("boolean", "false"),
    "retention.bytes": ("long", "-1"),
    "retention.ms": ("long", "604800000"),
    "segment.bytes": ("int", "1073741824"),
    "segment.index.bytes": ("int", "10485760"),
    "segment.jitter.ms": ("long", "0"),
    "segment.ms": ("long", "604800000"),
    "unclean.leader.election.enable": ("boolean", "false"),
}

log_configs = st.builds(
    LogConfig,
    cleanup_policy=st.frozensets(st.sampled_from(CleanupPolicy)),
    min_cleanable_dirty_ratio=st.floats(0, 1),
    min_compaction_lag_ms=st.integers(0, 1000),
    max_compaction_lag_ms=st.integers(1000, MAX_LONG),
    segment_bytes=st.integers(14, MAX_INT),
    retention_bytes=st.integers(-MAX_LONG - 1, MAX_LONG),
    preallocate=st.booleans(),
    compression_type=st.none() | st.sampled_from(Codec),
    message_timestamp_type=st.sampled_from(TimestampType),
)


def test_names_types_and_defaults_are_kafkas() -> None:
    ours = {
        setting.name: (setting.kind.name, setting.format(setting.default))
        for setting in LogConfig.settings()
    }

    assert ours == KAFKA_SETTINGS


def test_every_attribute_is_a_setting_with_the_same_words() -> None:
    attributes = [field.name for field in fields(LogConfig)]

    assert [setting.name.replace(".", "_") for setting in LogConfig.settings()] == attributes


def test_overrides_go_on_top_of_the_brokers_defaults() -> None:
    broker = LogConfig.parse({"segment.bytes": "1000", "retention.ms": "5"})

    topic = LogConfig.parse({"segment.bytes": "2000"}, defaults=broker)

    assert (topic.segment_bytes, topic.retention_ms) == (2000, 5)
    assert LogConfig.parse({}) == LogConfig()


@given(log_configs)
def test_a_config_survives_as_text(config: LogConfig) -> None:
    assert LogConfig.parse(config.to_strings()) == config


def test_words_become_values() -> None:
    config = LogConfig.parse(
        {
            "cleanup.policy": "compact, delete",
            "compression.type": "uncompressed",
            "message.timestamp.type": "LogAppendTime",
            "preallocate": "TRUE",
        }
    )

    assert config.cleanup_policy == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    assert config.compression_type is Codec.NONE
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.preallocate is True


@pytest.mark.parametrize(
    ("policy", "is_compacted", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_a_policy_compacts_or_deletes_or_both_or_neither(
    policy: str, is_compacted: bool, deletes: bool
) -> None:
    config = LogConfig.parse({"cleanup.policy": policy})

    assert (config.is_compacted, config.deletes) == (is_compacted, deletes)


@pytest.mark.parametrize(
    ("name", "lowest", "below", "reason"),
    [
        ("segment.bytes", "14", "13", "must be at least 14"),
        ("segment.ms", "1", "0", "must be at least 1"),
        ("segment.jitter.ms", "0", "-1", "must be at least 0"),
        ("segment.index.bytes", "4", "3", "must be at least 4"),
        ("index.interval.bytes", "0", "-1", "must be at least 0"),
        ("flush.messages", "1", "0", "must be at least 1"),
        ("flush.ms", "0", "-1", "must be at least 0"),
        ("retention.ms", "-1", "-2", "must be at least -1"),
        ("max.message.bytes", "0", "-1", "must be at least 0"),
        ("delete.retention.ms", "0", "-1", "must be at least 0"),
        ("min.compaction.lag.ms", "0", "-1", "must be at least 0"),
        ("max.compaction.lag.ms", "1", "0", "must be at least 1"),
        ("min.cleanable.dirty.ratio", "0", "-0.1", "must be 0 to 1"),
        ("file.delete.delay.ms", "0", "-1", "must be at least 0"),
        ("compression.gzip.level", "-1", "-2", "must be -1 or 1 to 9"),
        ("compression.gzip.level", "1", "0", "must be -1 or 1 to 9"),
        ("compression.lz4.level", "1", "0", "must be 1 to 17"),
        ("compression.zstd.level", "-131072", "-131073", "must be -131072 to 22"),
        ("message.timestamp.before.max.ms", "0", "-1", "must be at least 0"),
        ("message.timestamp.after.max.ms", "0", "-1", "must be at least 0"),
        ("min.insync.replicas", "1", "0", "must be at least 1"),
        ("local.retention.ms", "-2", "-3", "must be at least -2"),
        ("local.retention.bytes", "-2", "-3", "must be at least -2"),
    ],
)
def test_the_lowest_value_is_taken_and_the_next_below_is_refused(
    name: str, lowest: str, below: str, reason: str
) -> None:
    LogConfig.parse({name: lowest})

    with pytest.raises(ConfigError) as caught:
        LogConfig.parse({name: below})
    assert str(caught.value) == f"{name} {reason}, got {below}"


@pytest.mark.parametrize(
    ("name", "highest", "above", "reason"),
    [
        ("min.cleanable.dirty.ratio", "1", "1.5", "must be 0 to 1"),
        ("compression.gzip.level", "9", "10", "must be -1 or 1 to 9"),
        ("compression.lz4.level", "17", "18", "must be 1 to 17"),
        ("compression.zstd.level", "22", "23", "must be -131072 to 22"),
        ("segment.bytes", str(MAX_INT), "2147483648", "must be a 32-bit integer, at least 14"),
        ("retention.bytes", str(MAX_LONG), "9223372036854775808", "must be a 64-bit integer"),
    ],
)
def test_the_highest_value_is_taken_and_the_next_above_is_refused(
    name: str, highest: str, above: str, reason: str
) -> None:
    LogConfig.parse({name: highest})

    with pytest.raises(ConfigError) as caught:
        LogConfig.parse({name: above})
    assert str(caught.value) == f"{name} {reason}, got {above}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"min.dirty.ratio": "0.1"},
            "unknown setting min.dirty.ratio: did you mean min.cleanable.dirty.ratio?",
        ),
        ({"zzz": "1"}, "unknown setting zzz"),
        (
            {"cleanup.policy": "compct"},
            "cleanup.policy must be a list of delete, compact, with commas, each at most once, "
            "got compct",
        ),
        (
            {"compression.type": "none"},
            "compression.type must be one of uncompressed, zstd, lz4, snappy, gzip, producer, "
            "got none",
        ),
        ({"preallocate": "yes"}, "preallocate must be true or false, got yes"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "min.compaction.lag.ms must not exceed max.compaction.lag.ms (4), got 5",
        ),
        (
            {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
            "remote.storage.enable must be false with cleanup.policy=compact, got true",
        ),
        (
            {"remote.storage.enable": "true", "local.retention.ms": "-1"},
            "local.retention.ms must be 0 to retention.ms (604800000), got -1",
        ),
        (
            {
                "remote.storage.enable": "true",
                "retention.bytes": "10",
                "local.retention.bytes": "11",
            },
            "local.retention.bytes must be 0 to retention.bytes (10), got 11",
        ),
        (
            {
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "true",
                "retention.ms": "10",
                "local.retention.ms": "9",
            },
            "local.retention.ms must equal retention.ms (10) with remote.log.copy.disable=true, "
            "got 9",
        ),
    ],
)
def test_an_impossible_setting_is_refused_with_what_would_be_possible(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.parse(overrides)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    "overrides",
    [
        {"local.retention.ms": "-1"},  # without remote storage it means nothing
        {"remote.storage.enable": "true", "cleanup.policy": ""},
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "-1"},
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "5"},
        {"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "5"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    ],
)
def test_what_kafka_accepts_is_accepted(overrides: dict[str, str]) -> None:
    LogConfig.parse(overrides)


def test_a_config_is_checked_however_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"segment.bytes must be at least 14, got 1"):
        LogConfig(segment_bytes=1)
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms must not exceed"):
        replace(LogConfig(min_compaction_lag_ms=5), max_compaction_lag_ms=4)


def test_errors_survive_the_way_between_processes() -> None:
    for overrides in ({"segmnt.bytes": "1"}, {"segment.bytes": "1"}):
        with pytest.raises(ConfigError) as caught:
            LogConfig.parse(overrides)

        copy = pickle.loads(pickle.dumps(caught.value))

        assert str(copy) == str(caught.value)
        assert type(copy) in (ConfigError, UnknownSettingError)


def test_a_compacted_log_rolls_no_later_than_its_compaction_lag() -> None:
    overrides = {"segment.ms": "100", "max.compaction.lag.ms": "50"}

    assert LogConfig.parse(overrides).max_segment_ms == 100
    assert LogConfig.parse({**overrides, "cleanup.policy": "compact"}).max_segment_ms == 50


@pytest.mark.parametrize(
    ("compression_type", "level"),
    [("gzip", -1), ("lz4", 9), ("zstd", 3), ("snappy", None), ("producer", None)],
)
def test_a_codec_has_its_own_level(compression_type: str, level: int | None) -> None:
    config = LogConfig.parse({"compression.type": compression_type})

    assert config.compression_level == level


def test_local_retention_follows_the_total_unless_it_is_set() -> None:
    total = LogConfig(retention_ms=10, retention_bytes=20)
    local = replace(total, local_retention_ms=1, local_retention_bytes=2)

    assert total.effective_local_retention_ms == 10
    assert total.effective_local_retention_bytes == 20
    assert local.effective_local_retention_ms == 1
    assert local.effective_local_retention_bytes == 2


def test_the_configuration_page_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run scripts/make_config_docs.py"
