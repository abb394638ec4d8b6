"""A disk that is full: the producer is told, no batch is torn, and nothing acknowledged is lost."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker.wire import DESCRIBE_LOG_DIRS, METADATA
from tests.e2e.test_broker_life import append, create, values
from tests.support.serving import RawClient, ServedBroker

VALUE_BYTES = 50_000
FULL_BYTES = 600_000
SETTINGS = {
    "log.index.size.max.bytes": "1000",  # The limit on the size of files counts its zeros too.
    "log.retention.ms": "-1",  # The records are of 1970.
}


class Disk(Protocol):
    """A directory that takes `FULL_BYTES`, until it grows."""

    path: Path

    def limit(self, broker: ServedBroker) -> None: ...

    def grow(self, broker: ServedBroker) -> None: ...


class SmallDisk:
    """A file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "tmpfs", str(path)], check=True
        )

    def limit(self, broker: ServedBroker) -> None:
        pass

    def grow(self, broker: ServedBroker) -> None:
        subprocess.run(["mount", "-o", "remount,size=50m", str(self.path)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


class LimitedFiles:
    """A limit on the size of files: anybody may set it, and it cuts a write in the middle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(self, broker: ServedBroker) -> None:
        limits = (FULL_BYTES, self._before[1])
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, limits)

    def grow(self, broker: ServedBroker) -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, self._before)


# Only root may mount.
DISKS = [LimitedFiles, SmallDisk] if os.geteuid() == 0 else [LimitedFiles]


@pytest.fixture(params=DISKS, ids=lambda kind: kind.__name__)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made = request.param(tmp_path / "small")
    yield made
    if isinstance(made, SmallDisk):
        made.unmount()


def place(client: RawClient, disk: Disk, broker: ServedBroker) -> tuple[int, int]:
    """Make a topic with a partition on the disk and one elsewhere, and limit the disk."""
    assert create(client, "t", partitions=2) == 0
    disk.limit(broker)
    return (0, 1) if (disk.path / "t-0").exists() else (1, 0)


def fill(client: RawClient, partition: int) -> tuple[list[bytes], set[int]]:
    """Append until it fails, and a little longer; return what was acknowledged, and the errors."""
    acknowledged: list[bytes] = []
    errors: set[int] = set()
    for number in range(20):
        value = bytes([number]) * VALUE_BYTES
        code, offset = append(client, "t", value, partition)
        if code:
            errors.add(code)
        else:
            assert not errors, "nothing is taken after a failure"
            assert offset == len(acknowledged)
            acknowledged.append(value)
    return acknowledged, errors


def test_a_full_disk_is_an_error_to_the_producer_and_no_torn_log(
    tmp_path: Path, disk: Disk
) -> None:
    other = tmp_path / "other"
    with ServedBroker(disk.path, SETTINGS) as broker:
        broker.start(["--log-dir", str(other)])
        with RawClient(broker.port) as client:
            on_disk, elsewhere = place(client, disk, broker)

            acknowledged, errors = fill(client, on_disk)

            assert acknowledged
            assert errors == {ErrorCode.kafka_storage_error}
            assert append(client, "t", b"still here", elsewhere) == (0, 0)
            check_offline(client, disk.path, on_disk)
        disk.grow(broker)
        assert broker.stop() == 0

        broker.start(["--log-dir", str(other)])
        with RawClient(broker.port) as client:
            assert append(client, "t", b"again", on_disk) == (0, len(acknowledged))
            assert append(client, "t", b"again", elsewhere) == (0, 1)
        assert broker.stop() == 0

    assert values(disk.path, "t", on_disk) == [*acknowledged, b"again"]
    assert values(other, "t", elsewhere) == [b"still here", b"again"]


def check_offline(client: RawClient, path: Path, partition: int) -> None:
    """Hold against each other what the broker says about the directory and the partition."""
    dirs = {d.log_dir: d.error_code for d in client.ask(DESCRIBE_LOG_DIRS, 4, topics=None).results}
    assert dirs.pop(str(path)) == ErrorCode.kafka_storage_error
    assert set(dirs.values()) == {ErrorCode.none}
    asked = [{"topic_id": None, "name": "t"}]
    metadata = client.ask(
        METADATA,
        12,
        topics=asked,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    leaders = {part.partition_index: part.leader_id for part in metadata.topics[0].partitions}
    assert leaders == {partition: -1, 1 - partition: 0}


@pytest.mark.parametrize("disk", DISKS[-1:], indirect=True, ids=lambda kind: kind.__name__)
def test_a_broker_starts_beside_a_directory_that_is_still_full(tmp_path: Path, disk: Disk) -> None:
    other = tmp_path / "other"
    with ServedBroker(disk.path, SETTINGS) as broker:
        broker.start(["--log-dir", str(other)])
        with RawClient(broker.port) as client:
            on_disk, elsewhere = place(client, disk, broker)
            acknowledged, _ = fill(client, on_disk)
        broker.kill()

        broker.start(["--log-dir", str(other)])
        with RawClient(broker.port) as client:
            assert append(client, "t", b"here", elsewhere) == (0, 0)
        disk.grow(broker)
        assert broker.stop() == 0
        broker.start(["--log-dir", str(other)])
        with RawClient(broker.port) as client:
            assert append(client, "t", b"again", on_disk) == (0, len(acknowledged))
        assert broker.stop() == 0

    assert values(disk.path, "t", on_disk) == [*acknowledged, b"again"]
