"""The settings of the broker: Kafka's names, types and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from siltstone.coordinator.group.config import GroupConfig
from siltstone.coordinator.transaction.config import TransactionConfig
from siltstone.errors import ConfigError, NotServedSettingError, UnknownSettingError
from siltstone.log.config import LogConfig
from siltstone.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    MAX_INT,
    MAX_LONG,
    Bound,
    Kind,
    at_least,
    check_settings,
    parse_settings,
    setting,
    settings_of,
)

TEXT: Final[Kind[str]] = Kind("string", "text", str, str)

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
# Broker settings for topics that count in another unit than the topic's own setting.
_UNITS_MS: Final[Mapping[str, int]] = {
    "log.roll.hours": _HOUR_MS,
    "log.roll.jitter.hours": _HOUR_MS,
    "log.retention.minutes": _MINUTE_MS,
    "log.retention.hours": _HOUR_MS,
}
# Taken and without a meaning here: by why that is so.
IGNORED_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "a broker that is alone has no controller and no replicas": (
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "metadata.log.dir",
        "offsets.commit.timeout.ms",
        "process.roles",
        "transaction.state.log.min.isr",
    ),
    "one event loop serves, and writes at once": (
        "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
    ),
    "a transaction is over when its end is answered": (
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
    ),
    "topics that match a pattern are looked for every second": (
        "group.consumer.regex.refresh.interval.ms",
    ),
    "producers expire with `log.retention.check.interval.ms`": (
        "producer.id.expiration.check.interval.ms",
    ),
    "in the `server.properties` that Kafka comes with; share groups are not served": (
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
    ),
}
IGNORED: Final = frozenset(name for names in IGNORED_FOR.values() for name in names)
# Refused, by how the names begin: whoever sets them counts on what is not here.
NOT_SERVED: Final[Mapping[str, str]] = {
    "group.share.": "share groups are not served",
    "group.streams.": "streams groups are not served",
    "share.coordinator.": "share groups are not served",
}
# May change while the broker runs; Kafka's list, as far as we have them.
DYNAMIC: Final = frozenset(
    {
        "log.cleaner.backoff.ms",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(GroupConfig, TransactionConfig):
    """Settings of one broker, complete: what is not given has its default."""

    node_id: int = setting(
        "node.id", INT, 0, at_least(0), doc="The number by which clients know this broker."
    )
    listeners: str = setting(
        "listeners",
        TEXT,
        "PLAINTEXT://127.0.0.1:9092",
        doc="Where to listen; port 0 takes any that is free.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners",
        TEXT,
        "",
        doc="Where clients are told to connect; if empty, the address that they have reached.",
    )
    log_dirs: str = setting(
        "log.dirs", TEXT, "", doc="The log directories, with commas between them."
    )

    # Topics.
    num_partitions: int = setting(
        "num.partitions", INT, 1, at_least(1), doc="Partitions of a topic that does not say."
    )
    default_replication_factor: int = setting(
        "default.replication.factor", INT, 1, at_least(1), doc="Replicas of a topic; 1 here."
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        doc="Create a topic when a client first asks for it.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, True, doc="Whether topics can be deleted."
    )

    # Connections.
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        at_least(1),
        doc="Close a connection that sends a larger request.",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", INT, 102_400, at_least(-1), doc="SO_SNDBUF; -1 leaves it."
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", INT, 102_400, at_least(-1), doc="SO_RCVBUF; -1 leaves it."
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", INT, 50, at_least(1), doc="Connections that may wait."
    )
    max_connections: int = setting(
        "max.connections", INT, MAX_INT, at_least(0), doc="Close connections beyond this many."
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        at_least(0),
        doc="Close connections of one address beyond this many.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        600_000,
        doc="Close a connection that was silent for so long; a negative number never does.",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        INT,
        500,
        at_least(1),
        doc="Read from no connection while so many requests wait for a disk.",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        LONG,
        -1,
        doc="Read no large request while those that are arriving hold so much memory; -1 is four "
        "times `socket.request.max.bytes`.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        INT,
        57_671_680,
        at_least(1024),
        doc="The most that one fetch is answered with.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        at_least(0),
        doc="How many fetch sessions are remembered.",
    )

    # Timers.
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        at_least(1),
        doc="How often retention, idle segments and deleted files are looked after.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        MAX_LONG,
        at_least(0),
        doc="How often logs are looked at whose `flush.ms` has passed.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        at_least(0),
        doc="How often recovery points, log starts and high watermarks are written down.",
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", LONG, 30_000, at_least(0), doc="When the timers first run."
    )

    # The cleaner.
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", BOOLEAN, True, doc="Whether compacted topics are cleaned."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        at_least(0),
        doc="How long the cleaner rests when there is nothing to clean.",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        INT,
        1,
        at_least(0),
        doc="How many logs are given to Spark at a time.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        Bound("above 0", lambda value: value > 0),
        doc="What all tasks of the cleaner together read and write.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        doc="Kafka's map of keys; a pass of ours has none, and takes what its tasks have.",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size", INT, 524_288, at_least(0), doc="Kafka's; without effect."
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, doc="Kafka's; without effect."
    )

    def __post_init__(self) -> None:
        check_settings(self)
        self.check_groups()


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All that a broker is told: its own settings, and the defaults of its topics.

    `given` keeps the words of the user, for those who ask where a value comes from.
    """

    broker: BrokerConfig
    topic_defaults: Mapping[str, str]  # by the topic's names
    given: Mapping[str, str]


_ALIASES: Final[Mapping[str, str]] = {"broker.id": "node.id", "log.dir": "log.dirs"}


def parse_server_config(properties: Mapping[str, str]) -> ServerConfig:
    """Sort settings into the broker's own and defaults for topics.

    Raise UnknownSettingError, with the nearest name, for one that nobody knows.
    """
    own = settings_of(BrokerConfig)
    synonyms = topic_synonyms()
    known = {*own, *synonyms, *_ALIASES, *IGNORED}
    mine: dict[str, str] = {}
    for name, value in properties.items():
        if name in own:
            mine[name] = value
        elif name in _ALIASES:
            mine.setdefault(_ALIASES[name], value)
        elif name not in known:
            for prefix, reason in NOT_SERVED.items():
                if name.startswith(prefix):
                    raise NotServedSettingError(name, reason)
            raise UnknownSettingError(name, sorted(known))
    defaults = parse_topic_defaults(properties)
    LogConfig.parse(defaults)
    return ServerConfig(parse_settings(BrokerConfig(), mine), defaults, dict(properties))


def topic_synonyms() -> dict[str, str]:
    """Return the topic setting that each broker setting gives the default of."""
    return {
        synonym: declared.name for declared in LogConfig.settings() for synonym in declared.synonyms
    }


def parse_topic_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what broker settings say about topics, by the topic's names; the strongest wins."""
    defaults = {}
    for declared in LogConfig.settings():
        for synonym in declared.synonyms:
            if synonym in properties:
                defaults[declared.name] = to_topic_unit(synonym, properties[synonym])
                break
    return defaults


def to_topic_unit(name: str, text: str) -> str:
    """Express a broker setting in the unit of the topic setting."""
    factor = _UNITS_MS.get(name, 1)
    if factor == 1:
        return text
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(name, text, "must be a whole number") from None
    return str(value * factor if value >= 0 else value)
