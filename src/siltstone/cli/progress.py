"""How far a compaction is: a bar on a terminal, JSON lines for programs, nothing elsewhere.

A pass reads everything twice: once to find the last record of every key, once to rewrite. So twice
the size of the sources is what there is to do.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cli import output
from siltstone.cli.output import OutputFormat
from siltstone.ids import TopicPartition
from siltstone.spark.task_io import PassProgress


class Stage(StrEnum):
    """What is being done."""

    START = "start"  # of Spark
    INDEX = "index"
    REWRITE = "rewrite"
    COMMIT = "commit"
    DONE = "done"


class View(Protocol):
    """Shows how far all passes are together."""

    def show(self, stage: Stage, partition: TopicPartition | None, tally: "Tally") -> None:
        """Show what is being done now."""
        ...


class Tally:
    """The bytes that all passes have to read, and have read."""

    def __init__(self, plans: Sequence[CleaningPlan]) -> None:
        self.total_bytes = sum(2 * plan.source_bytes() for plan in plans)
        self._done = {plan.pass_id: 0 for plan in plans}
        self._started_seconds = time.monotonic()

    @property
    def done_bytes(self) -> int:
        """What has been read so far."""
        return sum(self._done.values())

    @property
    def bytes_per_second(self) -> float:
        """The rate since the passes began."""
        seconds = time.monotonic() - self._started_seconds
        return self.done_bytes / seconds if seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """How long the rest takes at this rate; None if nothing is known of it yet."""
        rate = self.bytes_per_second
        return (self.total_bytes - self.done_bytes) / rate if rate else None

    def begin(self) -> None:
        """Count the time from here on: Spark is there."""
        self._started_seconds = time.monotonic()

    def note(self, pass_id: str, done_bytes: int) -> None:
        """Take note of how far a pass is."""
        self._done[pass_id] = done_bytes


class CompactionProgress:
    """Is told what happens, and has it shown."""

    def __init__(self, plans: Sequence[CleaningPlan], view: View | None) -> None:
        self._tally = Tally(plans)
        self._view = view

    @property
    def listener(self) -> Callable[[PassProgress], None] | None:
        """What an engine is to call now and then; None if nobody looks."""
        return None if self._view is None else self._note_progress

    def note_start(self) -> None:
        """Tell that Spark is being started."""
        self._show(Stage.START, None)

    def note_begin(self) -> None:
        """Tell that the passes begin."""
        self._tally.begin()
        self._show(Stage.INDEX, None)

    def note_commit(self, plan: CleaningPlan) -> None:
        """Tell that a pass has read everything, and becomes part of its log."""
        self._tally.note(plan.pass_id, 2 * plan.source_bytes())
        self._show(Stage.COMMIT, plan.partition)

    def note_end(self, plan: CleaningPlan) -> None:
        """Tell that a pass is over, whether it went well or not."""
        self._tally.note(plan.pass_id, 2 * plan.source_bytes())
        self._show(Stage.DONE, plan.partition)

    def _note_progress(self, progress: PassProgress) -> None:
        self._tally.note(progress.pass_id, progress.bytes_done)
        is_second = 2 * progress.bytes_done >= progress.bytes_total
        self._show(Stage.REWRITE if is_second else Stage.INDEX, progress.partition)

    def _show(self, stage: Stage, partition: TopicPartition | None) -> None:
        if self._view is not None:
            self._view.show(stage, partition, self._tally)


@contextmanager
def open_progress(
    plans: Sequence[CleaningPlan], output_format: OutputFormat
) -> Iterator[CompactionProgress]:
    """Show progress on stderr until the end of the block, as fits who reads it."""
    if output_format is OutputFormat.JSON:
        yield CompactionProgress(plans, _JsonLines())
    elif not sys.stderr.isatty():
        yield CompactionProgress(plans, None)
    else:
        with _open_bar() as bar:
            yield CompactionProgress(plans, _Bar(bar))


class _JsonLines:
    """A line for each thing that happens."""

    def show(self, stage: Stage, partition: TopicPartition | None, tally: Tally) -> None:
        eta_seconds = tally.eta_seconds
        fields: dict[str, Any] = {
            "stage": stage.value,
            "topic": None if partition is None else partition.topic,
            "partition": None if partition is None else partition.partition,
            "bytes_done": tally.done_bytes,
            "bytes_total": tally.total_bytes,
            "bytes_per_second": round(tally.bytes_per_second),
            "eta_seconds": None if eta_seconds is None else round(eta_seconds, 1),
        }
        output.print_message(output.format_json({"progress": fields}))


_STAGES: Final = {
    Stage.START: "starting Spark",
    Stage.INDEX: "finding keys",
    Stage.REWRITE: "rewriting",
    Stage.COMMIT: "committing",
    Stage.DONE: "done",
}


def _open_bar() -> Progress:
    """Make a bar that is gone when the answer comes."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class _Bar:
    """One bar for all passes together, with what happened last in front of it."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task(_STAGES[Stage.START], total=None)

    def show(self, stage: Stage, partition: TopicPartition | None, tally: Tally) -> None:
        about = "" if partition is None else f"{partition} "
        self._bar.update(
            self._task,
            description=f"{about}{_STAGES[stage]}",
            total=None if stage is Stage.START else tally.total_bytes,
            completed=tally.done_bytes,
        )
