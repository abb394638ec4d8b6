"""Where a broker listens, and where it says that it does, as users write it."""

import re
from typing import Final, NamedTuple

from siltstone.errors import ConfigError

_LISTENER: Final = re.compile(
    r"(?:(?P<protocol>[A-Za-z_]+)://)?(?P<host>\[.*\]|[^:]*):(?P<port>\d+)"
)
_PLAINTEXT: Final = "PLAINTEXT"
_ANY_HOST: Final = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @property
    def is_any(self) -> bool:
        """Whether it stands for every address of the machine."""
        return self.host in _ANY_HOST


def parse_listener(setting: str, text: str) -> Listener:
    """Parse `PLAINTEXT://host:port`, or only `host:port`.

    Of a list, as in Kafka's files, the one for plain text counts: a controller there is none.
    """
    for one in text.split(","):
        match = _LISTENER.fullmatch(one.strip())
        if match is None:
            raise ConfigError(setting, one, "must be HOST:PORT")
        if (match["protocol"] or _PLAINTEXT).upper() == "CONTROLLER":
            continue
        if (match["protocol"] or _PLAINTEXT).upper() != _PLAINTEXT:
            raise ConfigError(setting, one, "must be PLAINTEXT, which is all that is served")
        port = int(match["port"])
        if port > 65_535:
            raise ConfigError(setting, one, "must have a port from 0 to 65535")
        host = match["host"].strip("[]")
        return Listener(host or "0.0.0.0", port)
    raise ConfigError(setting, text, "must have a listener for PLAINTEXT")
