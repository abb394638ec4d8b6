"""Who carries out a plan."""

from typing import Protocol

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult


class CleaningEngine(Protocol):
    """Carries out plans. Whoever holds one cannot tell where the work runs."""

    def run(self, plan: CleaningPlan) -> PassResult:
        """Write the cleaned files that the plan asks for; leave the live log alone."""
        ...
