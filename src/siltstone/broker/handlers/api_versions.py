"""ApiVersions: exactly what is served, nothing else."""

from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.messages import Values
from siltstone.broker.wire import SERVED, Request

_API_KEYS: Final = [
    {"api_key": key, "min_version": versions.first, "max_version": versions.last}
    for key, versions in sorted(SERVED.items())
]


def handle(broker: Broker, request: Request) -> Values:
    """Say what is served; in the oldest version to a client whose own is unknown."""
    is_known = request.body is not None
    return {
        "error_code": ErrorCode.none if is_known else ErrorCode.unsupported_version,
        "api_keys": _API_KEYS,
        "finalized_features_epoch": 0,
    }
