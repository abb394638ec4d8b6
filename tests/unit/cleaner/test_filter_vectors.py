"""What a real Kafka wrote and cleaned, byte for byte: the first filter pass, markers, horizons."""

import pytest

from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.builder import build_marker
from siltstone.records.control import ControlType
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.clock import ManualClock

DAY_MS = 86_400_000
T0_MS = 1_600_000_000_000

A1 = bytes.fromhex(
    "00000000000000000000005000000000025e63fcf400000000000200000174876e800000000174876e8005"
    "ffffffffffffffffffffffffffff0000000314000000046b310476310010000a02046b3201001400060404"
    "6b3104763200"
)
A2 = bytes.fromhex(
    "00000000000000030000003b000000000265a97a1000100000000000000174876e800700000174876e8007"
    "00000000000000070003000000000000000112000000046b33027800"
)
A3 = bytes.fromhex(
    "0000000000000004000000420000000002c1f0dcf000300000000000000174876e800900000174876e8009"
    "00000000000000070003ffffffff000000012000000008000000000c00000000000500"
)
A5_OF_A1 = bytes.fromhex(
    "00000000000000000000004b0000000002d5d6371a004000000002000001748c94dfe800000174876e8005"
    "ffffffffffffffffffffffffffff000000021600c5ffb25202046b3201001a00c9ffb25204046b31047632"
    "00"
)
A5_OF_A2 = bytes.fromhex(
    "000000000000000300000031000000000269d700f9001000000000ffffffffffffffff00000174876e8007"
    "000000000000000700030000000000000000"
)
A6_OF_A1 = bytes.fromhex(
    "00000000000000000000003f0000000002f31f7bf9004000000002000001748c94dfe800000174876e8003"
    "ffffffffffffffffffffffffffff000000011a00c9ffb25204046b3104763200"
)
A7_AFTER_FIRST = bytes.fromhex(
    "00000000000000000000004500000000029f20f29a007000000000000001748c94dc0000000174876e8000"
    "00000000000000090004ffffffff000000012600ffefb2520008000000010c00000000000100"
)
A7_AT_HORIZON = bytes.fromhex(
    "000000000000000000000031000000000225abc46d003000000000ffffffffffffffff00000174876e8000"
    "00000000000000090004ffffffff00000000"
)
A8_BEFORE = bytes.fromhex(
    "0000000000000000000000420000000002f8968307000800000001000000000000000500000174876e8000"
    "ffffffffffffffffffffffffffff000000021000000002610231000e00020202620100"
)
A8_AFTER = bytes.fromhex(
    "0000000000000000000000480000000002599bb5ba004800000001000001748c94dc6400000174876e8000"
    "ffffffffffffffffffffffffffff000000021600c7f1b2520002610231001400c7f1b2520202620100"
)


class TestByteVectors:
    """Ours gives the same bytes."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(T0_MS)

    # A5, A6
    def test_a_tombstone_and_an_aborted_transaction(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.follow(A1, A2, A3)
        log.append("|")
        listed = [AbortedTxn(7, 3, 4, 5)]

        clock.advance_ms(1000)
        cleaner.clean(log)
        assert log.path("0.log").read_bytes() == A5_OF_A1 + A5_OF_A2 + A3
        assert log.path("0.index").read_bytes() == b""
        assert log.path("0.timeindex").read_bytes() == bytes.fromhex("00000174876e800900000004")
        assert log.path("0.txnindex").read_bytes() == bytes.fromhex(
            "0000000000000000000700000000000000030000000000000004" + "0000000000000005"
        )

        clock.advance_ms(DAY_MS - 1)
        committed = cleaner.clean(log)
        assert all(group.is_unchanged for group in committed.result.groups)
        assert log.path("0.log").read_bytes() == A5_OF_A1 + A5_OF_A2 + A3

        clock.advance_ms(1)
        cleaner.clean(log)
        assert log.path("0.log").read_bytes() == A6_OF_A1 + A5_OF_A2 + A3
        assert log.real.collect_aborted(0, 5) == listed

    # A7
    def test_a_lone_commit_marker(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.follow(
            build_marker(
                ControlType.COMMIT,
                offset=0,
                timestamp_ms=T0_MS,
                producer_id=9,
                producer_epoch=4,
                coordinator_epoch=1,
                leader_epoch=0,
            )
        )
        log.append("|")

        cleaner.clean(log)
        assert log.path("0.log").read_bytes() == A7_AFTER_FIRST

        clock.advance_ms(DAY_MS)
        cleaner.clean(log)
        assert log.path("0.log").read_bytes() == A7_AT_HORIZON

    # A8
    def test_a_tombstone_with_append_time(
        self, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.follow(A8_BEFORE)
        log.append("|")

        clock.advance_ms(100)
        cleaner.clean(log)

        assert log.path("0.log").read_bytes() == A8_AFTER
