"""100,000 damaged batches and segments: only errors that we mean, and never a wrong record.

Everything is drawn from seeds, which a failure names. With SILT_TEST_ROUNDS=20 there are twenty
times as many.
"""

import contextlib
import logging
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from siltstone.errors import SiltstoneError
from siltstone.ids import TopicPartition
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem
from siltstone.log.log_manager import LogManager
from siltstone.log.log_reader import LogReader
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.records.batch import read_batch, read_header
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.crash_runs import ROUNDS, told
from tests.support.log_checks import (
    PARTITION,
    Checkpoint,
    History,
    LogWriter,
    fetch_all,
    open_log,
    small_config,
)
from tests.support.mutations import (
    LIMIT_BYTES,
    Damage,
    damage,
    is_sound,
    make_batches,
    mutate_batch,
)
from tests.support.twins import (
    Refusal,
    attempt,
    compare_checks,
    compare_scans,
    compare_walks,
    read_plainly,
)

_FS = FileSystem()
CODECS = list(Codec)
CHUNKS = 20
BATCHES_PER_CHUNK = 4_800 * ROUNDS
LOGS_PER_CHUNK = 160 * ROUNDS
DIRECTORIES_PER_CHUNK = 40 * ROUNDS


def test_this_is_a_hundred_thousand() -> None:
    per_chunk = BATCHES_PER_CHUNK + LOGS_PER_CHUNK + DIRECTORIES_PER_CHUNK

    assert CHUNKS * per_chunk >= 100_000


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logger = logging.getLogger("siltstone")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


# Batches


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_batches_are_refused_in_words_and_alike_by_kernel_and_twin(chunk: int) -> None:
    chance = random.Random(chunk)
    pool = make_batches(chance, 40)
    verdicts = {True: 0, False: 0}
    for number in range(BATCHES_PER_CHUNK):
        original = chance.choice(pool)
        data = mutate_batch(chance, original)
        if chance.random() < 0.1:
            data += mutate_batch(chance, chance.choice(pool))
        with told(f"chunk {chunk}, batch {number}: {data.hex()}"):
            records = read_plainly(data, LIMIT_BYTES)
            compare_walks(data)
            compare_scans(data, LIMIT_BYTES)
            batch = attempt(partial(read_batch, data))
            if not isinstance(batch, Refusal):
                compare_checks(batch, LIMIT_BYTES)
        verdicts[isinstance(records, Refusal)] += 1
    # Damage that is always refused at the door tests nothing behind it.
    assert min(verdicts.values()) > BATCHES_PER_CHUNK // 50


# Segments, indexes and snapshots of one partition


@dataclass(frozen=True)
class Specimen:
    """The files of a log, and the records that were written to it."""

    files: dict[str, bytes]
    history: History
    checkpoint: Checkpoint

    def records(self) -> dict[int, Record]:
        """Return the records by offset."""
        return {
            record.offset: record
            for batch in map(read_batch, self.history.batches)
            for record in batch.iter_records()
        }


def make_specimen(chance: random.Random, path: Path, *, closes: bool) -> Specimen:
    """Fill a log of several segments, with transactions, and take its files."""
    config = small_config(segment_bytes=900, flush_messages=1_000)
    clock = ManualClock()
    history = History()
    log = open_log(_FS, path, config, clock)
    writer = LogWriter(log, clock, history)
    for number in range(16):
        kind = chance.randrange(4)
        codec = chance.choice(CODECS)
        if kind == 0 and number > 2:
            writer.end(3, chance.choice([ControlType.ABORT, ControlType.COMMIT]))
        elif kind == 1:
            writer.append(chance.randint(1, 3), producer_id=3, is_transactional=True)
        elif kind == 2:
            writer.append(chance.randint(1, 3), producer_id=1, codec=codec)
        else:
            writer.append(chance.randint(1, 4), value_bytes=chance.randrange(90), codec=codec)
    log.flush()
    checkpoint = Checkpoint.of(log)
    if closes:
        log.close()
    files = {child.name: child.read_bytes() for child in path.iterdir()}
    shutil.rmtree(path)
    return Specimen(files, history, checkpoint)


