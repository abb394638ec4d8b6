"""What a pass did, kept beside the log: enough for somebody else to check it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from siltstone import __version__
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.errors import CorruptCheckpointError
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of one pass, as it lies in its file."""

    name: str
    fields: dict[str, Any]


def write_manifest(
    fs: FileSystem, plan: CleaningPlan, result: PassResult, *, committed_ms: int
) -> str:
    """Write the manifest of a committed pass into the log's directory and return its name."""
    fields = {
        "plan": json.loads(plan.to_json()),
        "inputs": [
            {"base_offset": source.base_offset, "size_bytes": source.size_bytes, "crc32c": crc}
            for source, crc in zip(plan.sources, result.source_crcs, strict=True)
        ],
        "groups": [asdict(group) for group in result.groups],
        "counts": result.counts.as_dict(),
        "seconds": round(result.seconds, 6),
    }
    return write_fields(fs, plan.directory, plan.pass_id, fields, committed_ms=committed_ms)


def write_fields(
    fs: FileSystem, directory: Path, pass_id: str, fields: Mapping[str, Any], *, committed_ms: int
) -> str:
    """Write what a commit did into the log's directory, as its newest; return the name."""
    known = [filenames.parse_manifest(name) for name in fs.list_names(directory)]
    number = 1 + max((file.number for file in known if file is not None), default=0)
    name = filenames.manifest_name(number, pass_id)
    head = {"version": _VERSION, "siltstone": __version__, "committed_ms": committed_ms}
    data = json.dumps({**head, **fields}, indent=2).encode() + b"\n"
    fs.write_atomically(directory / name, data)
    return name


def read_newest_manifest(fs: FileSystem, directory: Path) -> Manifest | None:
    """Return the manifest of the last pass, without looking into older ones; None if none is."""
    known = ((filenames.parse_manifest(name), name) for name in fs.list_names(directory))
    numbers = {file.number: name for file, name in known if file is not None}
    for _, name in sorted(numbers.items(), reverse=True):
        manifest = _read(fs, directory, name)
        if manifest.fields.get("kind") is None:  # or it is of retention
            return manifest
    return None


def read_manifests(fs: FileSystem, directory: Path) -> list[Manifest]:
    """Return the manifests of a log, in the order of the commits."""
    manifests = []
    for name in fs.list_names(directory):
        if not filenames.is_manifest(name):
            continue
        manifests.append(_read(fs, directory, name))
    return manifests


def _read(fs: FileSystem, directory: Path, name: str) -> Manifest:
    data = fs.read_file(directory / name)
    try:
        return Manifest(name, json.loads(data or b""))
    except ValueError as error:
        raise CorruptCheckpointError(directory / name, str(error)) from error
