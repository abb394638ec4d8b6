"""Facts 8.G: what is left out after a clean stop, and how many files are open after any."""

from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.log import segment_recovery
from siltstone.log.transaction_index import AbortedTxn
from tests.support.loading import read_indexes
from tests.support.make_log import MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
TWO_SEGMENTS = "a=1@10 b=1@20 c=1@30 | d=1@40 e=1@50 f=1@60"


class TestCleanShutdown:  # 8.G6
    def test_a_clean_stop_spares_recovery(self, make_log: MakeLog) -> None:
        log = make_log(TWO_SEGMENTS)
        log.stop()
        damaged = bytearray(log.path("3.log").read_bytes())
        damaged[-1] ^= 0xFF  # nobody has looked at it, so nobody has noticed
        log.path("3.log").write_bytes(damaged)

        log.start()

        assert log.real.log_end_offset == 6
        assert log.real.recovery_point == 6

    def test_an_unclean_one_does_not(self, make_log: MakeLog) -> None:
        log = make_log(TWO_SEGMENTS)
        log.crash()
        damaged = bytearray(log.path("3.log").read_bytes())
        damaged[-1] ^= 0xFF
        log.path("3.log").write_bytes(damaged)

        log.start()

        assert log.real.log_end_offset == 5
        assert log.real.recovery_point == 0

    def test_the_recovery_point_is_not_above_the_end(self, make_log: MakeLog) -> None:
        log = make_log(TWO_SEGMENTS)
        log.crash(recovery_point=100)

        log.start()

        assert log.real.recovery_point == 6


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestManySegments:
    @pytest.mark.parametrize("end", [MadeLog.stop, MadeLog.crash])
    @pytest.mark.parametrize("writable", [True, False])
    def test_loading_leaves_only_a_few_files_open(
        self, make_log: MakeLog, end: Callable[[MadeLog], None], writable: bool
    ) -> None:
        log = make_log("a=1 | " * 30, index_interval_bytes=0)
        end(log)
        before = count_open_files()

        log.start(writable=writable)

        assert count_open_files() - before <= 4  # those of the active segment

    @pytest.mark.parametrize("chunk_bytes", [BATCH_BYTES - 1, BATCH_BYTES, 200, 1_000])
    def test_recovery_does_not_depend_on_how_much_is_read_at_once(
        self, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
    ) -> None:
        log = make_log(index_interval_bytes=100, segment_ms=2**60)
        for number in range(10):
            log.produce(f"a={'x' * number * 30}@{number * 7 % 10}", transactional=True)
        log.abort()
        log.restart()
        log.stop()
        indexes = read_indexes(log)
        log.start()
        contents = log.contents()
        log.crash()
        with log.path("0.log").open("ab") as file:
            file.write(log.build_at(11, "torn=1")[:-1])

        monkeypatch.setattr(segment_recovery, "_CHUNK_BYTES", chunk_bytes)
        log.start()

        assert log.contents() == contents
        assert log.real.collect_aborted(0, 99) == [AbortedTxn(1, 0, 10, 11)]
        log.stop()
        assert read_indexes(log) == indexes
