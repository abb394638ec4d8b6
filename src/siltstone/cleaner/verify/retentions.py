"""What the manifests of retention tell: segments that were removed, and may not come back (I5).

What they held is gone, so their sizes and checksums are all that is left to tell by; where a pass
had written them, its manifest must say the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siltstone.cleaner.file_mark import FileMark
from siltstone.cleaner.retention import RetentionPlan
from siltstone.cleaner.verify.files import LogFiles
from siltstone.cleaner.verify.findings import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """What a manifest says of segments that were removed."""

    name: str
    plan: RetentionPlan
    inputs: Mapping[int, FileMark]  # log files, by base offset
    segments_removed: int
    bytes_removed: int

    @classmethod
    def parse(cls, name: str, fields: Mapping[str, Any]) -> "RetentionRecord":
        """Take a manifest apart; raise KeyError, TypeError or ConfigError if it is none."""
        return cls(
            name=name,
            plan=RetentionPlan.from_json(json.dumps(fields["plan"])),
            inputs={
                item["base_offset"]: FileMark(item["size_bytes"], item["crc32c"])
                for item in fields["inputs"]
            },
            segments_removed=fields["counts"]["segments_removed"],
            bytes_removed=fields["counts"]["bytes_removed"],
        )

    @property
    def end_offset(self) -> int:
        """The offset below which no segment is left."""
        return self.plan.removals[-1].end_offset


def check_retentions(
    files: LogFiles,
    records: Sequence[RetentionRecord],
    left_by_passes: Mapping[int, Sequence[FileMark]],
    findings: Findings,
) -> None:
    """Check that each manifest adds up, and that what it removed is gone.

    `left_by_passes` are the log files that passes have written, by base offset.
    """
    for record in records:
        for fault in _find_faults(record):
            findings.violation("I7", fault, file=record.name)
        if files.segments and files.first_base_offset < record.end_offset:
            findings.violation(
                "I5",
                f"is there, though {record.name} removed all below offset {record.end_offset}",
                file=files.segments[0].name,
            )
        for base_offset, mark in record.inputs.items():
            if base_offset in left_by_passes and mark not in left_by_passes[base_offset]:
                findings.warning(
                    "I7",
                    f"removed another segment {base_offset} than any pass left: a pass lies "
                    "between that has no manifest",
                    file=record.name,
                )


def _find_faults(record: RetentionRecord) -> list[str]:
    planned = {r.source.base_offset: r.source.size_bytes for r in record.plan.removals}
    faults = []
    if planned != {base: mark.size_bytes for base, mark in record.inputs.items()}:
        faults.append("has other inputs than its plan")
    if record.segments_removed != len(record.inputs):
        faults.append(
            f"says that {record.segments_removed} segments were removed, not {len(record.inputs)}"
        )
    removed_bytes = sum(mark.size_bytes for mark in record.inputs.values())
    if record.bytes_removed != removed_bytes:
        faults.append(
            f"says that {record.bytes_removed} bytes were removed, its inputs have {removed_bytes}"
        )
    return faults
