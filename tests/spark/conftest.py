"""One JVM for all tests of a worker, and in it one Spark context at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from siltstone.spark.engine import SparkEngine
from siltstone.spark.session import Session
from siltstone.spark.source.register import register
from tests.spark.cluster import Cluster, start_cluster


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this directory; with `--dist loadgroup` one worker gets all of it."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # A few JVMs start at the same time, on a machine that may be busy.
            item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.xdist_group("spark"))


class Engines:
    """Engines by master and settings; Spark allows one context at a time, so the last is kept."""

    def __init__(self) -> None:
        self._key: object = None
        self._session: Session | None = None

    def get(
        self, master: str = "local[2]", conf: Mapping[str, str] | None = None, **options: Any
    ) -> SparkEngine:
        """Return an engine with these settings and options; other settings end the one before."""
        key = master, sorted((conf or {}).items())
        if self._session is None or key != self._key:
            self.close()
            self._session = Session(master, conf or {})
            self._key = key
        return SparkEngine(session=self._session, **options)

    def close(self) -> None:
        """Stop Spark."""
        if self._session is not None:
            self._session.close()
            self._session = None


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Engines, one at a time."""
    engines = Engines()
    yield engines
    engines.close()


@pytest.fixture
def engine(engines: Engines) -> SparkEngine:
    """An engine with two cores of this machine."""
    return engines.get()


@pytest.fixture
def spark(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on the context of the engines."""
    engines.get().start()
    warehouse = tmp_path_factory.getbasetemp() / "warehouse"
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(warehouse))
    session = builder.getOrCreate()
    register(session)
    yield session
    session.sql("DROP DATABASE IF EXISTS silt CASCADE")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, engines: Engines) -> Iterator[Cluster]:
    """A cluster, which waits while others use Spark without it."""
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        engines.close()
