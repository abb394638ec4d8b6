"""Every error that siltstone raises, as one tree.

    SiltstoneError
      ConfigError              a setting is unknown or impossible
      UsageError               a command or call was asked for something that makes no sense
        UnknownTopicError        the topic or partition is not there
        TopicExistsError         the topic is already there
      StorageError             the disk, or the files on it
        CorruptBatchError        bytes disagree with their own length or checksum
        CorruptIndexError        can be rebuilt; recovery does it
        CorruptCheckpointError   a text file of offsets, epochs or topics makes no sense
        OffsetOrderError         somebody appended backwards: a bug of ours
        LogDirLockedError        another process owns the directory
        LogDirOfflineError       the disk refused; the directory is out until restart
      OffsetOutOfRangeError    the reader asked for what is not there
      NotExactError            compaction has taken apart the state that was asked for
      KeyNotLiveError          the key has no value: never seen, or deleted
      MissingExtraError        an optional package is not installed
      UnreachableError         no broker answers there
      BrokerError              a broker has refused, for a reason of its own
      DecodeError              record bytes from outside make no sense
        TruncatedDataError       the bytes end too early
        ChecksumError            the bytes are not the ones that were signed
        MalformedDataError       the bytes contradict themselves
      RequestError             the client did wrong
        InvalidRecordError       a batch that a leader must not append
        InvalidTimestampError    a record from too far in the past or the future
        RecordTooLargeError      a batch over max.message.bytes or segment.bytes
        PolicyViolationError     the topic's policy forbids it
        OutOfOrderSequenceError  an idempotent producer left a gap
        InvalidProducerEpochError  a fenced producer
        InvalidTxnStateError     a transactional append where none may be
        CoordinatorFencedError   a marker from a coordinator that was replaced
      CleaningError            a pass failed
        CleaningAbortedError     the log changed under the pass: plan again
        EngineError              Spark, or another engine, failed

Fields are attributes and `args`, and the sentence is made in `__str__`, so that errors survive
pickling between processes.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path


class SiltstoneError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(SiltstoneError):
    """A setting is unknown or impossible."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(name, value, reason)
        self.name = name
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} {self.reason}, got {self.value}"


class UnknownSettingError(ConfigError):
    """There is no setting of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f": did you mean {nearest[0]}?" if nearest else ""
        super().__init__(name, None, hint)
        self.args = (name, tuple(known))

    def __str__(self) -> str:
        return f"unknown setting {self.name}{self.reason}"


class NotServedSettingError(ConfigError):
    """A setting of Kafka's is for something that there is not here."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, None, reason)
        self.args = (name, reason)

    def __str__(self) -> str:
        return f"{self.name} is refused: {self.reason}"


class UsageError(SiltstoneError):
    """A command or call was asked for something that makes no sense."""


class UnknownTopicError(UsageError):
    """The topic or the partition is not there."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        if self.partition is None:
            return f"topic {self.topic} does not exist"
        return f"topic {self.topic} has no partition {self.partition}"


class TopicExistsError(UsageError):
    """The topic is already there."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic} already exists"


class StorageError(SiltstoneError):
    """The disk, or the files on it."""


class CorruptBatchError(StorageError):
    """Bytes in a segment disagree with their own length, structure or checksum."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        # The partition directory says which log it is, the rest of the path only adds noise.
        name = Path(self.path.parent.name, self.path.name)
        return f"{name} is corrupt at position {self.position}: {self.reason}"


class CorruptIndexError(StorageError):
    """An index contradicts itself or its log; recovery rebuilds it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{Path(self.path.parent.name, self.path.name)}: {self.reason}"


class CorruptCheckpointError(StorageError):
    """A small text file (offsets, epochs, topics, identity) makes no sense."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class OffsetOrderError(StorageError):
    """Somebody appended backwards, which is a bug of ours."""

    def __init__(self, path: Path, expected: int, found: int) -> None:
        super().__init__(path, expected, found)
        self.path = path
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.path}: offset {self.found}, expected {self.expected} or more"


class LogDirLockedError(StorageError):
    """Another process owns the log directory."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        owner = "another process" if self.pid is None else f"process {self.pid}"
        return f"{self.path} is in use by {owner}"


