"""Facts 8.A: transactions, their markers and what is left of them after passes."""

from siltstone.log.origin import AppendOrigin
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.builder import build_batch
from siltstone.records.control import ControlType, encode_control_key
from siltstone.records.record import Record
from tests.support.cleaning import (
    Cleaner,
    MakeCompactedLog,
    batch_ends,
    horizons_ms,
    keys_of,
    records_of,
)
from tests.support.clock import ManualClock
from tests.support.make_log import MadeLog

DAY_MS = 86_400_000
CENTURY_MS = 36_525 * DAY_MS


def aborted_of(log: MadeLog) -> list[AbortedTxn]:
    """Return what the transaction indexes list."""
    return log.real.collect_aborted(0, log.real.log_end_offset)


class TestTransactions:
    # A7 testMultiPassSegmentCleaningWithAbortedTransactions
    def test_aborted_data_goes_at_once_and_its_markers_two_passes_later(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        log.commit(producer=1)
        log.produce("c=1", producer=2, transactional=True)
        log.commit(producer=2)
        log.produce("d=1", producer=1, transactional=True)
        log.commit(producer=1)
        log.append("e=1")
        log.produce("[a=bad b=bad]", producer=1, transactional=True)
        log.abort(producer=1)
        log.produce("[c=bad d=bad e=bad f=bad g=bad]", producer=2, transactional=True)
        log.abort(producer=2)
        log.produce("h=1", producer=1, transactional=True)
        log.produce("i=1", producer=2, transactional=True)
        log.commit(producer=1)
        log.commit(producer=2)
        log.append("|")
        both = [AbortedTxn(1, 8, 10, 11), AbortedTxn(2, 11, 16, 17)]
        assert aborted_of(log) == both

        cleaner.clean(log)
        kept = "0:a=1 1:b=1 2:commit 3:c=1 4:commit 5:d=1 6:commit 7:e=1 "
        end = "17:h=1 18:i=1 19:commit 20:commit |"
        assert log.contents() == kept + "10:abort 16:abort " + end
        assert aborted_of(log) == both
        assert horizons_ms(log) == {}

        cleaner.clean(log)
        assert log.contents() == kept + "10:abort 16:abort " + end
        assert aborted_of(log) == []
        assert horizons_ms(log) == dict.fromkeys((10, 16), clock.now_ms() + DAY_MS)

        clock.advance_ms(DAY_MS)
        cleaner.clean(log)
        assert log.contents() == kept + end
        assert log.real.last_stable_offset == log.real.log_end_offset == 21

    # A8 testBasicTransactionAwareCleaning
    def test_aborted_records_supersede_nothing_and_go(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("[1=a 2=a]", producer=1, transactional=True)
        log.produce("[2=b 3=b]", producer=2, transactional=True)
        log.produce("[3=a 4=a]", producer=1, transactional=True)
        log.abort(producer=1)
        log.commit(producer=2)
        log.produce("2=c", producer=1, transactional=True)
        log.commit(producer=1)
        log.append("|")
        listed = aborted_of(log)

        cleaner.clean(log)

        assert log.contents() == "3:3=b 6:abort 7:commit 8:2=c 9:commit |"
        assert aborted_of(log) == listed == [AbortedTxn(1, 0, 6, 2)]

    # A9 testCleanWithTransactionsSpanningSegments
    def test_a_transaction_that_is_aborted_in_the_active_segment_goes_from_the_ones_before(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("[1=a 2=a]", producer=1, transactional=True)
        log.produce("[2=c 3=c]", producer=3, transactional=True)
        log.produce("[3=b 4=b]", producer=2, transactional=True)
        log.append("|")
        log.produce("[5=b 6=b]", producer=2, transactional=True)
        log.produce("[6=c 7=c]", producer=3, transactional=True)
        log.produce("[7=a 8=a]", producer=1, transactional=True)
        log.abort(producer=2)
        log.produce("[8=c 9=c]", producer=3, transactional=True)
        log.commit(producer=3)
        log.produce("[9=a 10=a]", producer=1, transactional=True)
        log.abort(producer=1)

        cleaner.clean(log)
        # The batch of producer 2 ends where the pass does, and stays without its records.
        assert batch_ends(log)[:2] == [3, 5]
        assert keys_of(log) == "2 3 5 6 6 7 7 8 8 9 9 10"

        log.append("|")
        log.produce("11=b", producer=2, transactional=True)
        log.produce("12=a", producer=1, transactional=True)
        cleaner.clean(log)
        assert keys_of(log) == "2 3 6 7 8 9 11 12"

    # A10 testCommitMarkerRemoval
    def test_a_commit_marker_goes_once_nothing_of_its_transaction_was_left(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.produce("1=a", transactional=True)
        log.produce("[2=a 3=a]", transactional=True)
        log.commit()
        log.produce("2=b", transactional=True)
        log.commit()
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "0:1=a 2:3=a 3:commit 4:2=b 5:commit |"

        log.produce("[1=c 3=c]", transactional=True)
        log.commit()
        log.append("|")
        cleaner.clean(log)  # the data goes; but it was there
        rest = "4:2=b 5:commit 6:1=c 7:3=c 8:commit |"
        assert log.contents() == "3:commit " + rest
        assert horizons_ms(log) == {}

        cleaner.clean(log)  # nothing was there any more: the marker begins to wait
        assert log.contents() == "3:commit " + rest
        assert horizons_ms(log) == {3: clock.now_ms() + DAY_MS}

        clock.advance_ms(CENTURY_MS)
        cleaner.clean(log)
        assert log.contents() == rest

    # A11 testDeletedBatchesWithNoMessagesRead
    def test_an_abort_marker_goes_though_only_discarded_batches_are_around_it(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(max_message_bytes=100, segment_bytes=1000)
        log.produce("1=a", transactional=True)
        log.abort()
        log.produce("2=a", transactional=True)
        log.produce("2=b", transactional=True)
        log.commit()
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "1:abort 3:2=b 4:commit |"

        cleaner.clean_twice(log)
        assert log.contents() == "3:2=b 4:commit |"

    # A12 testCommitMarkerRetentionWithEmptyBatch
    def test_a_commit_marker_stays_as_long_as_an_empty_batch_of_its_transaction(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("[2=a 3=a]", producer=1, transactional=True)
        log.append("|")
        log.produce("[2=b 3=b]", producer=2, transactional=True)
        log.commit(producer=2)
        log.append("| 2=c 3=c")
        log.commit(producer=1)
        log.append("|")

        emptied = "0..1:empty 2..3:empty 4:commit 5:2=c 6:3=c 7:commit |"
        cleaner.clean(log)
        assert log.contents() == emptied
        cleaner.clean(log)
        assert log.contents() == emptied

        log.produce("1=d", producer=2, transactional=True)
        log.commit(producer=2)
        log.append("|")
        cleaner.clean(log)
        assert log.contents() == "0..1:empty 4:commit 5:2=c 6:3=c 7:commit 8:1=d 9:commit |"
        assert horizons_ms(log) == {}

        cleaner.clean_twice(log)
        assert log.contents() == "0..1:empty 5:2=c 6:3=c 7:commit 8:1=d 9:commit |"

    # A13 testCleanEmptyControlBatch
    def test_a_marker_is_emptied_if_it_is_all_that_is_known_of_a_producer(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.commit()
        log.append("2=a 3=a |")

        cleaner.clean_twice(log)
        assert log.contents() == "0..0:empty 1:2=a 2:3=a |"

        clock.advance_ms(CENTURY_MS)
        cleaner.clean(log)
        assert log.contents() == "0..0:empty 1:2=a 2:3=a |"

    # A14 testCommittedTransactionSpanningSegments
    def test_a_commit_in_another_segment_than_its_data_stays(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(segment_bytes=128)
        log.produce("1=a", transactional=True)
        log.append("|")
        log.commit()
        log.append("|")

        cleaner.clean_twice(log)

        assert log.contents() == "0:1=a | 1:commit |"

    # A15 testAbortedTransactionSpanningSegments
    def test_an_abort_in_another_segment_than_its_data_stays_with_the_last_batch(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(segment_bytes=128)
        log.produce("1=a", transactional=True)
        log.append("|")
        log.abort()
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "0..0:empty | 1:abort |"

        clock.advance_ms(CENTURY_MS)
        cleaner.clean(log)
        assert log.contents().replace(" |", "") == "0..0:empty 1:abort"

    # A16 testAbortMarkerRemoval
    def test_an_abort_marker_goes_after_its_data(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("1=a", transactional=True)
        log.produce("[2=a 3=a]", transactional=True)
        log.abort()
        log.produce("3=b", transactional=True)
        log.commit()
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "3:abort 4:3=b 5:commit |"

        cleaner.clean_twice(log)
        assert log.contents() == "4:3=b 5:commit |"

    # A17 testEmptyBatchRemovalWithSequenceReuse
    def test_only_the_last_batch_of_a_producer_stays_if_all_have_the_same_sequence(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        for key in "12":  # as the group coordinator writes: each transaction begins at sequence 0
            data = log.build(
                f"{key}=a",
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            log.append_batch(data, origin=AppendOrigin.COORDINATOR)
            log.commit()
        log.append("1=b 2=b |")

        cleaner.clean(log)
        assert log.contents() == "1:commit 2..2:empty 3:commit 4:1=b 5:2=b |"

        cleaner.clean_twice(log)
        assert log.contents() == "2..2:empty 3:commit 4:1=b 5:2=b |"

    # A18 testAbortMarkerRetentionWithEmptyBatch
    def test_an_abort_marker_stays_one_pass_longer_than_the_empty_batch_of_its_transaction(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.produce("[2=a 3=a]", transactional=True)
        log.abort()
        log.append("|")
        listed = [AbortedTxn(1, 0, 2, 3)]
        assert aborted_of(log) == listed

        cleaner.clean(log)
        assert log.contents() == "0..1:empty 2:abort |"
        assert aborted_of(log) == listed

        cleaner.clean_twice(log)
        assert log.contents() == "0..1:empty 2:abort |"
        assert aborted_of(log) == listed

        log.produce("1=b")
        log.append("|")
        cleaner.clean(log)
        assert log.contents() == "2:abort 3:1=b |"
        assert aborted_of(log) == listed

        cleaner.clean_twice(log)
        assert log.contents() == "3:1=b |"
        assert aborted_of(log) == []
        assert not log.path("0.txnindex").exists()

    # A27 testCleaningWithKeysConflictingWithTxnMarkerKeys
    def test_a_key_that_looks_like_a_markers_is_a_key_like_any_other(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        key = encode_control_key(ControlType.COMMIT)
        log.append_batch(
            build_batch(
                [Record(0, 0, key, b"a")],
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
        log.commit()
        log.append("|")

        cleaner.clean(log)

        assert [(record.offset, record.key) for record in records_of(log)] == [(0, key), (1, key)]
