"""The settings of a topic: Kafka's names, types, bounds and defaults (those of 4.3.1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from siltstone.errors import ConfigError
from siltstone.records.batch import TimestampType
from siltstone.records.compression import Codec
from siltstone.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    MAX_LONG,
    Bound,
    Kind,
    Setting,
    at_least,
    between,
    check_settings,
    choice,
    format_settings,
    list_of,
    parse_settings,
    setting,
    settings_of,
)

UNLIMITED: Final = -1
"""A retention that never removes anything."""

SAME_AS_TOTAL: Final = -2
"""A local retention that follows the total one."""


class CleanupPolicy(Enum):
    """What happens to old data."""

    DELETE = "delete"
    COMPACT = "compact"


_CLEANUP_POLICIES: Final = list_of({policy.value: policy for policy in CleanupPolicy})
_TIMESTAMP_TYPES: Final = choice(
    {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
)
_COMPRESSION_TYPES: Final[Kind[Codec | None]] = choice(
    {
        "uncompressed": Codec.NONE,
        "zstd": Codec.ZSTD,
        "lz4": Codec.LZ4,
        "snappy": Codec.SNAPPY,
        "gzip": Codec.GZIP,
        "producer": None,
    }
)
_GZIP_LEVELS: Final[Bound[int]] = Bound(
    "-1 or 1 to 9", lambda level: level == -1 or 1 <= level <= 9
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one topic, complete: what is not overridden has its default."""

    cleanup_policy: frozenset[CleanupPolicy] = setting(
        "cleanup.policy",
        _CLEANUP_POLICIES,
        frozenset({CleanupPolicy.DELETE}),
        synonyms=("log.cleanup.policy",),
        doc="`delete` removes whole segments by age and size, `compact` keeps the last value of "
        "each key, both do both; an empty list keeps everything.",
    )

    # Compaction.
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        between(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Clean a log once more than this share of its bytes is dirty.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        LONG,
        0,
        at_least(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="Leave a record alone for this long before a pass may discard it; not above "
        "`max.compaction.lag.ms`.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        at_least(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="Clean a log whose oldest dirty record is older than this, whatever its dirty ratio.",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        LONG,
        86_400_000,
        at_least(0),
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="Keep tombstones and transaction markers for this long after a pass first saw them, "
        "so that a consumer which reads from the start still learns of the deletion.",
    )

    # Segments and their indexes.
    segment_bytes: int = setting(
        "segment.bytes",
        INT,
        1_073_741_824,
        at_least(14),
        synonyms=("log.segment.bytes",),
        doc="Roll a segment before it grows beyond this. Kafka 4.3.1 takes no less than 1048576 "
        "here, but opens smaller segments.",
    )
    segment_ms: int = setting(
        "segment.ms",
        LONG,
        604_800_000,
        at_least(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="Roll a segment when it is this old, even if it is not full.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        LONG,
        0,
        at_least(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Roll earlier by a random time of up to this, so that not all partitions roll at once.",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        INT,
        10_485_760,
        at_least(4),
        synonyms=("log.index.size.max.bytes",),
        doc="Size that an index is given while its segment is active; a full index rolls the "
        "segment. Below 12 no entry fits.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        INT,
        4096,
        at_least(0),
        synonyms=("log.index.interval.bytes",),
        doc="Add an index entry once more than this many bytes were appended since the last one.",
    )
    preallocate: bool = setting(
        "preallocate",
        BOOLEAN,
        False,
        synonyms=("log.preallocate",),
        doc="Create a segment's file at its full size and cut it when it rolls.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        LONG,
        60_000,
        at_least(0),
        synonyms=("log.segment.delete.delay.ms",),
        doc="Wait this long between marking a file as deleted and removing it.",
    )

    # Retention and durability.
    retention_ms: int = setting(
        "retention.ms",
        LONG,
        604_800_000,
        at_least(UNLIMITED),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="With `delete`, remove segments whose newest record is older than this; -1 never does.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        LONG,
        UNLIMITED,
        synonyms=("log.retention.bytes",),
        doc="With `delete`, remove the oldest segments of a partition while the rest still has "
        "this many bytes; a negative number never does.",
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG,
        MAX_LONG,
        at_least(1),
        synonyms=("log.flush.interval.messages",),
        doc="Flush a log to disk after this many records.",
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG,
        MAX_LONG,
        at_least(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Flush a log to disk when its last flush is this long ago.",
    )

    # Records.
    max_message_bytes: int = setting(
        "max.message.bytes",
        INT,
        1_048_588,
        at_least(0),
        synonyms=("message.max.bytes",),
        doc="Refuse batches that are larger than this, as they arrive.",
    )
    compression_type: Codec | None = setting(  # noqa: RUF009 - a field, not a value
        "compression.type",
        _COMPRESSION_TYPES,
        None,
        synonyms=("compression.type",),
        doc="Codec that batches are stored with; `producer` keeps what the producer chose.",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        INT,
        -1,
        _GZIP_LEVELS,
        synonyms=("compression.gzip.level",),
        doc="Level for `compression.type=gzip`; -1 leaves it to the library.",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        INT,
        9,
        between(1, 17),
        synonyms=("compression.lz4.level",),
        doc="Level for `compression.type=lz4`.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        INT,
        3,
        between(-131_072, 22),
        synonyms=("compression.zstd.level",),
        doc="Level for `compression.type=zstd`.",
    )
    message_timestamp_type: TimestampType = setting(  # noqa: RUF009 - a field, not a value
        "message.timestamp.type",
        _TIMESTAMP_TYPES,
        TimestampType.CREATE_TIME,
        synonyms=("log.message.timestamp.type",),
        doc="Whether a record's time is the producer's or that of the append.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        at_least(0),
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="With `CreateTime`, refuse records that are further in the past than this.",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        at_least(0),
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="With `CreateTime`, refuse records that are further in the future than this. Kafka "
        "before 4.0 had no limit.",
    )

    # Replication.
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        INT,
        1,
        at_least(1),
        synonyms=("min.insync.replicas",),
        doc="Refuse writes with `acks=all` while fewer replicas than this are in sync.",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        synonyms=("unclean.leader.election.enable",),
        doc="Let a replica that is not in sync become leader when no other is left, and lose "
        "what it does not have.",
    )

    # Tiers.
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        BOOLEAN,
        False,
        doc="Copy closed segments to remote storage. Excludes `cleanup.policy=compact`.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        doc="Copy nothing more to remote storage, and only read what is there; local and total "
        "retention must then be the same.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        doc="Delete what is in remote storage when `remote.storage.enable` is turned off.",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        LONG,
        SAME_AS_TOTAL,
        at_least(SAME_AS_TOTAL),
        synonyms=("log.local.retention.ms",),
        doc="With remote storage, keep local segments for this long; -2 means `retention.ms`, "
        "which it must not exceed.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        LONG,
        SAME_AS_TOTAL,
        at_least(SAME_AS_TOTAL),
        synonyms=("log.local.retention.bytes",),
        doc="With remote storage, keep this many bytes of local segments; -2 means "
        "`retention.bytes`, which it must not exceed.",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "min.compaction.lag.ms",
                self.min_compaction_lag_ms,
                f"must not exceed max.compaction.lag.ms ({self.max_compaction_lag_ms})",
            )
        if self.remote_storage_enable:
            self._check_remote_storage()

    @classmethod
    def parse(
        cls, overrides: Mapping[str, str], *, defaults: "LogConfig | None" = None
    ) -> "LogConfig":
        """Put a topic's overrides on top of the broker's defaults, or of Kafka's."""
        return parse_settings(cls() if defaults is None else defaults, overrides)

    @classmethod
    def settings(cls) -> Iterator[Setting[Any]]:
        """Go through all settings, in the order of the documentation."""
        return iter(settings_of(cls).values())

    def to_strings(self) -> dict[str, str]:
        """Return every setting by name, as text that `parse` takes back."""
        return format_settings(self)

    @property
    def is_compacted(self) -> bool:
        """Whether the last value of each key stays."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether retention removes segments by age and size."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Age at which the active segment rolls, before jitter.

        A compacted log rolls no later than its records must become cleanable.
        """
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def compression_level(self) -> int | None:
        """Level for `compression_type`; None if it has none."""
        match self.compression_type:
            case Codec.GZIP:
                return self.compression_gzip_level
            case Codec.LZ4:
                return self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    @property
    def effective_local_retention_ms(self) -> int:
        """The age up to which segments stay on the local disk; -1 is unlimited."""
        if self.local_retention_ms == SAME_AS_TOTAL:
            return self.retention_ms
        return self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """The size up to which segments stay on the local disk; negative is unlimited."""
        if self.local_retention_bytes == SAME_AS_TOTAL:
            return self.retention_bytes
        return self.local_retention_bytes

    def _check_remote_storage(self) -> None:
        if self.is_compacted:
            raise ConfigError(
                "remote.storage.enable", "true", "must be false with cleanup.policy=compact"
            )
        self._check_local_retention("ms", self.local_retention_ms, self.retention_ms)
        self._check_local_retention("bytes", self.local_retention_bytes, self.retention_bytes)

    def _check_local_retention(self, unit: str, local: int, total: int) -> None:
        if local == SAME_AS_TOTAL:
            return
        if self.remote_log_copy_disable and local != total:
            reason = f"must equal retention.{unit} ({total}) with remote.log.copy.disable=true"
        elif total >= 0 and not 0 <= local <= total:
            reason = f"must be 0 to retention.{unit} ({total})"
        else:
            return
        raise ConfigError(f"local.retention.{unit}", local, reason)
