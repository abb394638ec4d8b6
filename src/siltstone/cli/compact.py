"""`silt compact`: plan passes and retention, run the passes on Spark, commit everything."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from siltstone.cleaner.compaction import Compaction, Outcome, PlannedWork
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.progress import CompactionProgress, PassProgress
from siltstone.cleaner.survey import survey_logs
from siltstone.cli import failures
from siltstone.cli.cleaning import (
    IgnoreRatio,
    NotCompactedError,
    Now,
    Topics,
    find_partitions,
    knows_retention,
    split_config,
)
from siltstone.cli.compact_answer import print_done
from siltstone.cli.interrupts import interrupts_deferred
from siltstone.cli.logs import open_manager
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.plan_file import read_plans
from siltstone.cli.progress import open_progress
from siltstone.cli.relay import BootstrapServer
from siltstone.cli.remote_compaction import CompactRequest, compact_remotely
from siltstone.clock import SystemClock
from siltstone.errors import UsageError
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.spark.engine import SparkEngine
from siltstone.spark.forms import Stages
from siltstone.spark.session import DEFAULT_MASTER

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def compact(
    topics: Topics = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do everything but the commit, with exact figures.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Roll the active segments first, to clean them as well.")
    ] = False,
    ignore_ratio: IgnoreRatio = False,
    now: Now = None,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="The Spark master to run on.")
    ] = DEFAULT_MASTER,
    stages: Annotated[
        Stages,
        typer.Option(
            "--stages",
            help="One task per partition, or many in three stages; auto goes by size and cores.",
        ),
    ] = Stages.AUTO,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", help="Run the plans that `silt plan --output json` wrote."
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Clean every log that is due for it: the last value of each key stays.

    Old segments of topics whose policy includes delete go by retention.ms and retention.bytes.
    """
    _refuse_clashes(
        plan_file,
        {
            "TOPIC": bool(topics),
            "--force": force,
            "--ignore-ratio": ignore_ratio,
            "--now": now is not None,
        },
    )
    if bootstrap_server is not None:
        _refuse_engine(master, stages)
        request = CompactRequest(
            topics=topics or [],
            dry_run=dry_run,
            force=force,
            ignore_ratio=ignore_ratio,
            now_ms=now,
            plan_file=plan_file,
            config=config or [],
        )
        compact_remotely(bootstrap_server, request, output_format)
        return
    cleaner_config, topic_config = split_config(config)
    engine = SparkEngine(
        master, stages=stages, io_bytes_per_second=cleaner_config.io_bytes_per_second
    )
    with open_manager(log_dir, topic_config) as manager:
        if plan_file is None:
            work = _find_work(
                manager,
                topics,
                SystemClock().now_ms() if now is None else now,
                set(topic_config),
                rolls=force and not dry_run,
                as_if_rolled=force and dry_run,
                ignores_ratio=ignore_ratio or force,
            )
        else:
            work = PlannedWork(*read_plans(plan_file))
        outcome = _carry_out(manager, engine, work, output_format, dry_run=dry_run)
    for partition, error in outcome.failures:
        as_json = output_format is OutputFormat.JSON
        failures.report(error, as_json=as_json, about=str(partition))
    print_done(outcome.describe(), output_format, dry_run=dry_run)
    if outcome.failures:
        raise typer.Exit(1)


def _carry_out(
    manager: LogManager,
    engine: SparkEngine,
    work: PlannedWork,
    output_format: OutputFormat,
    *,
    dry_run: bool,
) -> Outcome:
    with open_progress(output_format) as show:
        progress = CompactionProgress(work.plans, show)

        @contextmanager
        def run(
            plans: Sequence[CleaningPlan], on_progress: Callable[[PassProgress], None] | None
        ) -> Iterator[Iterator[PassOutcome]]:
            try:
                progress.note_start()
                engine.start()
                progress.note_begin()
                with closing(engine.run_all(plans, on_progress)) as passes:
                    yield passes
            finally:
                engine.close()

        compaction = Compaction(
            manager,
            FileSystem(),
            SystemClock(),
            run,
            dry_run=dry_run,
            guard=interrupts_deferred,
        )
        return compaction.carry_out(work, progress)


def _refuse_engine(master: str, stages: Stages) -> None:
    """Refuse what the broker has decided when it was started."""
    if master != DEFAULT_MASTER:
        raise UsageError("--master and --bootstrap-server exclude each other: it is the broker's")
    if stages is not Stages.AUTO:
        raise UsageError("--stages and --bootstrap-server exclude each other: it is the broker's")


def _refuse_clashes(plan_file: Path | None, given: dict[str, bool]) -> None:
    """Refuse what a plan has decided already."""
    for name, is_given in given.items():
        if plan_file is not None and is_given:
            raise UsageError(f"--plan and {name} exclude each other")


def _find_work(
    manager: LogManager,
    topics: Sequence[str] | None,
    now_ms: int,
    overridden: set[str],
    *,
    rolls: bool,
    as_if_rolled: bool,
    ignores_ratio: bool,
) -> PlannedWork:
    for topic in topics or []:
        settings = manager.config(topic)
        if not settings.is_compacted:
            raise NotCompactedError(topic, settings.to_strings()["cleanup.policy"])
    partitions = find_partitions(manager, topics)
    if rolls:
        for partition in partitions:
            log = manager.logs.get(partition)  # a damaged one is reported by the survey
            if log is not None and log.config.is_compacted and log.segments.active.size_bytes:
                log.roll()
    survey = survey_logs(
        manager,
        partitions,
        now_ms,
        ignores_ratio=ignores_ratio,
        as_if_rolled=as_if_rolled,
        has_retention=lambda topic: knows_retention(manager.describe(topic), overridden),
    )
    return PlannedWork(survey.plans(), survey.retention_plans(), list(survey.failures))
