"""The compiler's memory goes, and the kernels stay."""

import re
from pathlib import Path

import llvmlite.binding  # noqa: F401 - so that it is loaded, in whatever order the tests run

from siltstone.broker.compiler_memory import release_compiler
from siltstone.broker.warm_up import warm_up


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


def test_the_pages_of_the_compiler_are_given_back_and_the_kernels_still_work() -> None:
    warm_up()
    before = resident_kib()

    release_compiler()

    assert resident_kib() < before
    warm_up()
