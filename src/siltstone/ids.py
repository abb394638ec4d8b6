"""Small frozen names of things: partitions and topic ids."""

import base64
import binascii
import re
import uuid
from dataclasses import dataclass

_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; prints as its directory name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TopicId:
    """A topic's identity across deletion and re-creation, in Kafka's 22-character form."""

    value: uuid.UUID

    @classmethod
    def random(cls) -> "TopicId":
        """Draw an id whose text does not start with a dash, which shells take for a flag."""
        while True:
            candidate = cls(uuid.uuid4())
            if not str(candidate).startswith("-"):
                return candidate

    @classmethod
    def parse(cls, text: str) -> "TopicId":
        """Parse the base64url form; raise ValueError if it is none or the zero id."""
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except binascii.Error as error:
            raise ValueError(f"{text!r} is not a topic id") from error
        if len(raw) != 16 or not any(raw):
            raise ValueError(f"{text!r} is not a topic id")
        return cls(uuid.UUID(bytes=raw))

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.value.bytes).decode("ascii").rstrip("=")


def is_legal_topic(name: str) -> bool:
    """Say whether Kafka would accept the topic name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def is_internal_topic(name: str) -> bool:
    """Say whether a topic belongs to the brokers themselves, here or in Kafka."""
    return name in _INTERNAL_TOPICS
