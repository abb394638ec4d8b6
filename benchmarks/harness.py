"""What all benchmarks share: sides that take turns, the machine, and a file with every run.

A case compares our side with a reference on the same work, or holds ours against a fixed rate. Both
sides run once without the clock (kernels compile, caches fill), then in turns, each round in the
other order. Each run says what it has done, and a run that has not done all of it fails the whole
benchmark: a wrong fast answer is no result.

Every row is on the disk as soon as it is measured, so that a run that is cut off keeps what it has;
a run of named rows then fills the gaps.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.machine import REPO_PATH, describe_machine, describe_versions, find_commit

RESULTS_PATH: Final = REPO_PATH / "benchmarks" / "results"
# What a smoke run says is true of nothing, so it does not lie among the results.
QUICK_RESULTS_PATH: Final = REPO_PATH / "build" / "benchmarks"

MB: Final = 1_000_000
_QUICK_SCALE: Final = 1 / 64
_QUICK_REPETITIONS: Final = 1


class WrongAnswerError(Exception):
    """A side has not done the work that it was timed for."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one run has done, and in which time."""

    seconds: float
    size_bytes: int
    record_count: int | None  # None: the side knows bytes only
    operation_count: int = 0  # calls of what is measured, where one call has a price
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two that do the same work."""

    name: str
    run: Callable[[], Work]
    warm_up: Callable[[], object] | None = None  # less than a whole run; None: a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of a report: our side, what it is held against, and how good it must be."""

    name: str
    ours: Side
    reference: Side | None = None
    goal_ratio: float | None = None  # of our speed to that of the reference
    goal_mb_per_second: float | None = None
    size_bytes: int  # what every run must have worked through
    record_count: int
    touch_bytes: int = 0  # fresh page cache that a run will ask for
    operation_name: str = "call"
    costs: str = ""  # what our side does that the reference does not
    limits: Mapping[str, float] = field(default_factory=dict)  # of details of ours, their medians


@dataclass(frozen=True, slots=True)
class Run:
    """One run with its place in the order of all runs."""

    side: str
    round: int  # 0: the warm-up, which counts for nothing
    seconds: float
    size_bytes: int
    record_count: int | None
    operation_count: int
    details: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the runs of one side come to."""

    side: str
    median_seconds: float
    min_seconds: float
    max_seconds: float
    mb_per_second: float
    records_per_second: float | None
    us_per_operation: float | None

    @property
    def spread(self) -> float:
        """How far the slowest run is from the fastest, as a share of the median."""
        return (self.max_seconds - self.min_seconds) / self.median_seconds


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case with every run."""

    name: str
    ours: Summary
    reference: Summary | None
    ratio: float | None  # median over the rounds of (our speed / the reference's)
    min_ratio: float | None
    max_ratio: float | None
    goal_ratio: float | None
    goal_mb_per_second: float | None
    is_reached: bool | None  # None: there is no goal
    operation_name: str
    costs: str
    limits: Mapping[str, float]
    details: Mapping[str, float]  # medians of what our runs told
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    is_quick: bool
    scale: float
    repetitions: int
    output_path: Path
    work_path: Path | None
    chosen: tuple[str, ...] = ()  # empty: all

    def wants_row(self, name: str) -> bool:
        """Say whether a row is to be measured."""
        return not self.chosen or any(text in name for text in self.chosen)

    def wants_part(self, name: str) -> bool:
        """Say whether there may be a wanted row among those whose names begin like this."""
        return self.wants_row(name) or any(text.startswith(name) for text in self.chosen)

    def scaled(self, count: int, minimum: int = 1) -> int:
        """Return a count of the full run, as large as this run shall be."""
        return max(minimum, round(count * self.scale))


def parse_options(documentation: str | None, arguments: Sequence[str] | None = None) -> Options:
    """Parse what every benchmark understands; the module's docstring is the help."""
    parser = argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run of seconds, written to build/benchmarks"
    )
    parser.add_argument("--scale", type=float, help="size of the work, 1 is the full one")
    parser.add_argument("--repetitions", type=int, help="rounds that count, 5 unless told")
    parser.add_argument("--output", type=Path, help="directory for the result")
    parser.add_argument("--dir", type=Path, help="directory for the data, on the disk to measure")
    parser.add_argument(
        "--rows",
        default="",
        metavar="TEXT[;TEXT...]",
        help="only rows with this in their name; the others stay as the newest result has them",
    )
    given = parser.parse_args(arguments)
    is_quick: bool = given.quick
    scale = given.scale or _float_from_env("SILT_BENCH_SCALE")
    repetitions = given.repetitions or int(_float_from_env("SILT_BENCH_REPETITIONS") or 0)
    return Options(
        is_quick=is_quick,
        scale=scale or (_QUICK_SCALE if is_quick else 1.0),
        repetitions=repetitions or (_QUICK_REPETITIONS if is_quick else 5),
        output_path=given.output or (QUICK_RESULTS_PATH if is_quick else RESULTS_PATH),
        work_path=given.dir,
        chosen=tuple(filter(None, map(str.strip, given.rows.split(";")))),
    )


