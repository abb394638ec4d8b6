"""What waits for its horizon in the clean section, and since when it is due."""

import pytest

from siltstone.cleaner.waiting import Waiting, find_waiting
from siltstone.errors import CorruptBatchError
from siltstone.records.compression import Codec
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog

NOTHING = Waiting(0, None)


def waiting(log: MadeLog, end_offset: int | None = None) -> Waiting:
    return find_waiting(log.real, 0, log.real.log_end_offset if end_offset is None else end_offset)


def test_nothing_waits_in_a_log_that_was_never_cleaned(make_log: MakeCompactedLog) -> None:
    assert waiting(make_log("a~ b~ | c~")) == NOTHING


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_every_tombstone_counts(
    codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log(delete_retention_ms=100)
    log.append_batch(log.build("[a~ b=1 c~]", codec=codec))
    log.append("d~ e=1 |")

    cleaner.clean(log)

    found = waiting(log)
    assert (found.count, found.earliest_horizon_ms) == (3, clock.now_ms() + 100)


def test_the_earliest_horizon_counts(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("a~ |", delete_retention_ms=100)
    first_ms = clock.now_ms() + 100
    cleaner.clean(log)
    clock.advance_ms(50)
    log.append("b~ |")
    cleaner.clean(log)

    found = waiting(log)
    assert (found.count, found.earliest_horizon_ms) == (2, first_ms)

    clock.advance_ms(50)
    cleaner.clean(log)
    found = waiting(log)
    assert (found.count, found.earliest_horizon_ms) == (1, first_ms + 50)


def test_markers_count(make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock) -> None:
    log = make_log("a=1", delete_retention_ms=100)
    log.commit()
    log.append("|")

    cleaner.clean(log)

    found = waiting(log)
    assert (found.count, found.earliest_horizon_ms) == (1, clock.now_ms() + 100)


def test_a_horizon_without_a_tombstone_does_not_count(
    make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
) -> None:
    log = make_log("[a~ b=1] |", delete_retention_ms=100)
    cleaner.clean(log)
    clock.advance_ms(100)
    cleaner.clean(log)
    assert [header.delete_horizon_ms for header in log.headers()] == [clock.now_ms()]

    assert waiting(log) == NOTHING


def test_a_batch_without_records_does_not_count(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log()
    log.commit()
    log.append("|")
    cleaner.clean_twice(log)
    assert log.contents() == "0..0:empty |"

    assert waiting(log) == NOTHING


def test_segments_from_the_end_offset_on_are_not_looked_at(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a~ | b~ | c~ |", segment_bytes=69)
    cleaner.clean(log)
    assert log.base_offsets() == [0, 1, 2, 3]

    assert [waiting(log, end).count for end in (0, 1, 2, 3)] == [0, 1, 2, 3]


def test_a_damaged_batch_is_not_counted_but_reported(
    make_log: MakeCompactedLog, cleaner: Cleaner
) -> None:
    log = make_log("a~ |")
    cleaner.clean(log)
    path = log.path("0.log")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    with pytest.raises(CorruptBatchError, match="header says CRC 0x"):
        waiting(log)
