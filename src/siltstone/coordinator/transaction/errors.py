"""Why a transaction refuses."""

from siltstone.coordinator.errors import CodedError


class TransactionError(CodedError):
    """A request that the state of its transaction does not allow."""
