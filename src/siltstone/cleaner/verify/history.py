"""What is known of the passes between two states of a log, and what may have expired in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from siltstone.cleaner.verify.manifests import PassRecord


@dataclass(frozen=True, slots=True)
class PassHistory:
    """The passes between a log and its copy from before, oldest first.

    Only ours leave manifests. If those do not join up, another cleaner has been there as well, at
    times that nobody has written down: then only what is impossible up to now is a violation.
    """

    passes: tuple[PassRecord, ...]
    is_complete: bool
    end_offset: int  # the first dirty offset after the last of them
    now_ms: int

    @property
    def last_ms(self) -> int:
        """The time of the last pass, or now if that is not known."""
        if not self.is_complete:
            return self.now_ms
        return max((p.plan.now_ms for p in self.passes), default=0)

    def may_set(self, horizon_ms: int) -> bool:
        """Say whether a pass may have set a delete horizon to this time."""
        if not self.is_complete:
            return True
        return any(p.plan.now_ms + p.plan.delete_retention_ms == horizon_ms for p in self.passes)

    def may_have_expired(self, horizon_ms: int | None, first: int = 0) -> bool | None:
        """Say whether a pass may have found a delete horizon in the past; None: nobody knows.

        `horizon_ms` is that of the copy from before; None if no pass had set it yet. The passes in
        front of number `first` could neither set it nor act on it.
        """
        if horizon_ms is not None and first == 0:
            return horizon_ms <= self.last_ms
        if not self.is_complete:
            return None
        times = [(p.plan.now_ms, p.plan.delete_retention_ms) for p in self.passes[first:]]
        if horizon_ms is not None:
            return any(now_ms >= horizon_ms for now_ms, _ in times)
        return any(
            later_ms >= now_ms + retention_ms
            for number, (now_ms, retention_ms) in enumerate(times)
            for later_ms, _ in times[number + 1 :]
        )


def find_history(
    before: tuple[int | None, Sequence[str]],
    after: tuple[int | None, Sequence[PassRecord]],
    log_start_offset: int,
    now_ms: int,
) -> PassHistory:
    """Find the passes between two states of a log.

    Of each its cleaner checkpoint and its manifests (their names, of the one before).
    """
    old_checkpoint, old_names = before
    checkpoint, passes = after
    new = tuple(p for p in passes if p.name not in old_names)
    joint = old_checkpoint if old_checkpoint is not None else log_start_offset
    is_complete = True
    for record in new:
        is_complete = is_complete and record.plan.first_dirty_offset == joint
        joint = record.plan.end_offset
    if checkpoint is not None or new:
        is_complete = is_complete and checkpoint == joint
    offsets = [checkpoint, old_checkpoint, *(p.plan.end_offset for p in new)]
    end_offset = max((o for o in offsets if o is not None), default=log_start_offset)
    return PassHistory(new, is_complete, end_offset, now_ms)
