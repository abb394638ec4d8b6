"""Passes over the logs of a test: assessed, planned, run and committed as their owner does it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import CommittedPass, PassRunner
from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.reference import ReferenceEngine
from siltstone.cleaner.result import PassCounts, PassResult
from siltstone.cleaner.selection import Assessment
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog, MakeLog

# Every engine obeys the same tests.
ENGINES: Final[Mapping[str, Callable[[], CleaningEngine]]] = {
    "reference": ReferenceEngine,
    "local": LocalEngine,
}


class MakeCompactedLog(MakeLog):
    """Makes logs whose policy is `compact`, unless the test says otherwise."""

    def __call__(self, text: str = "", *, fs: FileSystem | None = None, **settings: Any) -> MadeLog:
        """Make a log with this content; settings are Kafka's, with underscores for dots."""
        return super().__call__(text, fs=fs, **{"cleanup_policy": "compact", **settings})


class Cleaner:
    """The owner of logs, with one engine; the time is the clock's."""

    def __init__(self, engine: CleaningEngine, clock: ManualClock) -> None:
        self._engine = engine
        self._clock = clock

    def checkpoints(self, log: MadeLog) -> CleanerCheckpoints:
        """Return the checkpoints of the log directory that a log lies in."""
        return CleanerCheckpoints(log.fs, log.directory.parent)

    def checkpoint(self, log: MadeLog) -> int | None:
        """Return the first dirty offset that the last pass over a log left."""
        return self.checkpoints(log).find(log.real.partition)

    def set_checkpoint(self, log: MadeLog, offset: int) -> None:
        """Pretend that a pass has reached an offset."""
        self.checkpoints(log).put(log.real.partition, offset)

    def assess(self, log: MadeLog, **options: Any) -> Assessment:
        """Say whether a pass over a log is due; options as `assess_log` takes them."""
        checkpoint = self.checkpoint(log)
        return assess_log(log.real, checkpoint, self._clock.now_ms(), **options)[0]

    def plan(self, log: MadeLog) -> CleaningPlan:
        """Plan a pass over all that is cleanable, whether it is due or not."""
        return plan_pass(log.real, self.assess(log), self._clock.now_ms())

    def run(self, plan: CleaningPlan) -> PassResult:
        """Carry out a plan, and leave the log alone."""
        return self._engine.run(plan)

    def commit(self, log: MadeLog, plan: CleaningPlan, result: PassResult) -> CommittedPass:
        """Make what was run a part of the log."""
        return self._runner(log).commit(log.real, plan, result)

    def clean(self, log: MadeLog) -> CommittedPass:
        """Clean all that is cleanable, whether a pass is due or not."""
        return self._runner(log).run(log.real, self.plan(log))

    def counts(self, log: MadeLog) -> PassCounts:
        """Clean, and return what became of every record."""
        return self.clean(log).result.counts

    def clean_twice(self, log: MadeLog) -> CommittedPass:
        """Clean, wait until what was marked is due, and clean again."""
        self.clean(log)
        self._clock.advance_ms(log.real.config.delete_retention_ms + 1)
        return self.clean(log)

    def _runner(self, log: MadeLog) -> PassRunner:
        return PassRunner(log.fs, self._clock, self._engine, self.checkpoints(log))


def records_of(log: MadeLog) -> list[Record]:
    """Return all records on disk, markers included."""
    return [
        record
        for segment in log.real.segments
        for _, batch in segment.iter_batches()
        for record in batch.iter_records()
    ]


def offsets_of(log: MadeLog) -> list[int]:
    """Return the offsets of all records on disk, markers included."""
    return [record.offset for record in records_of(log)]


def keys_of(log: MadeLog) -> str:
    """Return the keys of all records on disk, markers left out."""
    return " ".join(
        (record.key or b"").decode()
        for segment in log.real.segments
        for _, batch in segment.iter_batches()
        if not batch.header.is_control
        for record in batch.iter_records()
    )


def batch_ends(log: MadeLog) -> list[int]:
    """Return the last offset of every batch on disk."""
    return [header.last_offset for header in log.headers()]


def horizons_ms(log: MadeLog) -> dict[int, int]:
    """Return the delete horizons that are set, by the base offset of their batch."""
    return {
        header.base_offset: header.delete_horizon_ms
        for header in log.headers()
        if header.delete_horizon_ms is not None
    }


def last_sequences(log: MadeLog) -> dict[int, int]:
    """Return the last sequence of every producer, as the batches on disk tell it."""
    return {
        header.producer_id: header.last_sequence
        for header in log.headers()
        if header.has_producer_id and not header.is_control
    }


def file_bytes(log: MadeLog) -> dict[str, bytes]:
    """Return the files of all segments."""
    return {name: log.path(name).read_bytes() for name in log.names()}


def pass_files(log: MadeLog) -> list[Path]:
    """Return what runs have left in the directory."""
    return [path for path in log.directory.iterdir() if filenames.is_pass_file(path.name)]
