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
# Groups with 1 may use the consumer protocol. With 2, every end of a transaction gives its producer
# a new epoch, and Produce adds partitions.
_LEVELS: Final = {"group.version": 1, "transaction.version": 2}
_SUPPORTED: Final = [
    {"name": name, "min_version": 0, "max_version": level} for name, level in _LEVELS.items()
]
_FINALIZED: Final = [
    {"name": name, "max_version_level": level, "min_version_level": level}
    for name, level in _LEVELS.items()
]
_FIRST_WITH_ZERO: Final = 4  # older clients cannot read a feature that begins at version 0


def handle(broker: Broker, request: Request) -> Values:
    """Say what is served; in the oldest version to a client whose own is unknown."""
    is_known = request.body is not None
    return {
        "error_code": ErrorCode.none if is_known else ErrorCode.unsupported_version,
        "api_keys": _API_KEYS,
        "supported_features": _SUPPORTED if request.version >= _FIRST_WITH_ZERO else [],
        "finalized_features_epoch": 0,
        "finalized_features": _FINALIZED,
    }
