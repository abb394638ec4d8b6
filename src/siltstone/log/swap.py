"""Put rewritten segments in the place of the segments they were made from.

A crash may fall between any two steps; `load_plan` goes by the suffixes that it finds and gives
either all of the old segments or all of the new ones. The two modules are halves of one protocol.
"""

from collections.abc import Sequence
from pathlib import Path

from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.segment import Segment


def swap_in(
    fs: FileSystem, directory: Path, new: Sequence[Segment], replaced: Sequence[Segment]
) -> None:
    """Swap complete `.cleaned` segments in for the ones they replace.

    Afterwards the new segments have their final names and the old ones are `.deleted`, waiting for
    whoever removes them. Both are given lowest base offset first.
    """
    for segment in new:
        segment.flush()
    fs.fsync_dir(directory)
    # Highest first: as long as one is `.cleaned`, every `.swap` above the lowest of them counts as
    # unfinished, and so does the whole swap. Each durable before the next, for a lower one that
    # outlives the higher ones would count as a whole swap of its own. After the lowest there is no
    # return: from here on the swap only moves forward.
    for segment in reversed(new):
        segment.rename(filenames.SWAP)
        fs.fsync_dir(directory)

    is_empty = not any(segment.size_bytes for segment in new)
    for segment in replaced:
        segment.rename(filenames.DELETED)
        if is_empty:
            # Its offsets do not tell what it replaces, so what is not `.deleted` yet comes back:
            # one after the other, or a marker could be gone before the data that it decides.
            fs.fsync_dir(directory)
    fs.fsync_dir(directory)  # Or a final name could outlive the `.deleted` of its predecessor.
    # Lowest first, each durable before the next: a final name between two `.swap` would be taken
    # for something that they replace.
    for segment in new:
        segment.rename("")
        fs.fsync_dir(directory)
