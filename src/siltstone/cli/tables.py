"""Tables for people."""

import io
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from siltstone.cli.output import print_line

_UNLIMITED_WIDTH: Final = 10_000  # a pipe has no width: nothing wraps, nothing is cut


class Column(NamedTuple):
    """A column of a table."""

    header: str
    is_number: bool = False


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Write a table with a header line; wider than the terminal only in a pipe."""
    is_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.header, justify="right" if column.is_number else "left")
    for row in rows:
        # As Text, so that a topic's name is never taken for markup.
        table.add_row(*(Text(cell) for cell in row))

    # Told what it writes to, or FORCE_COLOR and the like would put control characters in a pipe.
    drawn = io.StringIO()
    console = Console(
        file=drawn,
        force_terminal=is_terminal,
        width=None if is_terminal else _UNLIMITED_WIDTH,
        highlight=False,
    )
    console.print(table)
    for line in drawn.getvalue().splitlines():
        print_line(line.rstrip())
