"""Cutting a log: at its end, as a follower or a repair does, and at its start, as clients ask for.

The caller holds the log's lock.
"""

from siltstone.errors import OffsetOutOfRangeError, PolicyViolationError
from siltstone.ids import TopicPartition
from siltstone.log.cleaner_offsets import lower_cleaner_offset
from siltstone.log.filesystem import FileSystem
from siltstone.log.local_log import LocalLog
from siltstone.log.log_state import LogState
from siltstone.log.segment import Segment


def truncate(
    fs: FileSystem, partition: TopicPartition, local: LocalLog, state: LogState, offset: int
) -> bool:
    """Drop everything from an offset on, and say whether there was anything."""
    if offset >= local.log_end_offset:
        # An epoch may be noted that wrote nothing that is still there.
        if state.leader_epochs.truncate_from_end(local.log_end_offset):
            with local.writing:
                state.write_epochs()
        return False
    if local.segments.first.base_offset > offset:
        start_over(fs, partition, local, state, offset)
        return True
    with local.writing:
        _note_cut(fs, partition, local, offset)
        for segment in reversed(list(local.segments)):
            if segment.base_offset > offset:
                remove_segment(local, state, segment)
        local.truncate_to(offset)
        state.lower_to(offset)
        state.reload_producers(local.segments, local.log_end_offset)
    return True


def start_over(
    fs: FileSystem, partition: TopicPartition, local: LocalLog, state: LogState, offset: int
) -> None:
    """Drop everything; the log goes on, empty, at an offset."""
    with local.writing:
        _note_cut(fs, partition, local, offset)
        for segment in local.segments:
            local.remove(segment)
        local.start_at(offset)
        state.start_at(offset)
    state.forget_producers(offset)


def delete_below(partition: TopicPartition, local: LocalLog, state: LogState, offset: int) -> None:
    """Let the log start at an offset; raise unless its policy and the high watermark allow that."""
    if local.config.is_compacted and not local.config.deletes:
        raise PolicyViolationError(
            f"{partition}: records of a compacted topic are deleted by tombstones; "
            "cleanup.policy must include delete"
        )
    if not 0 <= offset <= state.high_watermark:
        raise OffsetOutOfRangeError(
            str(partition), offset, state.log_start_offset, state.high_watermark
        )
    with local.writing:
        raise_log_start(local, state, offset)


def raise_log_start(local: LocalLog, state: LogState, offset: int) -> None:
    """Let the log start at an offset, unless it starts further on."""
    if offset > state.log_start_offset:
        local.skip_to(offset)
        state.raise_log_start(offset)


def remove_segment(local: LocalLog, state: LogState, segment: Segment) -> None:
    """Take a segment out, with the snapshot of producers that belongs to it."""
    snapshot = state.snapshots.mark_deleted(segment.base_offset)
    local.remove(segment, [] if snapshot is None else [snapshot])


def _note_cut(fs: FileSystem, partition: TopicPartition, local: LocalLog, offset: int) -> None:
    """Let nothing count as clean from the segment on that a truncation cuts."""
    cut = local.segments.find_floor(offset)
    lowest = offset if cut is None else cut.base_offset
    lower_cleaner_offset(fs, local.directory.parent, partition, lowest)