class DamagedLog:
    """A copy of a specimen with some of its files damaged, gone or doubled."""

    def __init__(self, chance: random.Random, specimen: Specimen, path: Path) -> None:
        self.path = path
        self.specimen = specimen
        self.is_log_touched = False
        self.may_have_moved = False
        path.mkdir(parents=True)
        files = dict(specimen.files)
        for name in chance.sample(sorted(files), chance.choice([1, 1, 2, 3])):
            self._damage(chance, files, name)
        for name, data in files.items():
            (path / name).write_bytes(data)

    def _damage(self, chance: random.Random, files: dict[str, bytes], name: str) -> None:
        is_log = name.endswith(filenames.LOG)
        self.is_log_touched |= is_log
        luck = chance.random()
        if luck < 0.05:
            del files[name]
        elif luck < 0.1:
            suffix = chance.choice([filenames.SWAP, filenames.CLEANED, filenames.DELETED])
            files[name + suffix] = files[name]
            self.is_log_touched |= suffix == filenames.SWAP
        else:
            done = damage(chance, files[name])
            files[name] = done.data
            if is_log:
                self.may_have_moved |= _touches_a_base_offset(self.specimen.files[name], done)

    def check_records(self, records: list[Record]) -> None:
        """Check that each record was written, and where it was written.

        The checksum does not cover base offsets: where one was hit, a record may have moved.
        """
        written = self.specimen.records()
        contents = {record[1:] for record in written.values()}
        for record in records:
            if self.may_have_moved:
                assert record[1:] in contents, record
            else:
                assert written.get(record.offset) == record


def _touches_a_base_offset(data: bytes, done: Damage) -> bool:
    position = 0
    while position < len(data):
        if done.touches(position, position + 8):
            return True
        position += read_header(data, position).size_bytes
    return False


def read_damaged(log: PartitionLog, chance: random.Random) -> list[Record]:
    """Ask a log for all that can be asked for, and return the records that it gave."""
    records: list[Record] = []
    with contextlib.suppress(SiltstoneError):
        for batch in fetch_all(log, chance.choice([1, 300, 10_000])):
            records += batch.iter_records()
    for _ in range(4):
        with contextlib.suppress(SiltstoneError):
            offset = chance.randint(log.log_start_offset, max(log.log_end_offset, 1))
            isolation = chance.choice(list(Isolation))
            for batch in log.read(offset, 500, isolation).batches():
                records += batch.iter_records()
        with contextlib.suppress(SiltstoneError):
            found = log.find_offset_by_timestamp(1_700_000_000_000 + chance.randrange(-50, 500))
            assert found is None or found.offset >= 0
    with contextlib.suppress(SiltstoneError):
        log.find_max_timestamp()
    log.collect_aborted(0, max(log.log_end_offset, 0))
    return records


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_log_with_damaged_files_gives_only_records_that_were_written(
    tmp_path: Path, chunk: int
) -> None:
    chance = random.Random(1_000 + chunk)
    specimens = [
        (make_specimen(chance, tmp_path / "made" / str(PARTITION), closes=closes), closes)
        for closes in (True, False, True, False)
    ]
    config = small_config(segment_bytes=900)
    for number in range(LOGS_PER_CHUNK):
        specimen, was_clean = chance.choice(specimens)
        path = tmp_path / str(number) / str(PARTITION)
        damaged = DamagedLog(chance, specimen, path)
        with told(f"chunk {chunk}, log {number}"):
            checkpoint = chance.choice([None, specimen.checkpoint])
            writable = chance.random() < 0.7
            try:
                log = open_log(
                    _FS,
                    path,
                    config,
                    ManualClock(),
                    checkpoint,
                    was_clean=was_clean,
                    writable=writable,
                )
            except SiltstoneError:
                continue
            finally:
                reread = random.Random(chance.random())
            records = read_damaged(log, reread)
            damaged.check_records(records)
            if not damaged.is_log_touched:
                check_nothing_is_missing(log, specimen)
            if writable:
                use_damaged(log)
        del log
        shutil.rmtree(tmp_path / str(number))