class LogDirOfflineError(StorageError):
    """The disk refused; the directory takes no more work until it is opened anew."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class OffsetOutOfRangeError(SiltstoneError):
    """The reader asked for an offset outside of the log."""

    def __init__(self, partition: str, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(partition, offset, log_start, log_end)
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of {self.partition} is outside of the log "
            f"({self.log_start} to {self.log_end})"
        )


class NotExactError(SiltstoneError):
    """A state was asked for that compaction has taken apart."""

    def __init__(self, partition: str, offset: int, first_exact_offset: int) -> None:
        super().__init__(partition, offset, first_exact_offset)
        self.partition = partition
        self.offset = offset
        self.first_exact_offset = first_exact_offset

    def __str__(self) -> str:
        return (
            f"{self.partition} was compacted beyond offset {self.offset}, so its state there is "
            f"not known any more: ask for offset {self.first_exact_offset} or later"
        )


class KeyNotLiveError(SiltstoneError):
    """The key has no value; `deleted_at` is the offset of its tombstone, None if never seen."""

    def __init__(self, key: str, place: str, deleted_at: int | None) -> None:
        super().__init__(key, place, deleted_at)
        self.key = key
        self.place = place
        self.deleted_at = deleted_at

    def __str__(self) -> str:
        if self.deleted_at is None:
            return f"key {self.key} was never seen in {self.place}, or is gone with its tombstone"
        return f"key {self.key} was deleted at offset {self.deleted_at} of {self.place}"


class MissingExtraError(SiltstoneError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f'{self.what} needs more packages: pip install "siltstone[{self.extra}]"'


class UnreachableError(SiltstoneError):
    """No broker answers there."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot reach {self.address}: {self.reason}"


class BrokerError(SiltstoneError):
    """A broker has refused, for a reason of its own."""


class DecodeError(SiltstoneError):
    """Record bytes from outside make no sense; `position` counts from the start of the bytes."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"position {self.position}: {self.reason}"


class TruncatedDataError(DecodeError):
    """The bytes end before the batch does."""


class ChecksumError(DecodeError):
    """The bytes are not the ones that were signed."""


class MalformedDataError(DecodeError):
    """The bytes contradict themselves."""


class RequestError(SiltstoneError):
    """The client did wrong."""


class InvalidRecordError(RequestError):
    """A batch that a leader must not append; `record_index` is that of the record at fault."""

    def __init__(self, partition: str, reason: str, record_index: int | None = None) -> None:
        super().__init__(partition, reason, record_index)
        self.partition = partition
        self.reason = reason
        self.record_index = record_index

    def __str__(self) -> str:
        where = "" if self.record_index is None else f"record {self.record_index} of the batch: "
        return f"{self.partition}: {where}{self.reason}"


class InvalidTimestampError(InvalidRecordError):
    """A record from too far in the past or the future."""


class RecordTooLargeError(RequestError):
    """A batch over the limit that `setting` names."""

    def __init__(self, partition: str, size_bytes: int, setting: str, limit_bytes: int) -> None:
        super().__init__(partition, size_bytes, setting, limit_bytes)
        self.partition = partition
        self.size_bytes = size_bytes
        self.setting = setting
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"{self.partition}: a batch of {self.size_bytes} bytes is over "
            f"{self.setting} ({self.limit_bytes})"
        )


class PolicyViolationError(RequestError):
    """The topic's policy forbids it."""


class OutOfOrderSequenceError(RequestError):
    """An idempotent producer left a gap in its sequence."""


class InvalidProducerEpochError(RequestError):
    """The producer was fenced by a newer epoch."""


class InvalidTxnStateError(RequestError):
    """A transactional append where none may be."""


class CoordinatorFencedError(RequestError):
    """A marker from a transaction coordinator that was replaced."""


class CleaningError(SiltstoneError):
    """A pass failed; the log is as it was."""


class CleaningAbortedError(CleaningError):
    """The log changed under the pass: plan again."""

    def __init__(self, partition: str) -> None:
        super().__init__(partition)
        self.partition = partition

    def __str__(self) -> str:
        return f"{self.partition}: the log changed: plan again"


class EngineError(CleaningError):
    """Spark, or another engine, failed."""
