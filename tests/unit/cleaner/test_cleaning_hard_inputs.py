"""Facts 8.A: large and damaged batches, and the last batches of producers."""

import pytest

from siltstone.errors import CorruptBatchError
from siltstone.records.batch import read_header
from siltstone.records.builder import build_batch
from siltstone.records.layout import MAGIC_POSITION
from siltstone.records.record import Record
from tests.support.cleaning import (
    Cleaner,
    MakeCompactedLog,
    batch_ends,
    last_sequences,
    offsets_of,
    records_of,
)
from tests.support.make_log import MadeLog

MEBIBYTE = 1 << 20


class TestLargeAndDamaged:
    @pytest.fixture
    def log(self, make_log: MakeCompactedLog) -> MadeLog:
        log = make_log(segment_bytes=16 * MEBIBYTE, max_message_bytes=2 * MEBIBYTE)
        for key in "ababc":
            log.append_batch(build_batch([Record(0, 0, key.encode(), bytes(MEBIBYTE))]))
        log.append("|")
        return log

    # A19 testLargeMessage
    def test_records_larger_than_any_buffer_are_cleaned(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        cleaner.clean(log)

        assert [(r.offset, r.key, len(r.value or b"")) for r in records_of(log)] == [
            (2, b"a", MEBIBYTE),
            (3, b"b", MEBIBYTE),
            (4, b"c", MEBIBYTE),
        ]

    # A20 testMessageLargerThanMaxMessageSize
    def test_records_larger_than_what_a_topic_still_takes_are_cleaned(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        log.configure(max_message_bytes=MEBIBYTE // 2)

        cleaner.clean(log)

        assert offsets_of(log) == [2, 3, 4]

    # A21 testMessageLargerThanMaxMessageSizeWithCorruptHeader
    def test_a_damaged_header_ends_the_pass_and_the_log_stays_as_it_is(
        self, log: MadeLog, cleaner: Cleaner
    ) -> None:
        damaged = bytearray(log.path("0.log").read_bytes())
        damaged[MAGIC_POSITION] = 0xFF
        log.path("0.log").write_bytes(damaged)
        names = log.names()

        with pytest.raises(CorruptBatchError, match=r"0\.log is corrupt at position 0: unknown ma"):
            cleaner.clean(log)

        assert log.names() == names
        assert log.path("0.log").read_bytes() == damaged
        assert cleaner.checkpoint(log) is None

    # A22 testCorruptMessageSizeLargerThanBytesAvailable
    def test_a_file_that_was_cut_ends_the_pass(self, log: MadeLog, cleaner: Cleaner) -> None:
        path = log.path("0.log")
        path.write_bytes(path.read_bytes()[:1024])

        with pytest.raises(CorruptBatchError, match=r"0\.log is corrupt at position 0: "):
            cleaner.clean(log)

        assert path.stat().st_size == 1024

    # Facts 6.8: Kafka signs whatever it finds anew. We do not.
    def test_a_flipped_bit_in_a_record_ends_the_pass(self, log: MadeLog, cleaner: Cleaner) -> None:
        damaged = bytearray(log.path("0.log").read_bytes())
        damaged[-1000] ^= 1
        log.path("0.log").write_bytes(damaged)
        position = 4 * read_header(damaged).size_bytes

        with pytest.raises(CorruptBatchError, match=f"at position {position}: header says CRC 0x"):
            cleaner.clean(log)

        assert log.path("0.log").read_bytes() == damaged

    # A44 testCleanCorruptMessageSet, A45 testClientHandlingOfCorruptMessageSet
    @pytest.mark.parametrize("magic", [0, 1])
    def test_batches_of_old_formats_are_refused(
        self, magic: int, log: MadeLog, cleaner: Cleaner
    ) -> None:
        old = bytearray(log.path("0.log").read_bytes())
        old[MAGIC_POSITION] = magic
        log.path("0.log").write_bytes(old)

        with pytest.raises(CorruptBatchError, match=f"magic {magic} is not supported: let a Kafka"):
            cleaner.clean(log)


class TestProducers:
    # A6 testDuplicateCheckAfterCleaning
    def test_a_repeated_batch_is_known_after_a_pass_and_a_restart(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("[1=a 2=a 3=a]", producer=1)
        log.produce("[3=b 1=b 4=b]", producer=2)
        log.produce("[1=c 4=c]", producer=3)
        log.append("|")

        cleaner.clean(log)
        assert batch_ends(log) == [2, 5, 7]
        assert log.contents() == "1:2=a 3:3=b 6:1=c 7:4=c |"
        assert last_sequences(log) == {1: 2, 2: 2, 3: 1}

        log.recover()
        repeated = [
            log.produce("[1=a 2=a 3=a]", producer=1, sequence=0),
            log.produce("[1=c 4=c]", producer=3, sequence=0),
            log.produce("[3=b 1=b 4=b]", producer=2, sequence=0),
        ]
        assert [(i.first_offset, i.last_offset) for i in repeated] == [(0, 2), (6, 7), (3, 5)]
        assert all(info.is_duplicate for info in repeated)

        log.produce("2=d", producer=4)
        log.append("|")
        cleaner.clean(log)
        assert batch_ends(log) == [2, 5, 7, 8]
        assert log.contents() == "0..2:empty 3:3=b 6:1=c 7:4=c 8:2=d |"
        assert last_sequences(log) == {1: 2, 2: 2, 3: 1, 4: 0}

        log.recover()
        info = log.produce("[1=a 2=a 3=a]", producer=1, sequence=0)
        assert (info.first_offset, info.last_offset, info.is_duplicate) == (0, 2, True)

    # A25 testLogCleanerRetainsProducerLastSequence
    def test_the_last_batch_of_a_producer_stays_for_its_sequence(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("0=0")
        for producer in (1, 2, 3):
            log.produce(f"0={producer}", producer=producer)
        log.produce("1=1", producer=2)
        log.append("|")

        cleaner.clean(log)

        assert log.contents() == "1..1:empty 3:0=3 4:1=1 |"
        assert last_sequences(log) == {1: 0, 2: 1, 3: 0}

    # A26 testLogCleanerRetainsLastSequenceEvenIfTransactionAborted
    def test_the_last_batch_of_a_producer_stays_even_if_it_was_aborted(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("1=a", transactional=True)
        log.produce("[2=a 3=a]", transactional=True)
        log.abort()
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "1..2:empty 3:abort |"
        assert last_sequences(log) == {1: 2}

        log.produce("[1=b 5=b]")
        log.append("|")
        cleaner.clean(log)
        assert log.contents() == "3:abort 4:1=b 5:5=b |"
        assert last_sequences(log) == {1: 4}
