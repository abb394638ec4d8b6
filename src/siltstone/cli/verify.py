"""`silt verify`: prove every invariant of logs, or list what breaks one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from siltstone.cleaner.verify import Finding, Report, VerifyRequest, verify_partition
from siltstone.cli import output
from siltstone.cli.cleaning import Now, Topics, find_partitions
from siltstone.cli.log_dirs import check_log_dirs, resolve_log_dirs
from siltstone.cli.logs import open_reader
from siltstone.cli.options import LogDirs, Output, Overrides
from siltstone.cli.output import OutputFormat
from siltstone.cli.relay import BootstrapServer, relay
from siltstone.cli.tables import Column, print_table
from siltstone.clock import SystemClock
from siltstone.errors import StorageError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.log_reader import LogReader

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def verify(
    topics: Topics = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Decode every record, rather than headers, checksums and indexes."
        ),
    ] = False,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="DIR_BEFORE",
            help="Copy of the log directory from before; implies --deep.",
        ),
    ] = None,
    now: Now = None,
    bootstrap_server: BootstrapServer = None,
    log_dir: LogDirs = None,
    config: Overrides = None,
    output_format: Output = OutputFormat.TEXT,
) -> None:
    """Check that logs are sound and that nothing went which had to stay.

    Works on directories of a stock Kafka, too; name the settings of their topics with --config.
    """
    if bootstrap_server is not None:
        relay(bootstrap_server)
        return
    reader = open_reader(log_dir, config)
    befores = list(against or [])
    check_log_dirs(befores)
    now_ms = SystemClock().now_ms() if now is None else now
    paths = resolve_log_dirs(log_dir)
    reports = []
    is_ok = True
    for partition in find_partitions(reader, topics):
        request = _request(reader, partition, paths, befores, now_ms, deep=deep)
        try:
            reports.append(verify_partition(request))
        except StorageError as error:
            # One that cannot be read stops no other.
            output.print_message(f"silt: error: {partition}: {error}")
            is_ok = False
    is_ok = is_ok and all(report.is_ok for report in reports)
    if output_format is OutputFormat.JSON:
        output.print_json(_describe(reports, is_ok=is_ok))
    else:
        _print_text(reports)
    if not is_ok:
        raise typer.Exit(1)


def _request(
    reader: LogReader,
    partition: TopicPartition,
    paths: Sequence[Path],
    befores: Sequence[Path],
    now_ms: int,
    *,
    deep: bool,
) -> VerifyRequest:
    log_dir = _find_log_dir(partition, paths)
    if log_dir is None:
        raise UnknownTopicError(partition.topic, partition.partition)
    return VerifyRequest(
        partition=partition,
        log_dir=log_dir,
        config=reader.config(partition.topic),
        now_ms=now_ms,
        deep=deep,
        before_dir=_find_log_dir(partition, befores) or next(iter(befores), None),
    )


def _find_log_dir(partition: TopicPartition, paths: Sequence[Path]) -> Path | None:
    name = filenames.partition_dir_name(partition)
    return next((path for path in paths if (path / name).is_dir()), None)


def _describe(reports: Sequence[Report], *, is_ok: bool) -> dict[str, Any]:
    return {
        "ok": is_ok,
        "violations": [_describe_finding(f) for report in reports for f in report.violations],
        "warnings": [_describe_finding(f) for report in reports for f in report.warnings],
        "partitions": [
            {
                "topic": report.partition.topic,
                "partition": report.partition.partition,
                "ok": report.is_ok,
                "segments": report.segment_count,
                "batches": report.batch_count,
                "records": report.record_count,
                "bytes": report.size_bytes,
                "log_start_offset": report.log_start_offset,
                "first_dirty_offset": report.first_dirty_offset,
                "log_end_offset": report.log_end_offset,
            }
            for report in reports
        ],
    }


def _describe_finding(finding: Finding) -> dict[str, Any]:
    return {
        "invariant": finding.invariant,
        "topic": finding.partition.topic,
        "partition": finding.partition.partition,
        "file": finding.file,
        "position": finding.position,
        "offset": finding.offset,
        "message": finding.message,
    }


def _print_text(reports: Sequence[Report]) -> None:
    findings = [finding for report in reports for finding in report.findings]
    if findings:
        print_table(
            [
                Column("INVARIANT"),
                Column("SEVERITY"),
                Column("PARTITION"),
                Column("FILE"),
                Column("POSITION", is_number=True),
                Column("OFFSET", is_number=True),
                Column("WHAT"),
            ],
            [
                (
                    finding.invariant,
                    finding.severity.value,
                    str(finding.partition),
                    finding.file or "-",
                    _format_number(finding.position),
                    _format_number(finding.offset),
                    finding.message,
                )
                for finding in findings
            ],
        )
        output.print_line("")
    for report in reports:
        output.print_line(_summarize(report))


def _summarize(report: Report) -> str:
    verdict = "ok" if report.is_ok else _count(len(report.violations), "violation")
    if report.warnings:
        verdict += f", {_count(len(report.warnings), 'warning')}"
    return (
        f"{report.partition}: {verdict}; {_count(report.segment_count, 'segment')}, "
        f"{_count(report.batch_count, 'batch', 'batches')}, "
        f"{_count(report.record_count, 'record')}, {output.format_size(report.size_bytes)}; "
        f"offsets {report.log_start_offset} to {report.log_end_offset}, clean up to "
        f"{report.first_dirty_offset}"
    )


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _format_number(number: int | None) -> str:
    return "-" if number is None else str(number)
