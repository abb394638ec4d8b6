"""Our passes against those of Kafka's own cleaner, over random logs.

Both logs have the same content, under clocks that show the same time. Both are asked whether a pass
is due; both run one; then everything that is left must be equal byte for byte: batches, indexes,
transaction indexes, checkpoints, and what was counted on the way. Between passes records are added,
time goes by, and each side is stopped and goes on with the files that the other has left.

Where the two differ, all of it on purpose but the first:

1.  Snappy finds other matches: such a payload may have other bytes, and the same records.
2.  A group of one segment in which nothing changes is left alone by us, with its indexes. Kafka
    copies it, and builds the indexes anew.
3.  What a pass writes may be larger than what it read: delete horizons take room. We begin another
    segment at `segment.bytes`; Kafka's becomes larger than that.
4.  An expired delete horizon makes a log eligible with us. Kafka waits for new data, and would not
    do anything without: for the comparison it is told that everything is dirty.
5.  With a first dirty offset within a segment, where a pass ends whose map was too small, Kafka
    takes transactions for aborted that began later, if their producer had one aborted in that
    segment before: older values of their keys stay for ever. It is told to begin at the segment.
6.  Below the log start Kafka leaves superseded records (it is told that everything is dirty), and
    does not know which transactions were aborted: markers go before the data. Our plan is run with
    Kafka's list first, and compared; then with ours, which leaves the same above the log start.
7.  Kafka gives up on a log whose merged segments need more index entries than fit. We leave some
    out. Both are given larger indexes and begin again.
8.  A first dirty offset is a hint to us: we also remove what is superseded below it.
9.  A batch whose CRC is wrong stops our pass; Kafka signs what is left of it.
10. Kafka gives up on a log in which a batch with times before 1970 must be written anew.

All but the first four have tests of their own as well.

    SILTSTONE_SOAK=5000        run so many random logs instead of the default
    SILTSTONE_FIRST_SEED=77    begin with this seed, to repeat a failure: the message names it
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from siltstone.cleaner.engine import CleaningEngine
from siltstone.cleaner.planner import assess_log, plan_pass
from siltstone.errors import CorruptBatchError
from siltstone.log import filenames
from siltstone.records.batch import TimestampType
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.kafka.clean_ops import (
    WatchedLogOps,
    clean,
    select,
    start_watched,
)
from tests.kafka.cleaner_life import PASSES, Life
from tests.kafka.cleaner_pair import small_pair, transactional_batch
from tests.kafka.cleaner_states import SEEN, Files, batches, values
from tests.kafka.engines import ENGINES, close_engine
from tests.kafka.harness import Harness
from tests.kafka.log_ops import KafkaRefusedError

YEAR_2020_MS: Final = 1_577_836_800_000


LOGS: Final = int(os.environ.get("SILTSTONE_SOAK", "300"))
_WHOLE_RUN_LOGS: Final = 300


FIRST_SEED: Final = int(os.environ.get("SILTSTONE_FIRST_SEED", "0"))


SEEDS_PER_TEST: Final = 25


# Kafka flushes at every step: in memory that costs nothing, and nothing here survives the test.
MEMORY_DISK: Final = Path("/dev/shm")


@pytest.fixture(scope="module")
def watched_ops(harness: Harness) -> Iterator[WatchedLogOps]:
    """A process of its own, so that its warnings are about these logs."""
    with start_watched(harness) as ops:
        yield ops


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[CleaningEngine]:
    make, _ = ENGINES[request.param]
    made = make()
    yield made
    close_engine(made)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory if the machine has such a place."""
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="siltstone-", dir=MEMORY_DISK) as name:
        yield Path(name)


@pytest.mark.parametrize(
    "first_seed",
    range(FIRST_SEED, FIRST_SEED + LOGS, SEEDS_PER_TEST),
    ids=lambda seed: f"from-seed-{seed}",
)
def test_a_pass_leaves_what_kafkas_cleaner_leaves(
    engine: CleaningEngine,
    first_seed: int,
    request: pytest.FixtureRequest,
    watched_ops: WatchedLogOps,
    directory: Path,
) -> None:
    _, step = ENGINES[request.node.callspec.params["engine"]]
    last_seed = min(first_seed + SEEDS_PER_TEST, FIRST_SEED + LOGS) - 1
    print(f"seeds {first_seed} to {last_seed} in steps of {step}, {PASSES} passes each")

    for seed in range(first_seed, last_seed + 1, step):
        life = Life(watched_ops, directory / str(seed), seed, engine)
        try:
            life.run()
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(life.trace))
            raise
        finally:
            life.pair.forget()
        shutil.rmtree(directory / str(seed))
        SEEN["logs"] += 1


@pytest.fixture(scope="module", autouse=True)
def _random_logs_met_everything() -> Iterator[None]:
    """Guard a whole run: a comparison proves nothing about what its random logs do not contain."""
    yield
    if SEEN["logs"] < _WHOLE_RUN_LOGS:
        return  # Somebody has asked for some of the tests.
    print(SEEN)
    wanted = [
        *("merged groups", "unchanged groups", "split groups", "empty segments", "distant offsets"),
        *("superseded", "keyless_removed", "aborted_removed", "batches_emptied"),
        *("tombstones_kept", "tombstones_removed", "markers_kept", "markers_removed"),
        *("limit: active segment", "limit: last stable offset", "limit: min.compaction.lag.ms"),
        *("due: dirty ratio", "due: max compaction lag", "due: expired delete horizon"),
        *(f"rewritten: {codec.name}" for codec in Codec),
        *(f"rewritten: {timestamp_type.name}" for timestamp_type in TimestampType),
        *("lost checkpoint", "map too small", "deleted records", "aborted below the log start"),
        *("started from ours", "started from kafka", "recovered", "not recovered"),
    ]
    assert [name for name in wanted if not SEEN[name]] == []


