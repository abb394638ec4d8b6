"""The plain form of `silt get`, told without the option parser.

Checking the options of a command takes the parser longer than a lookup and all that it loads. So
`silt get TOPIC KEY`, with at most `--log-dir`, goes around it; whatever else is said goes the
usual way.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class QuickGet(NamedTuple):
    """What to look up, and where; None: the usual directory."""

    topic: str
    key: bytes
    log_dirs: list[Path] | None


def parse_quick_get(arguments: Sequence[str]) -> QuickGet | None:
    """Take a command line apart; None unless it is of the plain form."""
    if len(arguments) not in (3, 5) or arguments[0] != "get":
        return None
    words = list(arguments[1:])
    # The parser splits the variable at blanks: it is asked where there may be any.
    variable = os.environ.get("SILT_LOG_DIR", "")
    log_dirs = [Path(variable)] if variable else None
    if "--log-dir" in words[:-1] and len(words) == 4:
        at = words.index("--log-dir")
        log_dirs = [Path(words[at + 1])]
        del words[at : at + 2]
    elif any(character.isspace() for character in variable):
        return None
    if len(words) != 2 or any(word.startswith("-") for word in words):
        return None
    topic, key = words
    return QuickGet(topic, key.encode("utf-8", "surrogateescape"), log_dirs)
