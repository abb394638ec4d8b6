"""The settings of consumer groups and their offsets: Kafka's names, types and defaults."""

from dataclasses import dataclass
from typing import Final

from siltstone.errors import ConfigError
from siltstone.records.compression import Codec
from siltstone.settings import INT, LONG, MAX_INT, Bound, Kind, at_least, setting

_TEXT: Final[Kind[str]] = Kind("string", "text", str, str)
PROTOCOLS: Final = ("classic", "consumer", "share", "streams")
MIGRATION_POLICIES: Final = ("disabled", "downgrade", "upgrade", "bidirectional")
ASSIGNORS: Final = ("uniform", "range")


def _are_assignors(value: str) -> bool:
    return all(name in ASSIGNORS for name in split(value))


def _are_protocols(value: str) -> bool:
    names = split(value)
    return "classic" in names and all(name in PROTOCOLS for name in names)


def split(value: str) -> list[str]:
    """Return what a setting lists, with commas between."""
    return [name.strip() for name in value.split(",")]


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """What a broker is told about groups. Without slots: several such make up its settings."""

    group_coordinator_rebalance_protocols: str = setting(
        "group.coordinator.rebalance.protocols",
        _TEXT,
        "classic,consumer,streams",
        Bound(f"of {', '.join(PROTOCOLS)}, with classic among them", _are_protocols),
        doc="Which protocols groups may use; share and streams are not served.",
    )

    # The classic protocol.
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        INT,
        3000,
        at_least(0),
        doc="How long the first members of a group wait for others.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", INT, 6000, at_least(0), doc="The shortest session timeout."
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        at_least(0),
        doc="The longest session timeout.",
    )
    group_max_size: int = setting(
        "group.max.size", INT, MAX_INT, at_least(1), doc="The most members of a group."
    )

    # The consumer protocol.
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        doc="When a member of the consumer protocol counts as dead.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        doc="The least that `group.consumer.session.timeout.ms` may be.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        at_least(1),
        doc="The most that `group.consumer.session.timeout.ms` may be.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5000,
        at_least(1),
        doc="How often members of the consumer protocol are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5000,
        at_least(1),
        doc="The least that `group.consumer.heartbeat.interval.ms` may be.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        at_least(1),
        doc="The most that `group.consumer.heartbeat.interval.ms` may be.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT,
        MAX_INT,
        at_least(1),
        doc="The most members of a group of the consumer protocol.",
    )
    group_consumer_assignors: str = setting(
        "group.consumer.assignors",
        _TEXT,
        "uniform,range",
        Bound(f"of {', '.join(ASSIGNORS)}", _are_assignors),
        doc="The assignors on the server's side; the first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        _TEXT,
        "bidirectional",
        Bound(f"one of {', '.join(MIGRATION_POLICIES)}", lambda v: v in MIGRATION_POLICIES),
        doc="Whether a group with members may change from one protocol to the other.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        INT,
        1000,
        at_least(0),
        doc="How long a group of the consumer protocol waits until it shares out anew.",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        at_least(0),
        doc="The least that `group.consumer.assignment.interval.ms` may be.",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        at_least(0),
        doc="The most that `group.consumer.assignment.interval.ms` may be.",
    )

    # Offsets.
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        INT,
        4096,
        at_least(0),
        doc="The most that a client may have remembered with an offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        INT,
        10_080,
        at_least(1),
        doc="How long offsets are kept that nobody uses.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        at_least(1),
        doc="How often offsets are looked for that may go.",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        INT,
        50,
        at_least(1),
        doc="Partitions of `__consumer_offsets`, when it is made.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        INT,
        3,
        at_least(1),
        doc="Replicas of `__consumer_offsets`; no more than there are brokers.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        INT,
        104_857_600,
        at_least(1),
        doc="`segment.bytes` of `__consumer_offsets`, when it is made.",
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        INT,
        0,
        Bound(
            "the number of a codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
            lambda value: value in tuple(Codec),
        ),
        doc="How what is written to `__consumer_offsets` is compressed.",
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        INT,
        5 << 20,
        at_least(1),
        doc="How much of `__consumer_offsets` is read at a time after a start.",
    )

    def check_groups(self) -> None:
        """Raise ConfigError if settings contradict each other, as Kafka does."""
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            attribute = what.replace(".", "_")
            value = getattr(self, f"group_consumer_{attribute}")
            low = getattr(self, f"group_consumer_min_{attribute}")
            high = getattr(self, f"group_consumer_max_{attribute}")
            if not low <= value <= high:
                raise ConfigError(
                    f"group.consumer.{what}",
                    value,
                    f"must be {low} (group.consumer.min.{what}) to {high} "
                    f"(group.consumer.max.{what})",
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms",
                self.group_consumer_heartbeat_interval_ms,
                "must be less than group.consumer.session.timeout.ms",
            )
