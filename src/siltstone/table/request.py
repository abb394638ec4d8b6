"""What is asked of a log as a table, and between which offsets the answer lies."""

from dataclasses import dataclass, replace
from enum import StrEnum

from siltstone.errors import NotExactError, OffsetOutOfRangeError
from siltstone.ids import TopicPartition
from siltstone.log.reading import Isolation
from siltstone.table.snapshot import LogSnapshot


class View(StrEnum):
    """A way to read a log."""

    LOG = "log"
    LATEST = "latest"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """What to read of one partition.

    `end_offset` itself is not read. Without one, the view ends where its isolation does. For
    `latest` it is the offset as of which the state is wanted.
    """

    view: View = View.LATEST
    start_offset: int | None = None  # `log`: the first; `changes`: since when
    end_offset: int | None = None
    isolation: Isolation | None = None  # None: as the view has it, `log` uncommitted
    include_tombstones: bool = False  # of `latest`; the other views always have them
    include_headers: bool = False
    key_prefix: bytes = b""

    @property
    def effective_isolation(self) -> Isolation:
        """How far the reader may see."""
        if self.isolation is not None:
            return self.isolation
        return Isolation.HIGH_WATERMARK if self.view is View.LOG else Isolation.COMMITTED

    @property
    def shows_tombstones(self) -> bool:
        """Whether a deleted key is in the view."""
        return self.include_tombstones or self.view is not View.LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBounds:
    """The offsets that a view was read between, and what it can say for certain."""

    partition: TopicPartition
    log_start_offset: int
    start_offset: int
    end_offset: int
    consistent_from: int

    @property
    def is_complete(self) -> bool:
        """Whether `changes` has every deletion: a tombstone below may have expired."""
        return self.start_offset >= self.consistent_from


def resolve_bounds(snapshot: LogSnapshot, request: ViewRequest) -> ViewBounds:
    """Find the offsets to read between; raise if the request cannot be answered.

    Goes by the cleaner's checkpoint. A log that has been cleaned beyond it shows only when it is
    read: see `raise_consistent_from`.
    """
    limit = snapshot.end_offset(request.effective_isolation)
    start = snapshot.log_start_offset
    if request.view is not View.LATEST and request.start_offset is not None:
        start = max(start, request.start_offset)
    end = limit
    if request.end_offset is not None:
        end = request.end_offset
        if request.view is View.LOG:
            end = min(end, limit)
        elif not snapshot.log_start_offset <= end <= limit:
            raise OffsetOutOfRangeError(
                str(snapshot.partition), end, snapshot.log_start_offset, limit
            )
    bounds = ViewBounds(
        partition=snapshot.partition,
        log_start_offset=snapshot.log_start_offset,
        start_offset=start,
        end_offset=max(start, end),
        consistent_from=snapshot.first_dirty_offset,
    )
    return check_exact(bounds, request)


def raise_consistent_from(
    bounds: ViewBounds, request: ViewRequest, snapshot: LogSnapshot
) -> ViewBounds:
    """Draw the conclusion from a gap above the checkpoint: nobody knows how far the pass went."""
    limit = snapshot.end_offset(request.effective_isolation)
    return check_exact(replace(bounds, consistent_from=limit), request)


def check_exact(bounds: ViewBounds, request: ViewRequest) -> ViewBounds:
    """Raise NotExactError if a state is asked for that compaction has taken apart."""
    if request.view is not View.LOG and bounds.end_offset < bounds.consistent_from:
        raise NotExactError(str(bounds.partition), bounds.end_offset, bounds.consistent_from)
    return bounds
