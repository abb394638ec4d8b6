"""How a plan ended: with a result, or with the error that concerns it alone."""

from dataclasses import dataclass

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.errors import SiltstoneError


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """One of several plans that were carried out together; exactly one of both is set."""

    plan: CleaningPlan
    result: PassResult | None = None
    error: SiltstoneError | None = None

    def get(self) -> PassResult:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result