def test_what_is_superseded_below_the_first_dirty_offset_goes_as_well(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        for key, value in ((b"k", b"1"), (b"k", b"2"), (b"other", b"3")):
            pair.append(build_batch([Record(0, YEAR_2020_MS, key, value)]), leader_epoch=0)
            pair.roll()
        pair.update_high_watermark(3)
        selection, assessment = pair.select(2)  # as if a pass had been there

        theirs = clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert theirs.next_dirty_offset == pair.checkpoint == 3
        assert values(pair.kafka.directory) == [b"1", b"2", b"3"]
        assert values(pair.our_directory) == [b"2", b"3"]


def test_a_batch_with_a_wrong_crc_stops_the_pass_before_anything_is_written(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        records = [Record(n, YEAR_2020_MS, b"k", b"value-%d" % n) for n in range(3)]
        pair.append(build_batch(records), leader_epoch=0)
        pair.roll()
        pair.update_high_watermark(3)
        selection, assessment = pair.select(None)
        for partition_dir in (pair.our_directory, pair.kafka.directory):
            path = filenames.log_path(partition_dir, 0)
            path.write_bytes(path.read_bytes().replace(b"value-2", b"VALUE-2"))
        before = Files.read(pair.our_directory)

        clean(pair.kafka, 0, selection.limit_offset)
        with pytest.raises(CorruptBatchError, match="CRC"):
            pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert values(pair.kafka.directory) == [b"VALUE-2"]  # and its CRC is right
        assert Files.read(pair.our_directory) == before


def test_a_batch_with_times_before_1970_is_written_anew(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.append(
            build_batch([Record(0, -500, b"k", b"1"), Record(1, -7, b"k", b"2")]), leader_epoch=0
        )
        pair.roll()
        pair.update_high_watermark(2)
        selection, assessment = pair.select(None)

        with pytest.raises(KafkaRefusedError, match="Invalid negative timestamp -7"):
            clean(pair.kafka, 0, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        (batch,) = batches(pair.our_directory)
        assert list(batch.iter_records()) == [Record(1, -7, b"k", b"2")]
        assert batch.header.max_timestamp_ms == -7


def test_a_committed_value_supersedes_others_wherever_the_pass_before_ended(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.append(transactional_batch(b"aborted", sequence=0), leader_epoch=0)
        pair.end(ControlType.ABORT)
        for value in (b"1", b"2"):
            pair.append(build_batch([Record(0, YEAR_2020_MS, b"k", value)]), leader_epoch=0)
        pair.append(transactional_batch(b"3", sequence=1), leader_epoch=0)
        pair.end(ControlType.COMMIT)
        pair.roll()
        pair.update_high_watermark(6)
        selection, assessment = pair.select(3)  # as if the map had been full at 2

        clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert values(pair.kafka.directory) == [b"2", b"3"]
        assert values(pair.our_directory) == [b"3"]


def test_an_index_that_is_too_small_for_a_merged_segment_stops_no_pass(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.update_config({"segment.index.bytes": "36"})  # four offsets, three timestamps
        for number in range(6):
            record = Record(0, YEAR_2020_MS, b"%d" % number, b"v")
            pair.append(build_batch([record]), leader_epoch=0)
            if number % 3 == 2:
                pair.roll()
        pair.update_high_watermark(6)
        selection, assessment = pair.select(None)

        with pytest.raises(KafkaRefusedError, match="append to a full index"):
            clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
        pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        assert pair.ours.segments.base_offsets == (0, 6)
        assert pair.ours.segments.first.offset_index.file.size_bytes == 32
        for offset in range(6):
            (batch,) = pair.ours.read(offset, 1).batches()
            assert batch.header.base_offset == offset


def test_a_transaction_below_the_log_start_stays_ended(
    engine: CleaningEngine, watched_ops: WatchedLogOps, directory: Path
) -> None:
    with small_pair(watched_ops, directory, engine) as pair:
        pair.update_config({"cleanup.policy": "compact,delete", "delete.retention.ms": "0"})
        pair.append(transactional_batch(b"aborted", sequence=0), leader_epoch=0)
        pair.end(ControlType.ABORT)
        pair.append(build_batch([Record(0, YEAR_2020_MS, b"k", b"1")]), leader_epoch=0)
        pair.roll()
        pair.update_high_watermark(3)
        pair.delete_records(2)

        for _ in range(3):
            selection = select(pair.kafka, None)
            clean(pair.kafka, selection.first_dirty_offset, selection.limit_offset)
            assessment, _ = assess_log(pair.ours, None, YEAR_2020_MS)
            pair.clean_ours(plan_pass(pair.ours, assessment, YEAR_2020_MS))

        # Kafka has removed the marker but not the batch: after a crash the transaction is open.
        assert pair.last_stable_offset_after_crash("kafka") == 2
        assert pair.last_stable_offset_after_crash("ours") == 3
