"""Every test of a pass runs with every engine."""

from pathlib import Path

import pytest

from siltstone.cleaner.engine import CleaningEngine
from tests.support.cleaning import ENGINES, Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> CleaningEngine:
    """Return an engine; a test that asks for it, or for `cleaner`, is run with each."""
    name: str = request.param
    return ENGINES[name]()


@pytest.fixture
def cleaner(engine: CleaningEngine, clock: ManualClock) -> Cleaner:
    """The owner of a test's logs."""
    return Cleaner(engine, clock)


@pytest.fixture
def make_log(tmp_path: Path, clock: ManualClock) -> MakeCompactedLog:
    """Compacted logs from a line of text; see `tests.support.make_log`."""
    return MakeCompactedLog(tmp_path, clock)
