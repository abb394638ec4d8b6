"""The keys at the end of a log that no index covers: a dict, kept up as the log grows.

It never spans more than one segment: the one with the last stable offset in it.
"""

from collections.abc import Sequence

from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.log.reading import AbortedFilter
from siltstone.log.stored_batches import iter_stored_batches
from siltstone.log.transaction_index import AbortedTxn
from siltstone.table.positions import RecordPosition


class Head:
    """The keys of a file from a position on, as far as they were taken in."""

    def __init__(self, file: File, inode: int, position: int) -> None:
        self.file = file
        self.inode = inode
        self.start_position = position
        self.position = position
        self.entries: dict[bytes, RecordPosition] = {}

    def extend(self, end_position: int, aborted: Sequence[AbortedTxn]) -> None:
        """Take in the batches up to a position; every transaction in them must be decided."""
        hidden = AbortedFilter(aborted)
        for position, batch in iter_stored_batches(self.file, self.position, end_position):
            try:
                if not hidden.hides(batch):
                    for record in batch.iter_records():
                        if record.key is not None:
                            self.entries[record.key] = RecordPosition(record.offset, position)
            except DecodeError as error:
                raise CorruptBatchError(self.file.path, position, error.reason) from error
            self.position = position + batch.header.size_bytes
