"""What every test gets: the Hypothesis profiles.

`ci` is the default and gives the same verdict every time; `--hypothesis-profile=nightly` searches.
"""

from hypothesis import HealthCheck, settings

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
