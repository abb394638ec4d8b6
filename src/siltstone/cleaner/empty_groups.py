"""Groups of which a pass has left nothing: neighbours become one empty segment.

Groups are made by sizes before cleaning, so Kafka leaves an empty segment for each, side by side
until another pass merges them, which in a quiet log never comes. The owner knows what was left.
"""

from collections.abc import Sequence
from dataclasses import replace

from siltstone.cleaner.result import GroupResult, PassResult
from siltstone.log import filenames


def join_empty_groups(result: PassResult) -> PassResult:
    """Let each run of emptied groups share the output of its first."""
    groups: list[GroupResult] = []
    for group in result.groups:
        if groups and _is_emptied(groups[-1]) and _is_emptied(group):
            before = groups.pop()
            group = replace(before, base_offsets=(*before.base_offsets, *group.base_offsets))
        groups.append(group)
    return replace(result, groups=tuple(groups))


def output_files(groups: Sequence[GroupResult]) -> set[str]:
    """Name the files that groups have as their outputs."""
    return {file.name for group in groups for out in group.outputs for file in out.files}


def _is_emptied(group: GroupResult) -> bool:
    files = [file for output in group.outputs for file in output.files]
    return bool(files) and all(
        file.size_bytes == 0
        for file in files
        if file.extension in (filenames.LOG, filenames.TRANSACTION_INDEX)
    )
