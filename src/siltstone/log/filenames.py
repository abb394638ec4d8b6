"""The names of everything on disk: built here, parsed here, spelled nowhere else.

A log directory (one entry of `log.dirs`) holds one directory per partition and a few small files.
A partition directory holds the files of its segments, all named after the segment's base offset:

    00000000000000042000.log            batches
    00000000000000042000.index          offset index; likewise .timeindex, .txnindex
    00000000000000042000.snapshot       producer state just before that offset
    00000000000000042000.keyindex       which record is the last of its key; ours, not Kafka's
    00000000000000042000.log.deleted    the same file on its way out; likewise .cleaned, .swap

Every other name is Kafka's, but for those that begin with `silt-`, which Kafka leaves alone.
"""

import re
import uuid
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from siltstone.ids import TopicPartition, is_legal_topic

# The files of a segment.
LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
# One of our own: Kafka ignores it, and removes it when it finishes a swap over its segment.
KEY_INDEX: Final = ".keyindex"

# What a segment's file carries after its extension while it comes or goes.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"

# In a partition directory.
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

# In a log directory.
LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
TOPICS: Final = "silt-topics.json"

# A half-written small file; the rename drops it. Whoever finds one may delete it.
TEMPORARY: Final = ".tmp"

# What the tasks of a pass write, before the owner gives it a segment's name.
_PASS: Final = "silt-pass-"
_PART: Final = ".part"

# What a pass leaves to be looked up later; numbered, for clocks go backwards, or stand still.
_MANIFEST: Final = "silt-manifest-"
_JSON: Final = ".json"
_MANIFEST_FILE: Final = re.compile(r"silt-manifest-(?P<number>[0-9]{10})-(?P<pass_id>\w+)\.json")

# Sub-directories of a log directory that are no logs of ours.
_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
_METADATA_TOPIC: Final = "__cluster_metadata"

_MAX_NAME_LENGTH: Final = 255
_MAX_OFFSET: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1

_SEGMENT_FILE: Final = re.compile(
    r"(?P<base_offset>[0-9]{20})"
    r"(?P<extension>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<suffix>\.cleaned|\.swap|\.deleted|)"
)
_KEY_INDEX_FILE: Final = re.compile(r"([0-9]{20})\.keyindex")
_OFFSET_PREFIX: Final = re.compile(r"([0-9]{1,20})\.")
_SUFFIXED_DIR: Final = re.compile(r"(?P<name>\S+-\S+)\.\S+-(?P<state>delete|future|stray)")
_PARTITION_DIR: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What the name of one of Kafka's segment files says."""

    base_offset: int
    extension: str
    suffix: str = ""

    @property
    def name(self) -> str:
        """The file name itself."""
        return f"{self.base_offset:020d}{self.extension}{self.suffix}"


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """What the name of the record of a pass says."""

    number: int  # in the order of the commits to one log
    pass_id: str


class DirState(Enum):
    """What a partition directory's suffix says about it."""

    LIVE = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class PartitionDir:
    """What the name of a partition directory says.

    The topic of a `DELETE` or `STRAY` directory may have been cut to fit the file system.
    """

    partition: TopicPartition
    state: DirState


