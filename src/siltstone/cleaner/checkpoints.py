"""The first dirty offset of every log, in Kafka's `cleaner-offset-checkpoint`."""

import threading
from pathlib import Path

from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.checkpoint import format_offsets, parse_offsets
from siltstone.log.filesystem import FileSystem


class CleanerCheckpoints:
    """The checkpoint file of one log directory; read anew each time, for Kafka writes it too."""

    def __init__(self, fs: FileSystem, log_dir: Path) -> None:
        self._fs = fs
        self._path = log_dir / filenames.CLEANER_OFFSETS
        self._lock = threading.Lock()

    def read(self) -> dict[TopicPartition, int]:
        """Return all entries; raise CorruptCheckpointError if the file makes no sense."""
        data = self._fs.read_file(self._path)
        return {} if data is None else parse_offsets(self._path, data)

    def find(self, partition: TopicPartition) -> int | None:
        """Return the first dirty offset that the last pass over a log left."""
        return self.read().get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        """Note the first dirty offset of a log; durable when this returns."""
        with self._lock:
            self._fs.write_atomically(
                self._path, format_offsets({**self.read(), partition: offset})
            )
