"""Index the segments that a committed pass has left, so that no lookup need do it.

Not in the pass itself: it would take a twelfth longer, and the log gets smaller no sooner by it. If
nobody comes to do this, or it fails, the first lookup builds what it misses.
"""

import logging
from typing import TYPE_CHECKING

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.errors import CorruptIndexError, SiltstoneError
from siltstone.lazy import LazyModule
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.key_index import KeyIndex, put_key_index
from siltstone.log.partition_log import PartitionLog
from siltstone.log.segment import Segment

if TYPE_CHECKING:
    from siltstone.cleaner.key_indexing import cleaned
else:
    # Needs the kernels' compiler, which a broker has no use for before its first pass.
    cleaned = LazyModule("siltstone.cleaner.key_indexing.cleaned")

logger = logging.getLogger(__name__)


def index_after_pass(
    fs: FileSystem, log: PartitionLog, plan: CleaningPlan, result: PassResult
) -> int:
    """Index what a pass wrote or left as it was; return how many indexes were missing.

    For the owner of the log, after the commit. Whatever goes wrong is for a lookup to make good.
    """
    bases = {output.base_offset for group in result.groups for output in group.outputs}
    bases |= result.unchanged_bases()
    built = 0
    try:
        for base_offset in sorted(bases):
            segment = log.segments.find(base_offset)
            if segment is not None and segment.size_bytes and not _has_index(segment):
                built += _index(fs, log, segment, plan.hash_key)
    except (SiltstoneError, FileNotFoundError) as error:
        logger.warning("%s: no key index: %s", plan.partition, error)
    return built


def _has_index(segment: Segment) -> bool:
    path = filenames.key_index_path(segment.directory, segment.base_offset)
    try:
        index = KeyIndex.open(path)
    except CorruptIndexError:
        return False
    return (
        index is not None
        and index.is_about(segment.file)
        and index.covered.covered_bytes == segment.size_bytes
    )


def _index(fs: FileSystem, log: PartitionLog, segment: Segment, hash_key: bytes) -> bool:
    file = segment.file
    data = cleaned.index_cleaned(file, segment.base_offset, segment.size_bytes, hash_key)
    with log.exclusively():
        # Or the index would outlive a segment that has been removed meanwhile.
        is_there = log.segments.find(segment.base_offset) is segment
        if is_there:
            put_key_index(fs, segment.directory, segment.base_offset, data)
    return is_there
