"""Why a transaction refuses: Kafka's code, and the sentence for the log."""

from kio.schema.errors import ErrorCode

from siltstone.errors import RequestError


class TransactionError(RequestError):
    """A request that the state of its transaction does not allow."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
