"""What a Python process of Spark that works for this source does once."""

import functools
import gc
import os
from typing import Final

_REUSED: Final = "SPARK_REUSE_WORKER"


@functools.cache
def spare_collector() -> None:
    """Take what has been imported out of the garbage collector's sight.

    Spark collects garbage after each task and each plan, before the process can go on with the
    next. To look at all modules and compiled kernels every time takes as long as reading some ten
    thousand records. In any process but those that Spark reuses, this is not ours to decide.
    """
    if _REUSED in os.environ:
        gc.collect()
        gc.freeze()
