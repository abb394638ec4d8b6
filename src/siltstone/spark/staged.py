"""One plan carried out by many tasks: index, resolve, rewrite; see `cleaner.stages`.

Two jobs. The first indexes and resolves, and leaves the survivors of each share in Spark's shuffle;
its tasks report to the driver on the way. The second, which Spark begins where the first has ended,
rewrites. Keys and survivors travel as packed blocks, one row each.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyspark import RDD, SparkContext

from siltstone.cleaner.key_winners import KeyWinners
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.slices import Share, Slice, plan_shares
from siltstone.cleaner.split_finder import SplitFinder
from siltstone.cleaner.stages import (
    ShareOrder,
    ShareResult,
    SliceModes,
    SliceReport,
    index_slice,
    join_results,
    order_shares,
    rewrite_share,
    settle_modes,
)
from siltstone.errors import SiltstoneError
from siltstone.log.filesystem import FileSystem
from siltstone.spark.jobs import run_job
from siltstone.spark.mailbox import Address, Box, Mailbox
from siltstone.spark.task_io import TaskIo
from siltstone.spark.tasks import absence_explained, this_task

Row: TypeAlias = tuple[int, tuple[int, bytes]]  # where to, and a block of the slice it is about


class StagedRun:
    """Carries out one plan."""

    def __init__(
        self,
        context: SparkContext,
        mailbox: Mailbox,
        plan: CleaningPlan,
        io: TaskIo,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._context = context
        self._mailbox = mailbox
        self._plan = plan
        self._io = io
        self._on_wait = on_wait

    def run(self, slice_bytes: int) -> PassResult:
        """Write the cleaned files of the plan."""
        started = time.perf_counter()
        plan = self._plan
        shares = plan_shares(plan, slice_bytes, SplitFinder(FileSystem(), plan).find)
        reports, survivors = self._find_survivors(shares, None)
        modes, were_right = settle_modes(plan, reports)
        if not were_right:
            reports, survivors = self._find_survivors(shares, modes)
        index_seconds = time.perf_counter() - started
        results = self._rewrite(survivors, order_shares(shares, reports, modes))
        seconds = time.perf_counter() - started
        joined = join_results(plan, shares, reports, results, seconds)
        return replace(joined, index_seconds=index_seconds)

    def _find_survivors(
        self, shares: Sequence[Share], known: Sequence[SliceModes] | None
    ) -> tuple[list[SliceReport], RDD[Row]]:
        slices = [part for share in shares for part in share.slices]
        share_of = [n for n, share in enumerate(shares) for _ in share.slices]
        range_count = len(slices)
        with self._mailbox.open_box() as box:
            index = _Index(self._plan, self._io, range_count, known, box.address)
            survivors = (
                self._context.parallelize(slices, len(slices))
                .mapPartitions(index)
                .partitionBy(range_count, _is_number)
                .mapPartitions(_Resolve(tuple(share_of)))
                .partitionBy(len(shares), _is_number)
            )
            # A job must have a last stage; this one does not look at what it is given.
            letters = self._run(lambda: self._context.runJob(survivors, _ignore, [0]), box)
            # Stages in the middle may run twice for one slice, and then say the same twice.
            reports = {report.number: report for report in letters}
        return [reports[part.number] for part in slices], survivors

    def _rewrite(self, survivors: RDD[Row], orders: Sequence[ShareOrder]) -> list[ShareResult]:
        with self._mailbox.open_box() as box:
            rewrite = _Rewrite(self._plan, self._io, orders, box.address)
            return list(self._run(survivors.mapPartitionsWithIndex(rewrite).count, box))

    def _run(self, action: Callable[[], object], box: Box) -> Iterator[Any]:
        """Pass on what tasks send; raise the first error among it, which ends the job."""
        with closing(run_job(self._context, action, box, self._on_wait)) as letters:
            for letter in letters:
                if isinstance(letter, SiltstoneError):
                    raise letter
                yield letter


@dataclass(frozen=True, slots=True)
class _Index:
    plan: CleaningPlan
    io: TaskIo
    range_count: int
    known: Sequence[SliceModes] | None
    address: Address

    def __call__(self, slices: Iterable[Slice]) -> Iterator[Row]:
        storage = self.io.open(self.plan, this_task())
        for part in slices:
            known = None if self.known is None else self.known[part.number]
            try:
                with absence_explained(self.plan):
                    report, blocks = index_slice(self.plan, storage, part, self.range_count, known)
            except SiltstoneError as error:
                self.address.send(error)
                continue
            self.address.send(report)
            for number, block in enumerate(blocks):
                yield number, (part.number, block.tobytes())


@dataclass(frozen=True, slots=True)
class _Resolve:
    share_of: tuple[int, ...]  # by slice

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        winners = KeyWinners(len(self.share_of))
        for _, (slice_number, block) in rows:
            winners.enter(slice_number, block)
        for slice_number, survivors in enumerate(winners.survivors(len(self.share_of))):
            yield self.share_of[slice_number], (slice_number, survivors.tobytes())


@dataclass(frozen=True, slots=True)
class _Rewrite:
    plan: CleaningPlan
    io: TaskIo
    orders: Sequence[ShareOrder]
    address: Address

    def __call__(self, number: int, rows: Iterable[Row]) -> Iterator[None]:
        task = this_task()
        storage = self.io.open(self.plan, task)
        survivors = (block for _, block in rows)
        try:
            with absence_explained(self.plan):
                order = self.orders[number]
                result = rewrite_share(self.plan, storage, str(task), order, survivors)
        except SiltstoneError as error:
            self.address.send(error)
        else:
            self.address.send(result)
        return iter(())


def _is_number(number: int) -> int:
    """Place a row where it says: its key is a number already."""
    return number


def _ignore(rows: Iterable[Row]) -> list[None]:
    return []
