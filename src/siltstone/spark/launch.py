"""Start the JVM of a local Spark as early as possible: nothing slow is imported for it."""

import atexit
from collections.abc import Mapping
from typing import Final

from siltstone.spark.class_archive import archive_path, make_soon, use_options
from siltstone.spark.driver_jvm import DriverJvm, is_ours_to_start, launch

_DEFAULT_MEMORY: Final = "1g"  # Spark's own default


def launch_driver(master: str, conf: Mapping[str, str]) -> DriverJvm | None:
    """Start the JVM of this process unless that was done before; None if PySpark is to do it.

    A command that will need Spark calls this first, and has its own imports while Java starts.
    """
    if not is_ours_to_start(master, conf):
        return None
    archive = archive_path()
    options = use_options(archive)
    if not options:
        atexit.register(make_soon, archive)
    return launch(options, conf.get("spark.driver.memory", _DEFAULT_MEMORY))
