"""Which transactional batches a pass may discard, told batch by batch in the order of the log.

Data of an aborted transaction can go at once. A marker stays as long as any batch of its
transaction was in the input, even an empty one: a reader that met data must meet the verdict.
"""

import heapq
from collections.abc import Iterable

from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import BatchHeader
from siltstone.records.control import ControlType, Marker


class TransactionTracker:
    """Follows the transactions through one pass; feed it every batch, in order, once."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._waiting = [(txn.first_offset, txn) for txn in aborted]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTxn] = {}
        self._seen_aborted: set[int] = set()  # producers whose aborted data was in the input
        self._seen_committed: set[int] = set()
        self.kept_aborts: list[AbortedTxn] = []
        """The aborted transactions whose marker must be listed in the new transaction index."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take in a data batch and say whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen_aborted.add(header.producer_id)
            return True
        self._seen_committed.add(header.producer_id)
        return False

    def is_marker_discardable(self, header: BatchHeader, marker: Marker | None) -> bool:
        """Take in a control batch and say whether nothing in the input needs it any more.

        A control batch without a record was emptied by an earlier pass.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return header.is_empty
        producer_id = header.producer_id
        if marker.control_type is ControlType.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._seen_aborted:
                return True
            self._seen_aborted.discard(producer_id)
            self.kept_aborts.append(txn)
            return False
        if marker.control_type is ControlType.COMMIT:
            was_seen = producer_id in self._seen_committed
            self._seen_committed.discard(producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, txn = heapq.heappop(self._waiting)
            self._aborted.setdefault(txn.producer_id, txn)
