"""The owner's step after a run: re-check, swap, checkpoint, manifest.

Nothing that a run wrote counts before this. Whatever is found to be different from what the planner
saw, or from what the engine says it wrote, ends the commit before the log is touched.
"""

import contextlib
import os
from collections.abc import Sequence

from siltstone.cleaner.file_mark import FileMark, read_mark
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import GroupResult, OutputSegment, PassResult
from siltstone.errors import CleaningAbortedError, CleaningError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.partition_log import PartitionLog
from siltstone.log.segment import Segment


def commit_pass(fs: FileSystem, log: PartitionLog, plan: CleaningPlan, result: PassResult) -> None:
    """Put the cleaned segments in place, group by group, lowest first.

    A crash in between leaves the groups before it new and the ones after it old, which is a
    sound log: what a group lost, it lost to records of its own or of later groups.
    """
    check_sources(log, plan)
    for group in result.groups:
        _check_outputs(fs, log, group)
    modified = {source.base_offset: source.modified_ns for source in plan.sources}
    for group in result.groups:
        if group.is_unchanged:
            continue
        with log.exclusively():
            check_sources(log, plan, group.base_offsets)
            new = [_stage(fs, log, output) for output in group.outputs]
            for segment in new:
                _set_modified(segment, modified[group.base_offsets[-1]])
            log.swap_segments(new, group.base_offsets)


def check_sources(
    log: PartitionLog, plan: CleaningPlan, base_offsets: Sequence[int] | None = None
) -> None:
    """Raise CleaningAbortedError unless the segments are the ones that were planned for."""
    if (
        not log.config.is_compacted
        or log.last_stable_offset < plan.end_offset
        or log.log_start_offset != plan.log_start_offset
    ):
        raise CleaningAbortedError(str(log.partition))
    if plan.sources[-1].base_offset >= log.segments.active.base_offset:
        raise CleaningAbortedError(str(log.partition))
    check_files(log, plan, base_offsets)


def check_files(
    log: PartitionLog, plan: CleaningPlan, base_offsets: Sequence[int] | None = None
) -> None:
    """Raise CleaningAbortedError unless the files are the planned ones: enough for a dry run."""
    for source in plan.sources:
        if base_offsets is not None and source.base_offset not in base_offsets:
            continue
        segment = log.segments.find(source.base_offset)
        if segment is None or segment.size_bytes != source.size_bytes:
            raise CleaningAbortedError(str(log.partition))
        stat = segment.path.stat()
        if (stat.st_mtime_ns, stat.st_ino) != (source.modified_ns, source.inode):
            raise CleaningAbortedError(str(log.partition))


def discard_pass(fs: FileSystem, log: PartitionLog, result: PassResult) -> None:
    """Delete what a run wrote."""
    for group in result.groups:
        for output in group.outputs:
            for file in output.files:
                fs.unlink(log.directory / file.name)


def discard_run(fs: FileSystem, plan: CleaningPlan) -> None:
    """Delete what all attempts at a plan wrote, also those that never came to an end."""
    with contextlib.suppress(FileNotFoundError):  # The partition was deleted meanwhile.
        for name in fs.list_names(plan.directory):
            if filenames.is_pass_file(name) and plan.pass_id in name:
                fs.unlink(plan.directory / name)


def _check_outputs(fs: FileSystem, log: PartitionLog, group: GroupResult) -> None:
    """Read back what the tasks say they wrote: it may have gone through another machine."""
    for output in group.outputs:
        for file in output.files:
            mark = FileMark(file.size_bytes, file.crc32c)
            if read_mark(fs, log.directory / file.name) != mark:
                raise CleaningError(
                    f"{log.partition}: {file.name} is not what the task that wrote it says"
                )
            # The wait for the disk is over before the log is held still for the swap.
            fs.fsync(fs.open(log.directory / file.name))


def _stage(fs: FileSystem, log: PartitionLog, output: OutputSegment) -> Segment:
    """Give the files of a cleaned segment their `.cleaned` names, and make them durable."""
    for file in output.files:
        target = filenames.SegmentFile(output.base_offset, file.extension, filenames.CLEANED)
        fs.rename(log.directory / file.name, log.directory / target.name)
        # Here, for the swap flushes only what its process has opened: never an index of a task.
        fs.fsync(fs.open(log.directory / target.name))
    sizes = {file.extension: file.size_bytes for file in output.files}
    return log.open_cleaned_segment(output.base_offset, sizes[filenames.LOG])


def _set_modified(segment: Segment, modified_ns: int) -> None:
    """Let the new files be as old as the youngest source: retention goes by it."""
    for path in segment.paths()[:3]:
        os.utime(path, ns=(modified_ns, modified_ns))
