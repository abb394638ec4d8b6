"""What the sink remembers of a streaming query: its last batch, and how far that got.

One file per query in the log directory. It is written before the first record of a batch is
appended, with the names of the staged files, and again after the last record is durable. After a
crash in between, the staged files are all still there, and the log itself tells which of their
batches it has: they carry a producer id of the query's own and follow each other by sequence.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from siltstone.errors import StorageError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.spark.source.staging import STAGED_PREFIX, StagedBatch, StagedFile

_VERSION: Final = 1
# Brokers give out producer ids from 0 on; a hash with this bit set never meets one of them.
_OWN_PRODUCERS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a batch of the query begins in one partition."""

    offset: int  # none of the batch lies below
    sequence: int  # of its first record


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkJournal:
    """The last batch of a query that was begun."""

    query_id: str
    batch_id: int
    is_done: bool
    files: tuple[StagedFile, ...] = ()  # in the order in which they are appended
    begins: dict[TopicPartition, Begin] = field(default_factory=dict)
    next_sequences: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def producer_id(self) -> int:
        """The producer id by which the log knows the query's records."""
        return find_producer_id(self.query_id)


def find_producer_id(query_id: str) -> int:
    """Return the producer id of a query: a hash of its own id."""
    digest = hashlib.sha256(query_id.encode()).digest()
    return _OWN_PRODUCERS | int.from_bytes(digest[:8], "big") >> 2


def journal_path(directory: Path, query_id: str) -> Path:
    """Return where the journal of a query lies."""
    return directory / f"{STAGED_PREFIX}{query_id}.json"


def read_journal(fs: FileSystem, directory: Path, query_id: str) -> SinkJournal | None:
    """Read the journal of a query; None if it has never written here."""
    path = journal_path(directory, query_id)
    data = fs.read_file(path)
    if data is None:
        return None
    try:
        return _parse(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} makes no sense: without it a repeated batch cannot be told; if the query is "
            "over, delete the file"
        ) from error


def write_journal(fs: FileSystem, directory: Path, journal: SinkJournal) -> None:
    """Put a journal in the place of the one before, durably and all at once."""
    text = json.dumps(_format(journal), separators=(",", ":"))
    fs.write_atomically(journal_path(directory, journal.query_id), text.encode())


def _format(journal: SinkJournal) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "query_id": journal.query_id,
        "batch_id": journal.batch_id,
        "is_done": journal.is_done,
        "files": [
            [
                file.name,
                [
                    [b.topic, b.partition, b.position, b.size_bytes, b.record_count]
                    for b in file.batches
                ],
            ]
            for file in journal.files
        ],
        "begins": [[p.topic, p.partition, b.offset, b.sequence] for p, b in journal.begins.items()],
        "next_sequences": [
            [p.topic, p.partition, sequence] for p, sequence in journal.next_sequences.items()
        ],
    }


def _parse(found: dict[str, Any]) -> SinkJournal:
    if found["version"] != _VERSION:
        raise ValueError(f"version {found['version']}")
    return SinkJournal(
        query_id=found["query_id"],
        batch_id=found["batch_id"],
        is_done=found["is_done"],
        files=tuple(
            StagedFile(name, tuple(StagedBatch(*batch) for batch in batches))
            for name, batches in found["files"]
        ),
        begins={TopicPartition(t, p): Begin(o, s) for t, p, o, s in found["begins"]},
        next_sequences={TopicPartition(t, p): s for t, p, s in found["next_sequences"]},
    )
