"""Kafka's names for how far a reader may see."""

from enum import StrEnum
from typing import Final

from siltstone.log.reading import Isolation


class IsolationLevel(StrEnum):
    """Which transactions a consumer sees."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


ISOLATIONS: Final = {
    IsolationLevel.READ_UNCOMMITTED: Isolation.HIGH_WATERMARK,
    IsolationLevel.READ_COMMITTED: Isolation.COMMITTED,
}
