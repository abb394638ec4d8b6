"""The process that Spark forks its Python workers from, with everything imported beforehand.

`spark.python.daemon.module` names it. A worker that is forked here begins with its task at once;
one that Spark's own daemon forks spends its first second or two on imports and on kernels.
"""

import gc

from pyspark import daemon

from siltstone.cleaner.warm_up import warm_up
from siltstone.spark import staged, tasks  # noqa: F401 - imported for the workers


def run() -> None:
    """Fork workers until Spark ends."""
    warm_up()
    # Spark collects garbage after each task. What was imported here is none: to look at all of it
    # every time takes longer than a small task, and copies the pages that workers share.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    run()
