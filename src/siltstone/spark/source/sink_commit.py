"""The driver's part of a write: append what the tasks have staged, as the owner of the logs."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from siltstone.errors import LogDirLockedError, StorageError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog
from siltstone.records.batch import read_batch
from siltstone.records.builder import encode_batch
from siltstone.records.layout import HEADER_SIZE, MAX_SEQUENCE
from siltstone.spark.source.sink_journal import (
    Begin,
    SinkJournal,
    read_journal,
    write_journal,
)
from siltstone.spark.source.staging import (
    BATCH_WRITERS,
    StagedBatch,
    StagedFile,
    find_attempt,
    is_staged_by,
)

_LOCK_SECONDS: Final = 60.0
_LOCK_PAUSE_SECONDS: Final = 0.05
# No task takes as long: who staged this will never ask for it.
_LEFTOVER_NS: Final = 24 * 3600 * 10**9


class SinkCommit:
    """Takes the staged files of one writer into the logs."""

    def __init__(self, paths: Sequence[Path], writer_id: str, fs: FileSystem | None = None) -> None:
        self._paths = tuple(paths)
        self._directory = paths[0]
        self._writer_id = writer_id
        self._fs = fs or FileSystem()

    def append(self, files: Sequence[StagedFile]) -> None:
        """Append all files, durably, for a writer that comes but once."""
        with owned_logs(self._paths, self._fs) as manager:
            logs: dict[TopicPartition, PartitionLog] = {}
            for batch, data in self._iter_staged(files):
                log = _get_log(manager, logs, batch.topic_partition)
                log.append(data)
            _flush(logs)
        self.discard(files)

    def append_once(self, files: Sequence[StagedFile], batch_id: int) -> None:
        """Append the files of one batch of a streaming query, unless that was done before."""
        with owned_logs(self._paths, self._fs) as manager:
            last = read_journal(self._fs, self._directory, self._writer_id)
            if last is not None and not last.is_done:
                # The first attempt's files, not those of this one: some are in the log already.
                last = self._carry_out(manager, last, is_resumed=True)
            if last is None or last.batch_id < batch_id:
                journal = self._begin(manager, last, files, batch_id)
                self._check_staged(files)
                # Before the journal names them: their names must not be lost with the power.
                self._fs.fsync_dir(self._directory)
                write_journal(self._fs, self._directory, journal)
                self._carry_out(manager, journal, is_resumed=False)
            self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Delete what the attempts that staged these files have staged, and what is old.

        Not what an unfinished batch needs. And not what a later attempt has staged: this may be
        the driver of a query that was taken for dead and started again.
        """
        last = read_journal(self._fs, self._directory, self._writer_id)
        needed = set() if last is None or last.is_done else {file.name for file in last.files}
        attempts = {find_attempt(file.name) for file in files if file.name is not None}
        oldest_ns = time.time_ns() - _LEFTOVER_NS
        for name in self._fs.list_names(self._directory):
            is_own = is_staged_by(name, self._writer_id)
            if name in needed or not (is_own or is_staged_by(name, BATCH_WRITERS)):
                continue
            path = self._directory / name
            with contextlib.suppress(FileNotFoundError):
                if find_attempt(name) in attempts or path.stat().st_mtime_ns < oldest_ns:
                    self._fs.unlink(path)

    def _check_staged(self, files: Sequence[StagedFile]) -> None:
        """Make sure that all files are there: a journal that names others could not be finished."""
        for file in files:
            if file.name is not None and not (self._directory / file.name).exists():
                path = self._directory / file.name
                raise StorageError(f"{path} is gone before it was appended: start the query again")

    def _begin(
        self,
        manager: LogManager,
        last: SinkJournal | None,
        files: Sequence[StagedFile],
        batch_id: int,
    ) -> SinkJournal:
        sequences = {} if last is None else last.next_sequences
        partitions = {batch.topic_partition for file in files for batch in file.batches}
        return SinkJournal(
            query_id=self._writer_id,
            batch_id=batch_id,
            is_done=False,
            files=tuple(files),
            begins={
                partition: Begin(
                    manager.get_log(partition).log_end_offset, sequences.get(partition, 0)
                )
                for partition in sorted(partitions)
            },
            next_sequences=dict(sequences),
        )

    def _carry_out(
        self, manager: LogManager, journal: SinkJournal, *, is_resumed: bool
    ) -> SinkJournal:
        """Append what of a batch is not in the logs yet, and note that it is done."""
        logs: dict[TopicPartition, PartitionLog] = {}
        done: defaultdict[TopicPartition, int] = defaultdict(int)  # records
        if is_resumed:
            for partition, begin in journal.begins.items():
                log = _get_log(manager, logs, partition)
                done[partition] = _count_appended(log, journal.producer_id, begin)
        seen: defaultdict[TopicPartition, int] = defaultdict(int)
        for batch, data in self._iter_staged(journal.files):
            partition = batch.topic_partition
            if seen[partition] >= done[partition]:
                sequence = (journal.begins[partition].sequence + seen[partition]) & MAX_SEQUENCE
                log = _get_log(manager, logs, partition)
                log.append(_with_producer(data, journal.producer_id, sequence))
            seen[partition] += batch.record_count
        _flush(logs)
        finished = SinkJournal(
            query_id=journal.query_id,
            batch_id=journal.batch_id,
            is_done=True,
            next_sequences={
                **journal.next_sequences,
                **{
                    partition: (begin.sequence + seen[partition]) & MAX_SEQUENCE
                    for partition, begin in journal.begins.items()
                },
            },
        )
        write_journal(self._fs, self._directory, finished)
        return finished

    def _iter_staged(self, files: Sequence[StagedFile]) -> Iterator[tuple[StagedBatch, bytes]]:
        for staged in files:
            if staged.name is None:
                continue
            file = self._fs.open(self._directory / staged.name, writable=False)
            with contextlib.closing(file):
                for batch in staged.batches:
                    yield batch, file.read(batch.position, batch.size_bytes)


@contextlib.contextmanager
def owned_logs(paths: Sequence[Path], fs: FileSystem) -> Iterator[LogManager]:
    """Own log directories for a while; wait if another process does, but not for ever."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            manager = LogManager(paths, fs=fs)
            break
        except LogDirLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_PAUSE_SECONDS)
    with manager:
        yield manager


def _get_log(
    manager: LogManager, logs: dict[TopicPartition, PartitionLog], partition: TopicPartition
) -> PartitionLog:
    if partition not in logs:
        logs[partition] = manager.get_log(partition)
    return logs[partition]


def _flush(logs: dict[TopicPartition, PartitionLog]) -> None:
    for log in logs.values():
        log.flush()


def _count_appended(log: PartitionLog, producer_id: int, begin: Begin) -> int:
    """Count the records of a batch of the query that a log has: they are its first ones."""
    count = 0
    for segment in log.segments.from_offset(begin.offset):
        first = segment.find_batch(begin.offset)
        for stored in () if first is None else segment.iter_headers(first.position):
            header = stored.header
            if header.producer_id == producer_id and header.base_offset >= begin.offset:
                # By sequence, for a pass may have taken records of the batch away since.
                count = ((header.last_sequence - begin.sequence) & MAX_SEQUENCE) + 1
    return count


def _with_producer(data: bytes, producer_id: int, sequence: int) -> bytes:
    header = read_batch(data).header._replace(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return encode_batch(header, memoryview(data)[HEADER_SIZE:])
