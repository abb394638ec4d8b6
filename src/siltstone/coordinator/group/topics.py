"""What groups have to know about topics."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """A topic that there is."""

    name: str
    topic_id: uuid.UUID
    partition_count: int


class Topics(Protocol):
    """The topics of the broker, as they are now."""

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic by its name, or None."""
        ...

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        """Return a topic by its id, or None."""
        ...

    def all(self) -> Iterable[TopicInfo]:
        """Return every topic."""
        ...
