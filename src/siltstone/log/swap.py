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
    # Highest first: as long as one is `.cleaned`, every `.swap` above the lowest of them counts as
    # unfinished, and so does the whole swap.
    for segment in reversed(new):
        segment.rename(filenames.SWAP)
    fs.fsync_dir(directory)  # The point of no return: from here on the swap only moves forward.

    for segment in replaced:
        segment.rename(filenames.DELETED)
    fs.fsync_dir(directory)  # Or a final name could outlive the `.deleted` of its predecessor.
    for segment in new:
        segment.rename("")
    fs.fsync_dir(directory)
