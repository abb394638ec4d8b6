"""Refusals that know their code on the wire."""

from kio.schema.errors import ErrorCode

from siltstone.errors import RequestError


class CodedError(RequestError):
    """Why a request is refused: Kafka's code, and the sentence for the client's log."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
