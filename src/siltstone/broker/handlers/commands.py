"""Command: ours, for `silt --bootstrap-server`."""

from siltstone.broker.broker import Broker
from siltstone.broker.wire import Payload, Request


async def handle(broker: Broker, request: Request) -> Payload:
    """Start something that the command line asks for, or say how far it is."""
    body = await broker.answer_command(request.body)
    return Payload([body], len(body))
