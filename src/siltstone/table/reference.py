"""Views in plain Python, with a dict: obviously right. The fast ones are held against it."""

from collections.abc import Iterator

from siltstone.log.reading import AbortedFilter, Isolation
from siltstone.log.stored_batches import iter_stored_batches
from siltstone.records.record import Record
from siltstone.table.request import View, ViewRequest, resolve_bounds
from siltstone.table.snapshot import LogSnapshot


def plain_view(snapshot: LogSnapshot, request: ViewRequest) -> list[Record]:
    """Return the records of a view, by offset. Twin of `views.read_view`."""
    bounds = resolve_bounds(snapshot, request)
    records = [
        record
        for record in _iter_visible(snapshot, request.effective_isolation)
        if bounds.start_offset <= record.offset < bounds.end_offset
    ]
    if request.view is not View.LOG:
        latest = {record.key: record for record in records if record.key is not None}
        records = sorted(latest.values(), key=lambda record: record.offset)
    return [
        record
        for record in records
        if (request.shows_tombstones or not record.is_tombstone)
        and (not request.key_prefix or (record.key or b"").startswith(request.key_prefix))
    ]


def _iter_visible(snapshot: LogSnapshot, isolation: Isolation) -> Iterator[Record]:
    hidden = AbortedFilter(snapshot.aborted if isolation is Isolation.COMMITTED else ())
    for segment in snapshot.segments:
        for _, batch in iter_stored_batches(
            segment.file, segment.start_position, segment.size_bytes
        ):
            if not hidden.hides(batch):
                yield from batch.iter_records()
