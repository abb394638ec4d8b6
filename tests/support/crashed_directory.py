"""Log directories as a crash leaves them, with all that was acknowledged before it.

    crashed = make_crashed_directory(seed, tmp_path / "logs")

The same seed always makes the same crash, so that what another program does with the directory can
be looked at again.
"""

import contextlib
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.crashable_disk import CrashableDisk
from tests.support.crashing_disk import Crash, SimulatedCrash, Step

TOPIC = "crashed"
PARTITION_COUNT = 2
_APPEND_COUNT = 40
_SETTINGS = {
    "flush.messages": "1",
    "segment.bytes": "2000",
    "segment.index.bytes": "1200",
    "index.interval.bytes": "200",
    "retention.ms": "-1",
    # The clock of a test is not that of whoever opens the directory.
    "message.timestamp.after.max.ms": "9223372036854775807",
}


@dataclass
class CrashedPartition:
    """What must be found in one partition: all of `acknowledged`, and after it `in_flight` or not.

    Records of transactions are in both lists, whether committed, aborted or undecided.
    """

    acknowledged: list[Record] = field(default_factory=list)
    in_flight: list[Record] = field(default_factory=list)


@dataclass(frozen=True)
class CrashedDirectory:
    """A log directory that nobody has opened since the crash."""

    path: Path
    crash: Crash
    step: Step
    has_power_failed: bool
    partitions: dict[TopicPartition, CrashedPartition]


def make_crashed_directory(seed: int, path: Path) -> CrashedDirectory:
    """Fill a new log directory until a crash; odd seeds cut the power as well.

    Every append was flushed before it was acknowledged, so neither may cost a record.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        steps = _fill(work / "steps", seed, None)[0].steps
        number = chance.randrange(len(steps) // 4, len(steps))
        kept_bytes = chance.randrange(steps[number].size_bytes + 1) or None
        crash = Crash(number, kept_bytes=kept_bytes)

        disk, partitions = _fill(work / "crash", seed, crash)
        if seed % 2:
            disk.lose_unflushed_writes(seed)
        shutil.copytree(disk.root / "logs", path)
    return CrashedDirectory(path, crash, steps[number], bool(seed % 2), partitions)


def _fill(
    root: Path, seed: int, crash: Crash | None
) -> tuple[CrashableDisk, dict[TopicPartition, CrashedPartition]]:
    root.mkdir()
    disk = CrashableDisk(root)
    clock = ManualClock()
    manager = LogManager([root / "logs"], fs=disk, clock=clock)
    partitions = {
        TopicPartition(TOPIC, number): CrashedPartition() for number in range(PARTITION_COUNT)
    }
    manager.create_topic(TOPIC, PARTITION_COUNT, _SETTINGS)
    disk.arm(crash)
    with contextlib.suppress(SimulatedCrash):
        _append_all(manager, clock, partitions, random.Random(seed))
    for directory in manager.directories:
        directory.release()
    return disk, partitions


def _append_all(
    manager: LogManager,
    clock: ManualClock,
    partitions: dict[TopicPartition, CrashedPartition],
    chance: random.Random,
) -> None:
    sequences = dict.fromkeys(((p, id_) for p in partitions for id_ in (1, 2)), 0)
    for number in range(_APPEND_COUNT):
        partition = chance.choice(list(partitions))
        log, crashed = manager.get_log(partition), partitions[partition]
        clock.advance_ms(chance.randrange(1_000))
        if number % 7 == 6:
            control_type = chance.choice([ControlType.ABORT, ControlType.COMMIT])
            marker = build_marker(
                control_type,
                offset=0,
                timestamp_ms=clock.now_ms(),
                producer_id=2,
                producer_epoch=0,
                coordinator_epoch=0,
            )
            log.append(marker, origin=AppendOrigin.COORDINATOR)
        else:
            producer_id = chance.choice([-1, 1, 2])
            records = _make_records(chance, clock.now_ms(), number)
            crashed.in_flight = [
                record._replace(offset=log.log_end_offset + record.offset) for record in records
            ]
            sequence = sequences.get((partition, producer_id), -1)
            log.append(
                build_batch(
                    records,
                    codec=chance.choice(list(Codec)),
                    producer_id=producer_id,
                    producer_epoch=-1 if producer_id < 0 else 0,
                    base_sequence=sequence,
                    is_transactional=producer_id == 2,
                )
            )
            sequences[partition, producer_id] = sequence + len(records)
            crashed.acknowledged += crashed.in_flight
            crashed.in_flight = []
        log.update_high_watermark(log.log_end_offset)
        if number % 10 == 9:
            manager.checkpoint()


def _make_records(chance: random.Random, now_ms: int, number: int) -> list[Record]:
    return [
        Record(
            offset,
            now_ms - chance.randrange(2_000),
            f"key-{chance.randrange(9)}".encode(),
            chance.choice([None, f"value {number}.{offset} ".encode() * chance.randint(1, 8)]),
            (("header", str(number).encode()),) if chance.random() < 0.3 else (),
        )
        for offset in range(chance.randint(1, 4))
    ]
