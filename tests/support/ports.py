"""Ports that stay free while nobody listens there."""

import random
import socket
from pathlib import Path
from typing import Final

_RANGE_PATH: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_ATTEMPTS: Final = 100


def choose_port() -> int:
    """Return a port that is free, and that no client is given for its end of a connection.

    Of the others, which the system gives out, one may be taken while a broker is down that is to
    come back to it.
    """
    highest = int(_RANGE_PATH.read_text().split()[0]) - 1
    for _ in range(_ATTEMPTS):
        port = random.SystemRandom().randint(_LOWEST, highest)
        if is_free(port):
            return port
    raise RuntimeError(f"no free port between {_LOWEST} and {highest} in {_ATTEMPTS} attempts")


def is_free(port: int) -> bool:
    """Say whether a server can listen on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
