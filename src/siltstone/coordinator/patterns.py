"""Patterns that clients send, over the names of topics or of transactions.

They run on the event loop, so they are RE2's, as in Kafka: no pattern takes longer than its length
times that of the name. What Python's own engine takes may well not end before the broker does.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import re2

from siltstone.errors import DecodeError

# Of a pattern, once it is compiled: repetitions within repetitions make a short one large.
_MAX_BYTES: Final = 256 << 10
_CACHED_RESULTS: Final = 64


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.log_errors = False
    return options


_OPTIONS: Final = _options()


def check_pattern(pattern: str) -> None:
    """Raise DecodeError unless a pattern is one."""
    try:
        re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0]
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise DecodeError(0, f"{pattern!r} is no pattern: {reason}") from error


def find_matches(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern matches from end to end; raise DecodeError if it is none."""
    check_pattern(pattern)
    compiled = re2.compile(pattern, _OPTIONS)
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


@lru_cache(_CACHED_RESULTS)
def find_topics(pattern: str, topics: tuple[str, ...]) -> frozenset[str]:
    """Return the topics that a pattern matches, but for those of the brokers.

    Groups ask again and again, and topics seldom change: what was found is remembered. What is no
    pattern, but another broker has written down as one, matches nothing.
    """
    try:
        matches = find_matches(pattern, topics)
    except DecodeError:
        return frozenset()
    return frozenset(name for name in matches if not name.startswith("__"))
