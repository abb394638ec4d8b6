"""Single segments, without a log around them."""

from pathlib import Path

from siltstone.log.segment import Segment
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch
from tests.support.make_log import HastyDisk, parse_config, parse_records

BASE = 100
NAME = f"{BASE:020d}"


def create(directory: Path, base_offset: int = BASE, **settings: object) -> Segment:
    return Segment.create(HastyDisk(), directory, base_offset, parse_config(settings), now_ms=0)


def reopen(segment: Segment, **settings: object) -> Segment:
    """Open the files of a segment anew, as a loader that trusts them."""
    return Segment(
        HastyDisk(),
        segment.directory,
        segment.base_offset,
        parse_config(settings),
        created_ms=0,
        size_bytes=segment.path.stat().st_size,
    )


def batch(offset: int, text: str = "k=v", *, now_ms: int = 5) -> bytes:
    return build_batch(parse_records(text, now_ms, offset))


def append(segment: Segment, *batches: bytes) -> None:
    """Append batches in one call."""
    segment.append(batches, [read_header(data) for data in batches])
