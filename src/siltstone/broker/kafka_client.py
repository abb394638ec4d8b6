"""A client of Kafka's protocol, small: one broker, and the version that the caller names."""

import io
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from siltstone.broker.client import BrokerClient
from siltstone.broker.messages import build

_CLIENT_ID: Final = "silt"


class KafkaClient(BrokerClient):
    """Asks a broker, ours or another, as Kafka's clients do."""

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a request, and return the answer."""
        request_type = load_request_schema(api_key, version)
        header_type = request_type.__header_schema__
        header = {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": self.correlation_id,
            "client_id": _CLIENT_ID,
        }
        request = io.BytesIO()
        entity_writer(header_type)(request, build(header_type, header))
        entity_writer(request_type)(request, build(request_type, values))
        data = self.exchange(request.getvalue())
        response_type = load_response_schema(api_key, version)
        is_tagged = response_type.__header_schema__.__version__ >= 1
        answer, _ = entity_reader(response_type)(data, 1 if is_tagged else 0)
        return answer