def check_nothing_is_missing(log: PartitionLog, specimen: Specimen) -> None:
    """Check that every record is found by its offset and by its time (I4)."""
    written = specimen.records()
    fetched = [record for batch in fetch_all(log) for record in batch.iter_records()]
    assert fetched == list(written.values())
    for target_ms in sorted({record.timestamp_ms for record in written.values()}):
        found = log.find_offset_by_timestamp(target_ms)
        wanted = next(r for r in written.values() if r.timestamp_ms >= target_ms)
        assert found is not None
        assert (found.timestamp_ms, found.offset) == (wanted.timestamp_ms, wanted.offset)


def use_damaged(log: PartitionLog) -> None:
    """Go on with a log that could be opened: whatever it refuses, it says so."""
    history = History()
    with contextlib.suppress(SiltstoneError):
        LogWriter(log, ManualClock(), history).append(2)
        appended = list(log.read(log.log_end_offset - 2, 10_000, Isolation.LOG_END).batches())
        assert bytes(appended[-1].data) == history.batches[-1]
    for act in (log.roll, log.delete_old_segments, log.close):
        with contextlib.suppress(SiltstoneError):
            act()


# Log directories


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_log_directory_with_damaged_files_opens_or_says_why_not(
    tmp_path: Path, chunk: int
) -> None:
    chance = random.Random(2_000 + chunk)
    files, written = make_directory(chance, tmp_path / "made")
    for number in range(DIRECTORIES_PER_CHUNK):
        path = tmp_path / str(number)
        damaged = dict(files)
        small = [name for name in files if not name.endswith((filenames.LOG, filenames.LOCK))]
        for name in chance.sample(small, chance.choice([1, 1, 2, 4])):
            damaged[name] = damage(chance, files[name]).data
        for name, data in damaged.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)

        with told(f"chunk {chunk}, directory {number}"):
            with contextlib.suppress(SiltstoneError):
                reader = LogReader([path])
                for partition in written:
                    check_directory(reader.get_log(partition), written[partition])
            with (
                contextlib.suppress(SiltstoneError),
                LogManager([path], clock=ManualClock()) as manager,
            ):
                for partition in written:
                    check_directory(manager.get_log(partition), written[partition])
                manager.run_maintenance()
        shutil.rmtree(path)


def make_directory(
    chance: random.Random, path: Path
) -> tuple[dict[str, bytes], dict[TopicPartition, dict[int, Record]]]:
    """Fill a log directory with two topics, and take its files."""
    clock = ManualClock()
    histories = {TopicPartition(name, number): History() for name in "ab" for number in range(2)}
    settings = {"segment.index.bytes": "240", "segment.bytes": "900", "index.interval.bytes": "99"}
    manager = LogManager([path], clock=clock)
    for name in "ab":
        manager.create_topic(name, 2, settings)
    for partition, history in histories.items():
        writer = LogWriter(manager.get_log(partition), clock, history)
        for _ in range(6):
            writer.append(chance.randint(1, 3), producer_id=chance.choice([None, 1]))
    manager.get_log(TopicPartition("a", 0)).delete_records(2)
    manager.close()
    files = {
        str(child.relative_to(path)): child.read_bytes()
        for child in sorted(path.rglob("*"))
        if child.is_file()
    }
    shutil.rmtree(path)
    return files, {
        partition: Specimen({}, history, Checkpoint()).records()
        for partition, history in histories.items()
    }


def check_directory(log: PartitionLog, written: dict[int, Record]) -> None:
    """Check that a log gives the records that were written, from wherever it starts."""
    for batch in fetch_all(log):
        for record in batch.iter_records():
            assert written[record.offset] == record


def test_the_damage_is_what_it_is_meant_to_be() -> None:
    chance = random.Random(0)
    pool = make_batches(chance, 20)
    mutants = [mutate_batch(chance, data) for data in pool for _ in range(50)]

    assert all(is_sound(data) for data in pool)
    assert 300 < sum(map(is_sound, mutants)) < 900
