"""A pass with the kernels, in this process: two walks over the sources of one log.

The first checks every CRC and enters every key, so that afterwards each record is known to be the
last of its key or not. The second decides what is left of each batch and writes it. Between them
only a byte per record and the table of keys are kept; what was mapped stays mapped, as long as it
is not too much.
"""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from siltstone.cleaner.batch_modes import TrackedModes
from siltstone.cleaner.key_marks import KeyMarks
from siltstone.cleaner.key_walk import KeyWalk
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.cleaner.rewriting import Rewriting
from siltstone.cleaner.side_by_side import Threads
from siltstone.cleaner.storage import DirectoryStorage, PassStorage

_MAX_KEPT_BYTES: Final = 1 << 30
"""What is mapped for both walks; of more, each walk maps a little at a time."""


class LocalEngine:
    """Carries out plans in this process, one partition at a time.

    `attempt` names the files it writes: two attempts at one plan do not get in each other's way.
    """

    def __init__(
        self,
        attempt: str = "local",
        open_storage: Callable[[Path], PassStorage] = DirectoryStorage,
        *,
        thread_count: int = 1,
    ) -> None:
        self._attempt = attempt
        self._open_storage = open_storage
        self._thread_count = thread_count

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        started = time.perf_counter()
        storage = self._open_storage(plan.directory)
        if plan.source_bytes() <= _MAX_KEPT_BYTES:
            for source in plan.sources:
                storage.open_source(source.base_offset).keep_views()
        with closing(Threads(self._thread_count)) as threads:
            walk = KeyWalk(storage, KeyMarks(plan.hash_key), TrackedModes(plan.aborted), threads)
            crcs = tuple(walk.enter(s.base_offset, 0, s.size_bytes) for s in plan.sources)
            marks = walk.keys.mark_winners()
            index_seconds = time.perf_counter() - started
            modes = TrackedModes(plan.aborted)
            rewriting = Rewriting(plan, storage, self._attempt, marks, modes, threads)
            groups = tuple(rewriting.clean(group) for group in plan.groups)
        seconds = time.perf_counter() - started
        counts = rewriting.total_counts()
        return PassResult(plan.pass_id, groups, counts, crcs, seconds, index_seconds)
