"""How progress is shown: a bar on a terminal, JSON lines for programs, nothing elsewhere."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from siltstone.cleaner.progress import Progress, Show, Stage
from siltstone.cli import output
from siltstone.cli.output import OutputFormat

_STAGES: Final = {
    Stage.START: "starting Spark",
    Stage.INDEX: "finding keys",
    Stage.REWRITE: "rewriting",
    Stage.COMMIT: "committing",
    Stage.DONE: "done",
}


@contextmanager
def open_progress(output_format: OutputFormat) -> Iterator[Show | None]:
    """Show progress on stderr until the end of the block, as fits who reads it."""
    if output_format is OutputFormat.JSON:
        yield _print_line
    elif not sys.stderr.isatty():
        yield None
    else:
        with _open_bar() as bar:
            yield _BarView(bar).show


def _print_line(progress: Progress) -> None:
    output.print_message(output.format_json({"progress": dataclasses.asdict(progress)}))


def _open_bar() -> Bar:
    """Make a bar that is gone when the answer comes."""
    return Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class _BarView:
    """One bar for all passes together, with what happened last in front of it."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = bar.add_task(_STAGES[Stage.START], total=None)

    def show(self, progress: Progress) -> None:
        about = "" if progress.topic is None else f"{progress.topic}-{progress.partition} "
        self._bar.update(
            self._task,
            description=f"{about}{_STAGES[progress.stage]}",
            total=None if progress.stage is Stage.START else progress.bytes_total,
            completed=progress.bytes_done,
        )
