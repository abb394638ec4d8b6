"""The topics that belong to the brokers themselves."""

from typing import Final

_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Say whether clients should keep their hands off a topic."""
    return topic in _INTERNAL
