"""Our side of the cleaning benchmark: passes by each engine, and what their workers need."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import Stopwatch, Work
from benchmarks.keyed_log import KeyedLogs
from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter
from siltstone.cleaner.commit import discard_pass
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.clock import SystemClock
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.spark.engine import SparkEngine
from siltstone.spark.forms import Stages
from siltstone.spark.session import Session

RunAll = Callable[[Sequence[CleaningPlan]], Iterable[PassOutcome]]

_WORKER: Final = b"siltstone.spark.daemon"
_TIMEOUT_SECONDS: Final = 120
_MIB: Final = 1 << 20


class Engines:
    """Spark with as many cores as wanted, warm; there is one context at a time."""

    def __init__(self) -> None:
        self._master = ""
        self._session: Session | None = None

    def get(self, core_count: int, stages: Stages = Stages.AUTO) -> SparkEngine:
        """Return an engine with so many cores; another number ends the one before."""
        master = f"local[{core_count}]"
        if self._session is None or master != self._master:
            self.close()
            self._session = Session(master, {})
            self._session.warm_up()
            self._master = master
        return SparkEngine(session=self._session, stages=stages)

    def close(self) -> None:
        """Stop Spark."""
        if self._session is not None:
            self._session.close()
            self._session = None


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes over fresh copies of some logs."""

    logs: KeyedLogs

    def on_spark(
        self,
        engines: Engines,
        core_count: int = 2,
        stages: Stages = Stages.AUTO,
        *,
        commits: bool = True,
    ) -> Work:
        """Clean all partitions in one job, and commit each as soon as it is there."""
        engine = engines.get(core_count, stages)
        with Workers() as workers:
            work = self._run(engine.run_all, commits=commits)
        return Work(
            work.seconds,
            work.size_bytes,
            work.record_count,
            details={**work.details, "worker MiB": workers.peak_bytes / _MIB},
        )

    def in_process(self, *, commits: bool = True) -> Work:
        """Clean with the kernels alone, in this process, with two threads."""
        engine = LocalEngine(thread_count=2)
        return self._run(
            lambda plans: (PassOutcome(plan, engine.run(plan)) for plan in plans), commits=commits
        )

    def _run(self, run_all: RunAll, *, commits: bool) -> Work:
        directory = self.logs.copy()
        fs = FileSystem()
        with LogManager([directory]) as manager:
            plans = [
                plan_pass(log, assess_log(log, None, 0, ignores_ratio=True)[0], now_ms=0)
                for log in manager.logs.values()
            ]
            committer = PassCommitter(fs, SystemClock(), CleanerCheckpoints(fs, directory))
            outcomes = []
            kept = 0
            commit_seconds = 0.0
            with Stopwatch() as whole:
                for outcome in run_all(plans):
                    outcomes.append(outcome)
                    log = manager.get_log(outcome.plan.partition)
                    result = outcome.get()
                    kept += result.counts.records_kept
                    if commits:
                        with Stopwatch() as committing:
                            committer.commit(log, outcome.plan, result)
                        commit_seconds += committing.seconds
            if not commits:
                for outcome in outcomes:
                    discard_pass(fs, manager.get_log(outcome.plan.partition), outcome.get())
        self.logs.check_kept(kept)
        return Work(
            whole.seconds,
            self.logs.total_bytes,
            self.logs.total_records,
            details={"run": whole.seconds - commit_seconds, "commit": commit_seconds},
        )


def compact_from_the_shell(logs: KeyedLogs, environment: Mapping[str, str]) -> Work:
    """Run `silt compact` as a user does: a fresh Python, a fresh JVM, fresh workers."""
    directory = logs.copy()
    silt = Path(sys.executable).with_name("silt")
    with Stopwatch() as watch:
        finished = subprocess.run(
            [silt, "compact", "--log-dir", directory, "--ignore-ratio"],
            env={**os.environ, **environment},
            timeout=_TIMEOUT_SECONDS,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    if str(logs.workload.key_count) not in finished.stdout:
        raise RuntimeError(f"silt compact did something else:\n{finished.stdout}")
    shutil.rmtree(directory)
    return Work(
        watch.seconds, logs.total_bytes, logs.total_records, details={"seconds": watch.seconds}
    )


class Workers:
    """The Python workers of our Spark, and the most memory that one had between start and end."""

    peak_bytes = 0

    def __enter__(self) -> "Workers":
        for process in _workers():
            (process / "clear_refs").write_text("5")  # The peak is counted from here on.
        return self

    def __exit__(self, *error: object) -> None:
        self.peak_bytes = max(map(_peak_bytes, _workers()), default=0)


def _workers() -> list[Path]:
    """Find the processes below this one that were forked for Spark's tasks."""
    parents: dict[int, int] = {}
    named = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat = (path / "stat").read_text()
                if _WORKER in (path / "cmdline").read_bytes():
                    named.add(int(path.name))
            except (FileNotFoundError, ProcessLookupError):  # It has just ended.
                continue
            parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
    return [Path("/proc", str(pid)) for pid in named if _is_below(pid, os.getpid(), parents)]


def _is_below(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _peak_bytes(process: Path) -> int:
    for line in (process / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