def log_path(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """Name the batches of a segment."""
    return directory / SegmentFile(base_offset, LOG, suffix).name


def offset_index_path(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """Name the offset index of a segment."""
    return directory / SegmentFile(base_offset, OFFSET_INDEX, suffix).name


def time_index_path(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """Name the time index of a segment."""
    return directory / SegmentFile(base_offset, TIME_INDEX, suffix).name


def transaction_index_path(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """Name the index of aborted transactions of a segment."""
    return directory / SegmentFile(base_offset, TRANSACTION_INDEX, suffix).name


def snapshot_path(directory: Path, offset: int, suffix: str = "") -> Path:
    """Name the producer state before `offset`, which need not be the base of a segment."""
    return directory / SegmentFile(offset, SNAPSHOT, suffix).name


def key_index_path(directory: Path, base_offset: int) -> Path:
    """Name the key index of a segment."""
    return directory / f"{base_offset:020d}{KEY_INDEX}"


def parse_key_index(name: str) -> int | None:
    """Return the base offset of the segment that a key index belongs to; None for other files."""
    match = _KEY_INDEX_FILE.fullmatch(name)
    return None if match is None else int(match[1])


def parse_segment_file(name: str) -> SegmentFile | None:
    """Take apart the name of a segment file; None for any other file."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or (base_offset := int(match["base_offset"])) > _MAX_OFFSET:
        return None
    return SegmentFile(base_offset, match["extension"], match["suffix"])


def find_offset_prefix(name: str) -> int | None:
    """Return the offset that a name begins with, whatever its extension.

    A swap deletes by this: every file of a replaced segment goes, also those that are not Kafka's.
    """
    match = _OFFSET_PREFIX.match(name)
    if match is None or (offset := int(match[1])) > _MAX_OFFSET:
        return None
    return offset


def pass_file_name(pass_id: str, attempt: str, base_offset: int, extension: str) -> str:
    """Name a file that one attempt of a pass writes; Kafka leaves it alone."""
    return f"{_PASS}{pass_id}-{attempt}-{base_offset:020d}{extension}{_PART}"


def is_pass_file(name: str) -> bool:
    """Say whether a pass has left a file behind that no commit has taken."""
    return name.startswith(_PASS) and name.endswith(_PART)


def manifest_name(number: int, pass_id: str) -> str:
    """Name the record of a committed pass; names sort in the order of the commits."""
    return f"{_MANIFEST}{number:010d}-{pass_id}{_JSON}"


def is_manifest(name: str) -> bool:
    """Say whether a file is the record of a committed pass."""
    return name.startswith(_MANIFEST) and name.endswith(_JSON)


def is_unwritten_manifest(name: str) -> bool:
    """Say whether a crash has left a manifest half-written: its name is used only once."""
    return name.endswith(TEMPORARY) and is_manifest(name.removesuffix(TEMPORARY))


def parse_manifest(name: str) -> ManifestFile | None:
    """Take apart the name of the record of a pass; None for any other file."""
    match = _MANIFEST_FILE.fullmatch(name)
    return None if match is None else ManifestFile(int(match["number"]), match["pass_id"])


def is_deleted_file(name: str) -> bool:
    """Say whether a file in a partition directory only waits for its removal."""
    # Snapshots of the metadata log end like this too, and are for Kafka to remove.
    return name.endswith(DELETED) and not name.endswith(f".checkpoint{DELETED}")


def partition_dir_name(partition: TopicPartition) -> str:
    """Name the directory of a partition that is served."""
    return f"{partition.topic}-{partition.partition}"


def delete_dir_name(partition: TopicPartition, token: uuid.UUID | None = None) -> str:
    """Name the directory of a partition that waits for its removal."""
    return _capped_dir_name(partition, token, DirState.DELETE)


def stray_dir_name(partition: TopicPartition, token: uuid.UUID | None = None) -> str:
    """Name the directory of a partition that should not be here, and is kept aside."""
    return _capped_dir_name(partition, token, DirState.STRAY)


def future_dir_name(partition: TopicPartition, token: uuid.UUID | None = None) -> str:
    """Name the directory of a copy that a move between log directories builds.

    Never cut, because the copy becomes the partition and must keep its topic: a topic of more
    than about 210 characters gives a name that the file system refuses.
    """
    return f"{partition.topic}{_dir_suffix(partition, token, DirState.FUTURE)}"


def parse_partition_dir(name: str) -> PartitionDir:
    """Take apart the name of a partition directory; raise ValueError if it is none.

    The partition is what follows the last dash, since topics may contain dashes themselves.
    Unlike Kafka, refuse a topic that could never have been created: one with a blank in its
    name would make every checkpoint that mentions it unreadable.
    """
    state = DirState.LIVE
    base_name = name
    # The suffix alone decides, as in Kafka: a directory `x-delete` is an error, never a partition.
    if name.endswith(("-delete", "-future", "-stray")):
        suffixed = _SUFFIXED_DIR.fullmatch(name)
        if suffixed is None:
            raise ValueError(f"{name} is not a partition directory")
        state = DirState(suffixed["state"])
        base_name = suffixed["name"]

    match = _PARTITION_DIR.fullmatch(base_name)
    if (
        match is None
        or not is_legal_topic(match["topic"])
        or (partition := int(match["partition"])) > _MAX_PARTITION
    ):
        raise ValueError(f"{name} is not a partition directory")
    return PartitionDir(TopicPartition(match["topic"], partition), state)


def is_foreign_dir(name: str) -> bool:
    """Say whether a sub-directory of a log directory belongs to another part of Kafka.

    The log of the cluster's metadata and the cache of remote indexes are skipped, not loaded.
    """
    if name == _REMOTE_INDEX_CACHE:
        return True
    try:
        return parse_partition_dir(name).partition.topic == _METADATA_TOPIC
    except ValueError:
        return False


def temporary_path(path: Path) -> Path:
    """Name the file that is written first and then renamed to `path`."""
    return path.with_name(path.name + TEMPORARY)


def _capped_dir_name(partition: TopicPartition, token: uuid.UUID | None, state: DirState) -> str:
    suffix = _dir_suffix(partition, token, state)
    return partition.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix


def _dir_suffix(partition: TopicPartition, token: uuid.UUID | None, state: DirState) -> str:
    # The token keeps a topic that is deleted, re-created and deleted again from clashing.
    return f"-{partition.partition}.{(token or uuid.uuid4()).hex}-{state.value}"
