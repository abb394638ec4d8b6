"""The plain form of `silt get`, answered without the option parser.

To load the parser takes longer than a lookup and all that it needs. So `silt get TOPIC KEY`, with
at most `--log-dir` and `--output json`, goes around it. Whatever else is said goes the usual way,
and so does whatever fails: the usual way says what is wrong, and how it ends.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from siltstone.cli import output
from siltstone.cli.described import to_json
from siltstone.cli.log_dirs import check_log_dirs, resolve_log_dirs
from siltstone.errors import SiltstoneError
from siltstone.log.log_reader import LogReader
from siltstone.table.table import Table


class QuickGet(NamedTuple):
    """What to look up, and where; None: the usual directory."""

    topic: str
    key: bytes
    log_dirs: list[Path] | None
    as_json: bool = False


def parse_quick_get(arguments: Sequence[str]) -> QuickGet | None:
    """Take a command line apart; None unless it is of the plain form."""
    if len(arguments) < 3 or arguments[0] != "get":
        return None
    words = list(arguments[1:])
    as_json = _take(words, "--output")
    log_dir = _take(words, "--log-dir")
    if len(words) != 2 or any(word.startswith("-") for word in words):
        return None
    # The parser splits the variable at blanks: it is asked where there may be any.
    variable = os.environ.get("SILT_LOG_DIR", "")
    if as_json not in (None, "json") or (log_dir is None and len(variable.split()) > 1):
        return None
    chosen = log_dir or variable
    topic, key = words
    return QuickGet(
        topic,
        key.encode("utf-8", "surrogateescape"),
        [Path(chosen)] if chosen else None,
        as_json is not None,
    )


def answer(question: QuickGet) -> bool:
    """Print the value, if there is one; False: ask the usual way, nothing is printed."""
    try:
        paths = resolve_log_dirs(question.log_dirs)
        check_log_dirs(paths)
        record = Table(LogReader(paths), question.topic).find(question.key)
    except (SiltstoneError, OSError):
        return False
    if record is None or record.is_tombstone:
        return False
    if question.as_json:
        output.print_json(to_json(question.topic, record))
    else:
        output.print_line(output.format_bytes(record.value))
    output.flush()
    return True


def _take(words: list[str], option: str) -> str | None:
    """Take an option with its value out of the words."""
    if option not in words[:-1]:
        return None
    at = words.index(option)
    _, value = words[at : at + 2]
    del words[at : at + 2]
    return value
