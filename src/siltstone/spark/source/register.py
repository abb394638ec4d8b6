"""One line that lets a Spark session read topics: by format, and by name in SQL."""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from siltstone.errors import UsageError
from siltstone.log.log_reader import LogReader
from siltstone.spark.package import build_unpacking_package
from siltstone.spark.session import is_local
from siltstone.spark.source.data_source import SiltstoneSource
from siltstone.spark.source.warm_up import warm_up_source
from siltstone.table.request import View

_SENT_SETTING: Final = "spark.siltstone.package"


def register(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    database: str = "silt",
    view: View | str | None = None,
    push_filters: bool = False,
) -> None:
    """Make the format `siltstone` known to a session, and the topics of a log directory to SQL.

    With a `path`, each topic there becomes a table of `database`: the latest value of each key if
    the topic is compacted, every record if it is not, or the `view` that is given. What was
    created before by this function is replaced; topics that are added later need another call.

    `push_filters` lets Spark hand filters down to Python data sources, in all of the session. Then
    use each DataFrame for one query only: Spark 4.3 reads what the filters of the last one left.
    """
    _prepare(spark)
    if push_filters:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SiltstoneSource)
    if path is not None:
        _create_tables(spark, Path(path).absolute(), database, None if view is None else View(view))


def _prepare(spark: SparkSession) -> None:
    if not _is_classic(spark):
        # The server keeps it as long as this client stays, and brings it to its executors; it
        # would refuse the same a second time.
        if spark.conf.get(_SENT_SETTING, None) is None:
            warm_up_source()
            with tempfile.TemporaryDirectory() as directory:
                package = build_unpacking_package(Path(directory))
                spark.addArtifacts(str(package), pyfile=True)
            spark.conf.set(_SENT_SETTING, package.name)
        return
    context: Any = spark.sparkContext
    if is_local(context.master):
        # Whatever `python3` may be on the path: this package is where the driver's Python is.
        if "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
    elif not any("siltstone-" in file for file in context._python_includes):
        warm_up_source()
        # In the directory that the context deletes when it stops.
        kept = Path(tempfile.mkdtemp(dir=context._temp_dir))
        context.addPyFile(str(build_unpacking_package(kept)))


def _is_classic(spark: SparkSession) -> bool:
    """Say whether the session has its driver in this process; a Spark Connect client has not."""
    return hasattr(spark, "_jsparkSession")


def _create_tables(spark: SparkSession, path: Path, database: str, view: View | None) -> None:
    reader = LogReader([path])
    topics = {
        metadata.topic: view
        or (View.LATEST if reader.config(metadata.topic).is_compacted else View.LOG)
        for metadata in reader.topics()
    }
    _refuse_twins(topics)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quote(database)}")
    for topic, chosen in topics.items():
        source = _bind(path, topic, chosen, database)
        spark.dataSource.register(source)
        name = f"{_quote(database)}.{_quote(topic)}"
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} USING {_quote(source.name())}")


def _bind(path: Path, topic: str, view: View, database: str) -> type[DataSource]:
    """Make a format that reads one topic: a table's options do not reach a Python data source."""
    bound = {"path": str(path), "subscribe": topic, "view": view.value}
    name = f"siltstone.{database}.{topic}"

    class TopicSource(SiltstoneSource):
        fixes_offsets = False  # Its schema is kept in the catalog.

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__({**bound, **options})

        @classmethod
        def name(cls) -> str:
            return name

    return TopicSource


def _refuse_twins(topics: Iterable[str]) -> None:
    """Refuse topics whose names differ only in their case: to SQL they are one table."""
    seen: dict[str, str] = {}
    for topic in topics:
        other = seen.setdefault(topic.lower(), topic)
        if other != topic:
            raise UsageError(f"topics {other} and {topic} are one table in SQL: rename one of them")


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
