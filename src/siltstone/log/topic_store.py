"""Where topics and their settings are kept.

A stock Kafka keeps them in its metadata log. We keep them in a small JSON file of our own, the
same in every log directory, so that any surviving disk knows all topics. Each write raises the
generation; a directory that missed some has a lower one, and is outvoted when they are opened.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from siltstone.errors import CorruptCheckpointError, LogDirOfflineError, UnknownTopicError
from siltstone.ids import TopicId
from siltstone.log import filenames

_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What is known of a topic besides its records; `config` holds only what is overridden."""

    topic: str
    topic_id: TopicId
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_stored: bool = True  # or only found by its directories: its settings are not known


class TopicStore(Protocol):
    """Keeps the metadata of topics, durably."""

    def find(self, topic: str) -> TopicMetadata | None:
        """Return a topic; None if it is unknown."""
        ...

    def get(self, topic: str) -> TopicMetadata:
        """Return a topic; raise UnknownTopicError if it is unknown."""
        ...

    def list(self) -> tuple[TopicMetadata, ...]:
        """Return all topics by name."""
        ...

    def put(self, metadata: TopicMetadata) -> None:
        """Add a topic or replace it; durable when this returns."""
        ...

    def delete(self, topic: str) -> None:
        """Forget a topic; raise UnknownTopicError if it is unknown."""
        ...


class SmallFiles(Protocol):
    """The part of a file system that a `FileTopicStore` needs."""

    def read_file(self, path: Path) -> bytes | None:
        """Read a whole file; None if it is absent."""
        ...

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a file durably, so that a crash leaves the old content or the new."""
        ...


class FileTopicStore:
    """Topics in one JSON file, with a copy in every log directory.

    A directory that fails is left out until the store is opened anew; only when none is left
    does a call fail. Opening writes nothing, so that a reader may open what another process owns.
    """

    def __init__(self, files: SmallFiles, log_dirs: Sequence[Path]) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._paths: list[Path] = []
        self._generation = 0
        self._topics: dict[str, TopicMetadata] = {}
        failure = None
        for log_dir in log_dirs:
            path = log_dir / filenames.TOPICS
            try:
                data = files.read_file(path)
            except LogDirOfflineError as error:
                failure = error
                continue
            self._paths.append(path)
            if data is not None:
                generation, topics = _parse(path, data)
                if generation > self._generation:
                    self._generation, self._topics = generation, topics
        if failure is not None and not self._paths:
            raise failure

    def find(self, topic: str) -> TopicMetadata | None:
        """Return a topic; None if it is unknown."""
        return self._topics.get(topic)

    def get(self, topic: str) -> TopicMetadata:
        """Return a topic; raise UnknownTopicError if it is unknown."""
        metadata = self._topics.get(topic)
        if metadata is None:
            raise UnknownTopicError(topic)
        return metadata

    def list(self) -> tuple[TopicMetadata, ...]:
        """Return all topics by name."""
        return tuple(metadata for _, metadata in sorted(self._topics.items()))

    def put(self, metadata: TopicMetadata) -> None:
        """Add a topic or replace it; durable in every healthy directory when this returns."""
        with self._lock:
            self._write({**self._topics, metadata.topic: metadata})

    def delete(self, topic: str) -> None:
        """Forget a topic; raise UnknownTopicError if it is unknown."""
        with self._lock:
            self.get(topic)
            self._write({name: kept for name, kept in self._topics.items() if name != topic})

    def _write(self, topics: dict[str, TopicMetadata]) -> None:
        generation = self._generation + 1
        data = _format(generation, topics)
        written = []
        failure = None
        for path in self._paths:
            try:
                self._files.write_atomically(path, data)
                written.append(path)
            except LogDirOfflineError as error:
                failure = error
        if failure is not None and not written:
            raise failure
        # Replaced, never changed: readers take no lock.
        self._paths, self._generation, self._topics = written, generation, topics


def _format(generation: int, topics: Mapping[str, TopicMetadata]) -> bytes:
    content = {
        "version": _VERSION,
        "generation": generation,
        "topics": [
            {
                "topic": metadata.topic,
                "topic_id": str(metadata.topic_id),
                "partition_count": metadata.partition_count,
                "config": dict(sorted(metadata.config.items())),
            }
            for _, metadata in sorted(topics.items())
        ],
    }
    return (json.dumps(content, indent=2) + "\n").encode("ascii")


def _parse(path: Path, data: bytes) -> tuple[int, dict[str, TopicMetadata]]:
    try:
        content = json.loads(data)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno} column {error.colno}: {error.msg}"
        raise CorruptCheckpointError(path, reason) from error
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(path, f"is not JSON: {error}") from error

    try:
        version = content["version"]
        if version != _VERSION:
            raise CorruptCheckpointError(path, f"expected version {_VERSION}, found {version}")
        generation = _checked_count(content["generation"])
        topics = [_parse_topic(item) for item in content["topics"]]
    except KeyError as error:
        raise CorruptCheckpointError(path, f"{error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError(path, f"makes no sense: {error}") from error
    return generation, {metadata.topic: metadata for metadata in topics}


def _parse_topic(item: Any) -> TopicMetadata:
    config = item["config"]
    if not isinstance(config, dict) or not all(isinstance(text, str) for text in config.values()):
        raise ValueError(f"config of {item['topic']} is {config!r}")
    return TopicMetadata(
        topic=_checked_text(item["topic"]),
        topic_id=TopicId.parse(_checked_text(item["topic_id"])),
        partition_count=_checked_count(item["partition_count"]),
        config=config,
    )


def _checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _checked_count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a number from 1")
    return value