def _float_from_env(name: str) -> float | None:
    text = os.environ.get(name)
    return float(text) if text else None


@contextmanager
def work_directory(options: Options) -> Iterator[Path]:
    """Give a directory for data that is gone afterwards."""
    if options.work_path is not None:
        options.work_path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="silt-bench-", dir=options.work_path) as name:
        yield Path(name)


def touch_memory(size_bytes: int) -> None:
    """Use and free so much memory, so that page cache grows into what the machine has ready.

    In a virtual machine the first use of a page costs more than anything that is measured here.
    """
    size_bytes = min(size_bytes, _available_bytes() // 2)
    if size_bytes > 0:
        np.ones(size_bytes, np.uint8)


def _available_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def measure(case: Case, repetitions: int) -> CaseResult:
    """Run both sides in turns, and hold them against each other round by round."""
    sides = [case.ours] if case.reference is None else [case.ours, case.reference]
    runs: list[Run] = []
    for number in range(repetitions + 1):
        for side in sides if number % 2 else reversed(sides):
            if number == 0 and side.warm_up is not None:
                side.warm_up()
                continue
            touch_memory(2 * case.touch_bytes)
            gc.collect()
            work = side.run()
            _check(case, side, work)
            runs.append(
                Run(
                    side.name,
                    number,
                    work.seconds,
                    work.size_bytes,
                    work.record_count,
                    work.operation_count,
                    dict(work.details),
                )
            )
    return _summarised(case, tuple(runs))


def _check(case: Case, side: Side, work: Work) -> None:
    if work.size_bytes != case.size_bytes:
        raise WrongAnswerError(
            f"{case.name}: {side.name} did {work.size_bytes} bytes of {case.size_bytes}"
        )
    if work.record_count is not None and work.record_count != case.record_count:
        raise WrongAnswerError(
            f"{case.name}: {side.name} did {work.record_count} records of {case.record_count}"
        )


def _summarised(case: Case, runs: tuple[Run, ...]) -> CaseResult:
    counted = [run for run in runs if run.round]
    mine = [run for run in counted if run.side == case.ours.name]
    ours = _summary(mine)
    reference = None
    ratios: list[float] = []
    if case.reference is not None:
        theirs = [run for run in counted if run.side == case.reference.name]
        reference = _summary(theirs)
        ratios = [b.seconds / a.seconds for a, b in zip(mine, theirs, strict=True)]
    ratio = statistics.median(ratios) if ratios else None
    reached = []
    if case.goal_ratio is not None and ratio is not None:
        reached.append(ratio >= case.goal_ratio)
    if case.goal_mb_per_second is not None:
        reached.append(ours.mb_per_second >= case.goal_mb_per_second)
    details = {
        name: statistics.median(run.details[name] for run in mine) for name in mine[0].details
    }
    reached.extend(details[name] <= limit for name, limit in case.limits.items())
    return CaseResult(
        name=case.name,
        ours=ours,
        reference=reference,
        ratio=ratio,
        min_ratio=min(ratios, default=None),
        max_ratio=max(ratios, default=None),
        goal_ratio=case.goal_ratio,
        goal_mb_per_second=case.goal_mb_per_second,
        is_reached=all(reached) if reached else None,
        operation_name=case.operation_name,
        costs=case.costs,
        limits=dict(case.limits),
        details=details,
        runs=runs,
    )


def _summary(runs: Sequence[Run]) -> Summary:
    seconds = [run.seconds for run in runs]
    median = statistics.median(seconds)
    first = runs[0]
    return Summary(
        side=first.side,
        median_seconds=median,
        min_seconds=min(seconds),
        max_seconds=max(seconds),
        mb_per_second=first.size_bytes / median / MB,
        records_per_second=None if first.record_count is None else first.record_count / median,
        us_per_operation=median / first.operation_count * 1e6 if first.operation_count else None,
    )


@dataclass(slots=True)
class Report:
    """The result of one benchmark on its way to a file."""

    subject: str
    documentation: str
    options: Options
    data_path: Path
    shape: dict[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)  # of rivals
    notes: dict[str, Any] = field(default_factory=dict)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name
    _load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def __post_init__(self) -> None:
        """Take over what a run of named rows leaves as it is."""
        if not self.options.chosen:
            return
        paths = sorted(self.options.output_path.glob(f"????-??-??-{self.subject}.json"))
        newest = json.loads(paths[-1].read_text()) if paths else None
        if newest is not None and newest["scale"] == self.options.scale:
            self._rows = {row["name"]: row for row in newest["cases"]}
            self.shape.update({**newest["shape"], **self.shape})
            self.notes.update(newest["notes"])

    def measure(self, case: Case, max_repetitions: int | None = None) -> CaseResult:
        """Measure a case, tell how it went, and save it; a slow one may ask for fewer rounds."""
        repetitions = self.options.repetitions
        load = os.getloadavg()
        result = measure(case, min(repetitions, max_repetitions or repetitions))
        self._rows[case.name] = {
            **asdict(result),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": find_commit(),
            "load_average": load,
        }
        print(format_line(result), flush=True)
        self._save()
        return result

    def maybe_measure(self, case: Case, max_repetitions: int | None = None) -> CaseResult | None:
        """Measure a case if its row is wanted."""
        if not self.options.wants_row(case.name):
            return None
        return self.measure(case, max_repetitions)

    def write(self) -> Path:
        """Write all, the notes too, and say where to."""
        path = self._save()
        shown = path.relative_to(REPO_PATH) if path.is_relative_to(REPO_PATH) else path
        print(f"written to {shown}")
        return path

    def _save(self) -> Path:
        """Write what there is to `<date>-<subject>.json`, in place of an earlier one of the day."""
        now = datetime.now(UTC)
        content = {
            "subject": self.subject,
            "documentation": self.documentation.strip(),
            "finished": now.isoformat(timespec="seconds"),
            "command": ["python", f"benchmarks/bench_{self.subject}.py", *sys.argv[1:]],
            "is_quick": self.options.is_quick,
            "scale": self.options.scale,
            "repetitions": self.options.repetitions,
            "commit": find_commit(),
            "machine": describe_machine(self.data_path),
            "load_average": {"before": self._load_before, "after": os.getloadavg()},
            "versions": {**describe_versions(), **self.versions},
            "shape": dict(self.shape),
            "cases": list(self._rows.values()),
            "notes": self.notes,
        }
        self.options.output_path.mkdir(parents=True, exist_ok=True)
        path = self.options.output_path / f"{now:%Y-%m-%d}-{self.subject}.json"
        partial_path = path.with_suffix(".tmp")
        partial_path.write_text(json.dumps(content, indent=1) + "\n")
        partial_path.replace(path)
        return path


def format_line(result: CaseResult) -> str:
    """Say in one line how a case went."""
    what = result.operation_name
    parts = [f"{result.name}: {_format_side(result.ours, what)}"]
    if result.reference is not None:
        parts.append(f"{result.reference.side} {_format_side(result.reference, what)}")
        parts.append(f"ratio {result.ratio:.2f} ({result.min_ratio:.2f}-{result.max_ratio:.2f})")
    if result.is_reached is not None:
        goals = []
        if result.goal_ratio is not None:
            goals.append(f"{result.goal_ratio:g}x")
        if result.goal_mb_per_second is not None:
            goals.append(f"{result.goal_mb_per_second:g} MB/s")
        for name, limit in result.limits.items():
            goals.append(f"{name} {result.details[name]:.3g} <= {limit:g}")
        parts.append(f"goal {' and '.join(goals)} {'reached' if result.is_reached else 'MISSED'}")
    return "; ".join(parts)


def _format_side(summary: Summary, operation_name: str) -> str:
    text = f"{summary.median_seconds:.3f} s"
    if summary.mb_per_second >= 1:
        text += f", {summary.mb_per_second:,.0f} MB/s"
    if summary.us_per_operation is not None:
        text += f", {summary.us_per_operation:.1f} us a {operation_name}"
    return text + f" (spread {summary.spread:.0%})"


class Stopwatch:
    """Seconds between `with` and its end."""

    seconds = 0.0

    def __enter__(self) -> "Stopwatch":
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._started
