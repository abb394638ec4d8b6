"""What is known of the passes between two states of a log, and what may have expired in them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.manifests import PassRecord, mark_of
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class PassHistory:
    """The passes between a log and its copy from before, oldest first.

    Only ours leave manifests. If those do not join up, another cleaner has been there as well, at
    times that nobody has written down: then only what is impossible up to now is a violation.
    """

    passes: tuple[PassRecord, ...]
    is_complete: bool
    end_offset: int  # the first dirty offset after the last of them
    reach_offset: int  # how far one may have got that was not finished
    now_ms: int

    @property
    def last_ms(self) -> int:
        """The time of the last pass, or now if that is not known."""
        if not self.is_complete:
            return self.now_ms
        return max(p.plan.now_ms for p in self.passes)

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
    fs: FileSystem, before: LogFiles, after: LogFiles, passes: Sequence[PassRecord], now_ms: int
) -> PassHistory:
    """Find the passes between two states of a log, of which `passes` are all manifests now."""
    new = tuple(p for p in passes if p.name not in before.manifests)
    is_complete = bool(new) and new[-1].plan.end_offset == after.cleaner_checkpoint
    if is_complete:
        is_complete = _goes_on_from(fs, before, new[0]) and all(
            other.goes_on_from(one) for one, other in itertools.pairwise(new)
        )
    offsets = [after.cleaner_checkpoint, before.cleaner_checkpoint]
    offsets += [p.plan.end_offset for p in new]
    end_offset = max((o for o in offsets if o is not None), default=before.log_start_offset)
    reach_offset = end_offset
    if not is_complete and after.segments:
        # Groups that are swapped stay, whatever becomes of the pass; the active one is never in it.
        reach_offset = max(end_offset, after.segments[-1].base_offset)
    return PassHistory(new, is_complete, end_offset, reach_offset, now_ms)


def _goes_on_from(fs: FileSystem, before: LogFiles, record: PassRecord) -> bool:
    """Say whether a pass read the files of a copy as they are, or with more at their end.

    Otherwise a pass came before it that left no manifest: another cleaner's, or one of ours that
    ended between the swap and the manifest.
    """
    for segment in before.segments:
        mark = record.inputs.get(segment.base_offset)
        if mark is None:
            continue
        if segment.is_active and mark.size_bytes > segment.size_bytes:
            continue
        if mark != mark_of(fs, segment, filenames.LOG):
            return False
    return True
