"""Views and lookups of directories that a real Kafka wrote, and of one that it cleaned.

What its own consumer got from each partition is in the manifest.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from siltstone.errors import NotExactError
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.log.reading import Isolation
from siltstone.table.lookup import PartitionLookup
from siltstone.table.reference import plain_view
from siltstone.table.request import View, ViewRequest
from siltstone.table.snapshot import open_snapshot
from siltstone.table.views import read_view

GOLDEN: Final = Path(__file__).parents[2] / "golden"
ISOLATIONS: Final = {
    "read_committed": Isolation.COMMITTED,
    "read_uncommitted": Isolation.HIGH_WATERMARK,
}


def golden_partitions() -> list[tuple[str, str, dict[str, Any]]]:
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    return [
        (log_dir, name, described["consumed"])
        for log_dir, contents in manifest["log_dirs"].items()
        for name, described in contents["partitions"].items()
        if "consumed" in described
    ]


@pytest.mark.parametrize(("log_dir", "name", "consumed"), golden_partitions())
def test_views_and_lookups_are_what_kafkas_consumer_got(
    log_dir: str, name: str, consumed: dict[str, Any], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(GOLDEN / log_dir, data)
    topic, _, number = name.rpartition("-")
    partition = TopicPartition(topic, int(number))
    reader = LogReader([data])
    snapshot = open_snapshot(reader, partition)

    for level, isolation in ISOLATIONS.items():
        request = ViewRequest(view=View.LOG, isolation=isolation)
        records = read_view(snapshot, request).to_reader().read_all()
        assert records["offset"].to_pylist() == consumed[level]["offsets"]

    committed = ViewRequest(view=View.LOG, isolation=Isolation.COMMITTED)
    visible = plain_view(snapshot, committed)
    expected = {record.key: record for record in visible if record.key is not None}
    latest = read_view(snapshot, ViewRequest(include_tombstones=True)).to_reader().read_all()
    assert latest["offset"].to_pylist() == sorted(record.offset for record in expected.values())
    lookup = PartitionLookup(reader, partition)
    for key, record in expected.items():
        found = lookup.find(key)
        assert found is not None
        assert found.record == record
    assert lookup.find(b"never seen") is None


def test_a_log_that_kafka_cleaned_tells_from_where_it_is_consistent() -> None:
    snapshot = open_snapshot(LogReader([GOLDEN / "stopped"]), TopicPartition("compacted", 0))

    assert read_view(snapshot, ViewRequest()).bounds.consistent_from == 44
    assert read_view(snapshot, ViewRequest(end_offset=44)).bounds.end_offset == 44
    with pytest.raises(NotExactError, match="ask for offset 44 or later"):
        read_view(snapshot, ViewRequest(end_offset=20))
