"""`silt compact` through a broker: plans are made beside it, and carried out by it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from siltstone.broker.client import BrokerClient
from siltstone.cleaner.progress import Progress
from siltstone.cleaner.selection import Reason
from siltstone.cli import failures, output
from siltstone.cli.cleaning import NotCompactedError, split_config
from siltstone.cli.compact_answer import print_done
from siltstone.cli.output import OutputFormat
from siltstone.cli.plan_file import read_plans
from siltstone.cli.progress import open_progress
from siltstone.cli.relay import ask, check_exclusive, iter_answer, iter_lines
from siltstone.errors import BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """What the command line says."""

    topics: Sequence[str]
    dry_run: bool
    force: bool
    ignore_ratio: bool
    now_ms: int | None
    plan_file: Path | None
    config: Sequence[str]


def compact_remotely(address: str, request: CompactRequest, output_format: OutputFormat) -> None:
    """Have a broker carry out plans, and print what was done."""
    check_exclusive()
    cleaner_config, topic_config = split_config(request.config)
    with BrokerClient(address) as client:
        if request.plan_file is not None:
            cleaning, removing = read_plans(request.plan_file)
            plans = [json.loads(plan.to_json()) for plan in cleaning]
            retention = [json.loads(plan.to_json()) for plan in removing]
            damaged = []
        else:
            verdicts = _plan(client, request, topic_config, output_format)
            plans = [verdict["plan"] for verdict in verdicts if verdict["plan"]]
            retention = [v["retention_plan"] for v in verdicts if v["retention_plan"]]
            damaged = [v for v in verdicts if v["error_code"] is not None]
        asked = {
            "plans": plans,
            "retention": retention,
            "dry_run": request.dry_run,
            "io_bytes_per_second": cleaner_config.io_bytes_per_second,
        }
        answer = _watch(client, {"compact": asked}, output_format)
    for one in damaged:
        _report(one, one["error_code"], one["explanation"], output_format)
    for one in answer["failures"]:
        _report(one, failures.code_of_class(one["kind"]), one["message"], output_format)
    print_done(answer["done"], output_format, dry_run=request.dry_run)
    if damaged or answer["failures"]:
        raise typer.Exit(1)


def _plan(
    client: BrokerClient,
    request: CompactRequest,
    topic_config: dict[str, str],
    output_format: OutputFormat,
) -> list[dict[str, Any]]:
    """Return the verdicts of `silt plan`, the filthiest log first."""
    words = ["plan", "--output", "json"]
    words += [] if request.now_ms is None else ["--now", str(request.now_ms)]
    words += [word for pair in topic_config.items() for word in ("--config", "=".join(pair))]
    verdicts = _ask_verdicts(client, [*words, "--", *request.topics], output_format)
    for verdict in verdicts:
        if verdict["topic"] in request.topics and verdict["reason"] == Reason.NOT_COMPACTED:
            policy = verdict["explanation"].removeprefix("cleanup.policy is ")
            raise NotCompactedError(verdict["topic"], policy)
    if request.force and not request.dry_run:
        whole = [v for v in verdicts if v["error_code"] is None]
        ask(client, {"roll": [[v["topic"], v["partition"]] for v in whole]})
    if request.force or request.ignore_ratio:
        words.append("--ignore-ratio")
        words += ["--force"] if request.force and request.dry_run else []
        verdicts = _ask_verdicts(client, [*words, "--", *request.topics], output_format)
    return sorted(verdicts, key=lambda verdict: -(verdict["dirty_ratio"] or 0.0))


def _ask_verdicts(
    client: BrokerClient, words: Sequence[str], output_format: OutputFormat
) -> list[dict[str, Any]]:
    def write_message(data: bytes) -> None:
        # It was asked for JSON, whatever the user wants.
        is_wanted = output_format is OutputFormat.JSON
        lines = data.splitlines(keepends=True)
        output.write_message(b"".join(x for x in lines if is_wanted or not x.startswith(b"{")))

    data = bytearray()
    try:
        for piece in iter_answer(client, {"arguments": list(words)}, write_message):
            data += piece
    except typer.Exit:
        # With an answer: only some logs could not be looked at, and it says which.
        if not data:
            raise
    verdicts: list[dict[str, Any]] = json.loads(data)
    return verdicts


def _watch(
    client: BrokerClient, question: dict[str, Any], output_format: OutputFormat
) -> dict[str, Any]:
    with open_progress(output_format) as show:
        for document in iter_lines(client, question):
            if "progress" in document:
                if show is not None:
                    show(Progress.from_fields(document["progress"]))
            elif "error" in document:
                raise BrokerError(document["error"])
            else:
                return document
    raise BrokerError("the broker has not said what was done")


def _report(one: dict[str, Any], code: str, message: str, output_format: OutputFormat) -> None:
    about = f"{one['topic']}-{one['partition']}"
    failures.report_text(message, code, as_json=output_format is OutputFormat.JSON, about=about)
