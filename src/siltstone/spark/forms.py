"""Whether a plan is carried out by one task or by many, in three stages."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

MAX_FUSED_BYTES: Final = 1 << 30
"""What one task takes on: with small records, about as many keys as fit a worker's memory."""

MAX_SLICE_BYTES: Final = 512 << 20
"""What one task of the first stage takes on: it keeps a table of all keys in there."""

_MIN_SLICE_BYTES: Final = 16 << 20
"""Below this, more tasks cost more than they save."""


class Stages(StrEnum):
    """What the user asks for."""

    AUTO = "auto"
    FUSED = "fused"
    STAGED = "staged"


def is_staged(source_bytes: int, all_bytes: Sequence[int], core_count: int, ask: Stages) -> bool:
    """Decide about one plan of `source_bytes`, among plans of `all_bytes` in all.

    One task per plan does the least work, and with as many plans as cores nobody is idle. Stages
    read everything again and send keys around, which pays off only when a plan would keep a single
    core busy long after all others have finished: when it has more than twice its fair share.
    """
    if ask is not Stages.AUTO:
        return ask is Stages.STAGED
    if source_bytes > MAX_FUSED_BYTES:
        return True
    fair_share = sum(all_bytes) / core_count
    return source_bytes > 2 * fair_share and source_bytes >= core_count * _MIN_SLICE_BYTES


def slice_size(source_bytes: int, core_count: int) -> int:
    """Return how large the slices of a plan should be: few and large, but one for each core."""
    even = -(-source_bytes // core_count)
    return min(max(even, _MIN_SLICE_BYTES), MAX_SLICE_BYTES)
