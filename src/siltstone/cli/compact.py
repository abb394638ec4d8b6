"""`silt compact`: plan passes, run them on Spark, commit them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassCommitter
from siltstone.cleaner.commit import check_sources, discard_pass
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.survey import survey_logs
from siltstone.cli import output
from siltstone.cli.cleaning import (
    IgnoreRatio,
    NotCompactedError,
    Now,
    Topics,
    find_partitions,
    read_plans,
)
from siltstone.cli.logs import open_manager
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.tables import Column, print_table
from siltstone.clock import SystemClock
from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.spark.engine import SparkEngine
from siltstone.spark.session import DEFAULT_MASTER

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Cleaned(NamedTuple):
    """One pass that was run; without a manifest if it was not committed."""

    plan: CleaningPlan
    result: PassResult
    manifest: str | None

    @property
    def bytes_after(self) -> int:
        """The size of the cleaned part of the log afterwards."""
        unchanged_bytes = self.plan.bytes_of(self.result.unchanged_bases())
        return self.result.counts.bytes_written + unchanged_bytes


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
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Run the plans that `silt plan` wrote."),
    ] = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Clean every log that is due for it: the last value of each key stays."""
    with open_manager(log_dir, config) as manager:
        _refuse_uncompacted(manager, topics)
        plans, failed = _make_plans(
            manager,
            topics,
            plan_file,
            SystemClock().now_ms() if now is None else now,
            force=force and not dry_run,
            ignores_ratio=ignore_ratio or force,
        )
        cleaned, errors = _run(manager, plans, master, dry_run=dry_run)
    for partition, error in [*failed, *errors]:
        output.print_message(f"silt: error: {partition}: {error}")
    if output_format is OutputFormat.JSON:
        output.print_json_list([_describe(one) for one in cleaned])
    else:
        _print_text(cleaned, dry_run=dry_run)
    if failed or errors:
        raise typer.Exit(1)


Failure = tuple[TopicPartition, SiltstoneError]


def _refuse_uncompacted(manager: LogManager, topics: Sequence[str] | None) -> None:
    for topic in topics or []:
        settings = manager.config(topic)
        if not settings.is_compacted:
            raise NotCompactedError(topic, settings.to_strings()["cleanup.policy"])


def _make_plans(
    manager: LogManager,
    topics: Sequence[str] | None,
    plan_file: Path | None,
    now_ms: int,
    *,
    force: bool,
    ignores_ratio: bool,
) -> tuple[list[CleaningPlan], list[Failure]]:
    if plan_file is not None:
        return read_plans(plan_file), []
    partitions = find_partitions(manager, topics)
    if force:
        for partition in partitions:
            log = manager.get_log(partition)
            if log.config.is_compacted and log.segments.active.size_bytes:
                log.roll()
    survey = survey_logs(manager, partitions, now_ms, ignores_ratio=ignores_ratio)
    return survey.plans(), list(survey.failures)


def _run(
    manager: LogManager, plans: Sequence[CleaningPlan], master: str, *, dry_run: bool
) -> tuple[list[Cleaned], list[Failure]]:
    cleaned: list[Cleaned] = []
    errors: list[Failure] = []
    if not plans:
        return cleaned, errors
    fs = FileSystem()
    for plan in plans:
        check_sources(manager.get_log(plan.partition), plan)
    engine = SparkEngine(master)
    try:
        for outcome in engine.run_all(plans):
            plan = outcome.plan
            log = manager.get_log(plan.partition)
            try:
                result = outcome.get()
                if dry_run:
                    discard_pass(fs, log, result)
                    cleaned.append(Cleaned(plan, result, None))
                    continue
                committer = PassCommitter(
                    fs, SystemClock(), CleanerCheckpoints(fs, log.directory.parent)
                )
                committed = committer.commit(log, plan, result)
                cleaned.append(Cleaned(plan, result, committed.manifest))
            except SiltstoneError as error:
                errors.append((plan.partition, error))
    finally:
        engine.close()
    return cleaned, errors


def _describe(cleaned: Cleaned) -> dict[str, Any]:
    counts = cleaned.result.counts.as_dict()
    del counts["bytes_read"], counts["bytes_written"]
    return {
        "topic": cleaned.plan.partition.topic,
        "partition": cleaned.plan.partition.partition,
        **counts,
        "bytes_before": cleaned.plan.source_bytes(),
        "bytes_after": cleaned.bytes_after,
        "seconds": round(cleaned.result.seconds, 6),
        "manifest": cleaned.manifest,
    }


def _print_text(cleaned: Sequence[Cleaned], *, dry_run: bool) -> None:
    if not cleaned:
        output.print_line("Nothing to clean; silt plan says why.")
        return
    print_table(
        [
            Column("PARTITION"),
            Column("RECORDS", is_number=True),
            Column("KEPT", is_number=True),
            Column("SUPERSEDED", is_number=True),
            Column("TOMBSTONES KEPT", is_number=True),
            Column("REMOVED", is_number=True),
            Column("BEFORE", is_number=True),
            Column("AFTER", is_number=True),
            Column("SECONDS", is_number=True),
        ],
        [
            (
                str(one.plan.partition),
                str(one.result.counts.records_read),
                str(one.result.counts.records_kept),
                str(one.result.counts.superseded),
                str(one.result.counts.tombstones_kept),
                str(one.result.counts.tombstones_removed),
                output.format_size(one.plan.source_bytes()),
                output.format_size(one.bytes_after),
                f"{one.result.seconds:.2f}",
            )
            for one in cleaned
        ],
    )
    if dry_run:
        output.print_line("Nothing was changed: this was a dry run.")
