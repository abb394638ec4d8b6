"""How far a compaction is, for whoever watches it.

A pass reads everything twice: once to find the last record of every key, once to rewrite. So twice
the size of the sources is what there is to do.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from siltstone.cleaner.plan import CleaningPlan
from siltstone.ids import TopicPartition


class Stage(StrEnum):
    """What is being done."""

    START = "start"  # of Spark
    INDEX = "index"
    REWRITE = "rewrite"
    COMMIT = "commit"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class PassProgress:
    """How far the tasks of a plan are; a pass reads everything twice."""

    pass_id: str
    partition: TopicPartition
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened last, and how far all passes are together."""

    stage: Stage
    topic: str | None
    partition: int | None
    bytes_done: int
    bytes_total: int
    bytes_per_second: int
    eta_seconds: float | None

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Progress":
        """Read back what was written as JSON."""
        return cls(**{**fields, "stage": Stage(fields["stage"])})


Show: TypeAlias = Callable[[Progress], None]


class CompactionProgress:
    """Is told what happens, and has it shown; by nobody if `show` is None."""

    def __init__(self, plans: Sequence[CleaningPlan], show: Show | None) -> None:
        self._show_progress = show
        self._total_bytes = sum(2 * plan.source_bytes() for plan in plans)
        self._done = {plan.pass_id: 0 for plan in plans}
        self._started_seconds = time.monotonic()

    @property
    def listener(self) -> Callable[[PassProgress], None] | None:
        """What an engine is to call now and then; None if nobody looks."""
        return None if self._show_progress is None else self._note_progress

    def note_start(self) -> None:
        """Tell that Spark is being started."""
        self._show(Stage.START, None)

    def note_begin(self) -> None:
        """Tell that the passes begin: the time counts from here on."""
        self._started_seconds = time.monotonic()
        self._show(Stage.INDEX, None)

    def note_commit(self, plan: CleaningPlan) -> None:
        """Tell that a pass has read everything, and becomes part of its log."""
        self._done[plan.pass_id] = 2 * plan.source_bytes()
        self._show(Stage.COMMIT, plan.partition)

    def note_end(self, plan: CleaningPlan) -> None:
        """Tell that a pass is over, whether it went well or not."""
        self._done[plan.pass_id] = 2 * plan.source_bytes()
        self._show(Stage.DONE, plan.partition)

    def _note_progress(self, progress: PassProgress) -> None:
        self._done[progress.pass_id] = progress.bytes_done
        is_second = 2 * progress.bytes_done >= progress.bytes_total
        self._show(Stage.REWRITE if is_second else Stage.INDEX, progress.partition)

    def _show(self, stage: Stage, partition: TopicPartition | None) -> None:
        if self._show_progress is None:
            return
        done_bytes = sum(self._done.values())
        seconds = time.monotonic() - self._started_seconds
        rate = done_bytes / seconds if seconds > 0 else 0.0
        self._show_progress(
            Progress(
                stage,
                None if partition is None else partition.topic,
                None if partition is None else partition.partition,
                done_bytes,
                self._total_bytes,
                round(rate),
                round((self._total_bytes - done_bytes) / rate, 1) if rate else None,
            )
        )
