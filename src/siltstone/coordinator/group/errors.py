"""Why a group refuses: Kafka's code, and the sentence for the client's log."""

from kio.schema.errors import ErrorCode

from siltstone.errors import RequestError


class GroupError(RequestError):
    """A request that its group does not take."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
