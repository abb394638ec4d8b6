"""DescribeCluster."""

from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.broker.broker import Broker
from siltstone.broker.handlers.metadata import CLUSTER_OPERATIONS, describe_broker
from siltstone.broker.messages import Values
from siltstone.broker.wire import Request

_BROKERS: Final = 1
_NOT_ASKED: Final = -(2**31)


def handle(broker: Broker, request: Request) -> Values:
    """Describe the cluster, which is this broker."""
    endpoint_type = getattr(request.body, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        return {
            "error_code": ErrorCode.mismatched_endpoint_type,
            "error_message": "this is a broker, not a controller",
            "endpoint_type": endpoint_type,
            "cluster_id": broker.cluster_id,
            "brokers": (),
        }
    wants_operations = request.body.include_cluster_authorized_operations
    return {
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "brokers": [describe_broker(broker, request)],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if wants_operations else _NOT_ASKED,
    }
