"""What the files of a partition directory mean after any crash, decided by their names alone.

The other half of the protocol is `swap`: a cleaned segment is written under `.cleaned`, becomes
`.swap` when it is complete and durable, and takes its final name once the originals are `.deleted`.

    .part      of a pass that was never committed: delete it
    .deleted   already replaced or expired: delete it
    .cleaned   may be incomplete: delete it, the originals are intact
    .swap      complete if no `.cleaned` is left at or below it: finish the swap; otherwise the
               crash came before all of them were renamed: delete it, the originals are intact
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from siltstone.log import filenames


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to delete, what to rename, and which segments there are afterwards."""

    deletions: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    segments: tuple[tuple[int, str], ...]  # (base offset, suffix before the renames)
    remaining: tuple[str, ...]  # all names, after deletions and renames


def plan_load(names: Iterable[str], find_next_offset: Callable[[int], int]) -> LoadPlan:
    """Decide how to load a directory with these files.

    `find_next_offset` gives the offset after the last batch of the `.log.swap` with a base offset.
    """
    names = sorted(names)
    parsed = {name: filenames.parse_segment_file(name) for name in names}
    cleaned = [f.base_offset for f in parsed.values() if f and f.suffix == filenames.CLEANED]
    unfinished_from = min(cleaned, default=None)

    deletions = {
        name
        for name in names
        if filenames.is_deleted_file(name)
        or filenames.is_pass_file(name)
        or filenames.is_unwritten_manifest(name)
    }
    swaps: dict[str, filenames.SegmentFile] = {}
    for name, file in parsed.items():
        if file is None:
            continue
        if file.suffix == filenames.CLEANED:
            deletions.add(name)
        elif file.suffix == filenames.SWAP:
            if unfinished_from is not None and file.base_offset >= unfinished_from:
                deletions.add(name)
            else:
                swaps[name] = file

    # The originals of a finished swap: everything in the range of offsets that it covers. One that
    # begins after the last surviving batch stays, which is harmless: the pass is repeated.
    ranges = [
        (file.base_offset, find_next_offset(file.base_offset))
        for file in swaps.values()
        if file.extension == filenames.LOG
    ]
    if ranges:
        low = min(start for start, _ in ranges)
        high = max(end for _, end in ranges)
        for name in names:
            offset = filenames.find_offset_prefix(name)
            if name not in swaps and offset is not None and low <= offset < high:
                deletions.add(name)

    segments: dict[int, str] = {}
    for name, file in parsed.items():
        if file is not None and file.extension == filenames.LOG and name not in deletions:
            # A swap's file is renamed over an original of the same name.
            if file.suffix == filenames.SWAP or not segments.get(file.base_offset):
                segments[file.base_offset] = file.suffix

    # An index without its log file says nothing.
    for name, file in parsed.items():
        if (
            file is not None
            and file.extension not in (filenames.LOG, filenames.SNAPSHOT)
            and file.base_offset not in segments
        ):
            deletions.add(name)
    for name in names:
        base_offset = filenames.parse_key_index(name)
        if base_offset is not None and base_offset not in segments:
            deletions.add(name)

    renames = tuple(
        (name, name.removesuffix(filenames.SWAP)) for name in swaps if name not in deletions
    )
    remaining = set(names) - deletions - {source for source, _ in renames}
    remaining.update(target for _, target in renames)
    return LoadPlan(
        deletions=tuple(sorted(deletions)),
        renames=renames,
        segments=tuple(sorted(segments.items())),
        remaining=tuple(sorted(remaining)),
    )
