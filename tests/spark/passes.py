"""Logs with everything in them, the plans over them, and what a run of a plan wrote."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.cleaner.cleaning_pass import PassRunner
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.cleaner.result import PassResult
from siltstone.ids import TopicPartition
from siltstone.log.log_manager import LogManager
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.records.builder import build_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.make_log import HastyDisk

TOPIC: Final = "orders"
_NOW_MS: Final = 1_700_000_000_000
_TRANSACTIONAL: Final = 1  # the producer whose batches are transactions
_DAY_MS: Final = 86_400_000


def plan_random_logs(directory: Path, seed: int, partition_count: int = 1) -> list[CleaningPlan]:
    """Make logs that have been cleaned once and appended to since; plan their second pass.

    Tombstones, markers and emptied batches of the first pass are in them, and every codec.
    """
    chance = random.Random(seed)
    clock = ManualClock(_NOW_MS)
    disk = HastyDisk()
    manager = LogManager([directory], fs=disk, clock=clock)
    settings = {
        "segment.bytes": str(chance.choice([3_000, 20_000])),
        "index.interval.bytes": "200",
        "message.timestamp.type": chance.choice(["CreateTime", "LogAppendTime"]),
    }
    manager.create_topic(TOPIC, partition_count, settings)
    checkpoints = CleanerCheckpoints(disk, directory)
    runner = PassRunner(disk, clock, LocalEngine(), checkpoints)
    logs = manager.logs.values()
    for log in logs:
        _append_randomly(log, chance, clock)
    # Only now: a compacted topic takes no records without a key.
    manager.alter_topic(TOPIC, {"cleanup.policy": "compact"})
    for log in logs:
        runner.run(log, _plan(log, checkpoints, clock))
    manager.alter_topic(TOPIC, {"cleanup.policy": "delete"})
    clock.advance_ms(chance.choice([1_000, _DAY_MS + 1]))
    for log in logs:
        _append_randomly(log, chance, clock)
    manager.alter_topic(TOPIC, {"cleanup.policy": "compact"})
    plans = [_plan(log, checkpoints, clock) for log in logs]
    manager.close()
    return plans


def plan_large_log(directory: Path, record_count: int, key_count: int) -> CleaningPlan:
    """Plan a pass over a log of plain records, with segments of one megabyte."""
    chance = random.Random(record_count)
    clock = ManualClock(_NOW_MS)
    disk = HastyDisk()
    manager = LogManager([directory], fs=disk, clock=clock)
    manager.create_topic(TOPIC, 1, {"cleanup.policy": "compact", "segment.bytes": "1000000"})
    log = manager.get_log(TopicPartition(TOPIC, 0))
    for _ in range(record_count // 100):
        keys = [b"key-%d" % chance.randrange(key_count) for _ in range(100)]
        log.append(build_batch([Record(i, _NOW_MS, key, b"v" * 80) for i, key in enumerate(keys)]))
    plan = _plan(log, CleanerCheckpoints(disk, directory), clock)
    manager.close()
    return plan


def fingerprint(plan: CleaningPlan, result: PassResult) -> list[Any]:
    """Return all that two runs of one plan must agree about; names and times they need not."""
    return [
        *(
            (
                group.base_offsets,
                group.is_unchanged,
                [
                    (
                        output.base_offset,
                        file.extension,
                        file.size_bytes,
                        file.crc32c,
                        hashlib.sha256((plan.directory / file.name).read_bytes()).hexdigest(),
                    )
                    for output in group.outputs
                    for file in output.files
                ],
            )
            for group in result.groups
        ),
        result.counts.as_dict(),
        result.source_crcs,
    ]


def output_names(result: PassResult) -> set[str]:
    """Name the files that a result speaks of."""
    return {file.name for g in result.groups for output in g.outputs for file in output.files}


def part_names(plan: CleaningPlan) -> set[str]:
    """Name the files that passes have left in a partition's directory."""
    return {path.name for path in plan.directory.iterdir() if path.suffix == ".part"}


def damage(plan: CleaningPlan) -> Path:
    """Flip a bit in the last source of a plan; return its path."""
    path = plan.directory / f"{plan.sources[-1].base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def _plan(log: PartitionLog, checkpoints: CleanerCheckpoints, clock: ManualClock) -> CleaningPlan:
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    assessment, _ = assess_log(
        log, checkpoints.find(log.partition), clock.now_ms(), ignores_ratio=True
    )
    return plan_pass(log, assessment, clock.now_ms())


def _append_randomly(log: PartitionLog, chance: random.Random, clock: ManualClock) -> None:
    sequence = 0
    is_open = False
    first_producer_id = clock.now_ms()  # ids that no earlier call has used
    for number in range(chance.randrange(40, 80)):
        data = {"codec": chance.choice([*Codec, *[Codec.NONE] * 5])}
        records = list(_records(chance, clock))
        match chance.randrange(4):
            case 0:
                data.update(producer_id=first_producer_id + number, base_sequence=0)
            case 1:
                data.update(
                    producer_id=first_producer_id - _TRANSACTIONAL,
                    base_sequence=sequence,
                    is_transactional=True,
                )
                sequence += len(records)
                is_open = True
        if "producer_id" in data:
            data["producer_epoch"] = 0
        log.append(build_batch(records, **data))
        if is_open and chance.random() < 0.3:
            _end_transaction(log, chance, clock, first_producer_id - _TRANSACTIONAL)
            is_open = False
    if is_open:
        _end_transaction(log, chance, clock, first_producer_id - _TRANSACTIONAL)


def _records(chance: random.Random, clock: ManualClock) -> Iterator[Record]:
    for number in range(chance.randrange(1, 8)):
        key = chance.choice([None, *[b"key-%d" % chance.randrange(40)] * 20])
        value = chance.choice([None, b"", b"value" * chance.randrange(20)])
        headers = (("h", chance.choice([None, b"x"])),) * chance.randrange(2)
        yield Record(number, clock.now_ms() - chance.randrange(100), key, value, headers)


def _end_transaction(
    log: PartitionLog, chance: random.Random, clock: ManualClock, producer_id: int
) -> None:
    marker = build_marker(
        chance.choice([ControlType.COMMIT, ControlType.ABORT]),
        offset=0,
        timestamp_ms=clock.now_ms(),
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)
