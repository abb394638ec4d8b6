"""The first dirty offset of every log, in Kafka's `cleaner-offset-checkpoint`."""

from pathlib import Path

from siltstone.ids import TopicPartition
from siltstone.log.cleaner_offsets import change_cleaner_offsets, fit_offset, read_cleaner_offsets
from siltstone.log.filesystem import FileSystem


class CleanerCheckpoints:
    """The checkpoint file of one log directory."""

    def __init__(self, fs: FileSystem, log_dir: Path) -> None:
        self._fs = fs
        self._log_dir = log_dir

    def read(self) -> dict[TopicPartition, int]:
        """Return all entries; raise CorruptCheckpointError if the file makes no sense."""
        return read_cleaner_offsets(self._fs, self._log_dir)

    def find(self, partition: TopicPartition) -> int | None:
        """Return the first dirty offset that the last pass over a log left."""
        return self.read().get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        """Note the first dirty offset of a log; durable when this returns."""
        change_cleaner_offsets(
            self._fs, self._log_dir, lambda offsets: {**offsets, partition: offset}
        )

    def fit(self, partition: TopicPartition, log_start_offset: int, log_end_offset: int) -> None:
        """Set an entry that lies outside of its log to the log start."""
        change_cleaner_offsets(
            self._fs,
            self._log_dir,
            lambda offsets: {
                p: fit_offset(offset, log_start_offset, log_end_offset)
                if p == partition
                else offset
                for p, offset in offsets.items()
            },
        )
