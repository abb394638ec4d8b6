"""The straight way of a usual batch into the log: no wait, no branch that most batches do not take.

A batch is usual if it is sound and outside of any transaction, it is the next one of its producer,
and there is room for it. `PartitionLog.append` says what becomes of every batch; this does the same
for those, in half the time, and leaves all others to it.
"""

from siltstone.log.append_info import AppendInfo
from siltstone.log.local_log import LocalLog
from siltstone.log.log_state import LogState
from siltstone.log.validation import BatchValidator
from siltstone.records.layout import NO_PRODUCER_ID, NO_TIMESTAMP, TRANSACTIONAL_BIT
from siltstone.records.varint import Buffer


def append_usual(
    data: Buffer, local: LocalLog, state: LogState, validator: BatchValidator, now_ms: int
) -> AppendInfo | None:
    """Append a client's batch if it is usual; None if it is not, and nothing has changed.

    The caller holds the log's lock.
    """
    leader_epoch = state.leader_epochs.latest()
    size_bytes = len(data)
    if leader_epoch is None or not local.takes_at_once(size_bytes):
        return None
    base_offset = local.log_end_offset
    usual = validator.stamp_usual(data, base_offset, leader_epoch.epoch, now_ms)
    if usual is None:
        return None
    header = usual.header
    if header.attributes & TRANSACTIONAL_BIT:
        return None  # It is in a transaction.
    newest_ms = header.max_timestamp_ms
    last_offset = base_offset + header.last_offset_delta
    active = local.segments.active
    if local.is_over_age(newest_ms, now_ms) or not active.fits(last_offset):
        return None
    producers = state.producers
    entry = None
    if header.producer_id > NO_PRODUCER_ID:
        entry = producers.find_next(header)
        if entry is None:
            return None
    with local.writing:
        active.append_one(usual.buffers, header)
    local.log_end_offset = last_offset + 1
    if entry is not None:
        producers.put(entry)
    producers.update_map_end_offset(last_offset + 1)
    return AppendInfo(
        base_offset, last_offset, newest_ms, NO_TIMESTAMP, state.log_start_offset, size_bytes
    )
