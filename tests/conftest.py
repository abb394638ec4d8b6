"""What every test gets: the Hypothesis profiles, and on demand a clock and logs.

`ci` is the default and gives the same verdict every time; `--hypothesis-profile=nightly` searches.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.clock import ManualClock
from tests.support.make_log import MakeLog

# Modules without tests, whose failures shall tell what was compared all the same.
pytest.register_assert_rewrite("tests.support.log_checks", "tests.support.pass_checks")

# A kernel compiles on its first call, which takes seconds: neither a deadline nor the health check
# on slow data means anything for that example.
_COMPILING = [HealthCheck.too_slow]

settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=_COMPILING
)
settings.register_profile(
    "nightly",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=_COMPILING,
)
settings.load_profile("ci")


@pytest.fixture
def clock() -> ManualClock:
    """Time that passes when the test says so."""
    return ManualClock()


@pytest.fixture
def make_log(tmp_path: Path, clock: ManualClock) -> MakeLog:
    """Logs from a line of text; see `tests.support.make_log`."""
    return MakeLog(tmp_path, clock)
