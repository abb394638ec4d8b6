"""The memory of the kernels' compiler goes until it is needed again."""

import re
from pathlib import Path

from numba import njit

from siltstone.broker.compiler_memory import release_compiler


def resident_kib() -> int:
    """Return how much of the compiler's library is in memory."""
    total = 0
    is_library = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_library = "libllvmlite" in line
        elif is_library and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def compile_and_call() -> int:
    return int(njit(lambda number: number + 1)(1))


def test_the_pages_of_the_compiler_are_given_back_and_it_still_works() -> None:
    # Another test of this process may have had them given back before.
    assert compile_and_call() == 2
    before = resident_kib()

    release_compiler()

    assert resident_kib() < before
    assert compile_and_call() == 2
