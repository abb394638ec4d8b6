"""Kafka's log and ours side by side: each operation is given to both, and all must stay equal.

Where we differ from Kafka on purpose, or Kafka does something that nobody can want, the twins make
up for it; each such place says `Kafka:`.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from siltstone.errors import (
    SiltstoneError,
)
from siltstone.ids import TopicPartition
from siltstone.log.append_info import AppendInfo
from siltstone.log.config import LogConfig
from siltstone.log.filesystem import FileSystem
from siltstone.log.leader_epochs import UNDEFINED_END
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import PartitionLog
from siltstone.log.reading import Isolation
from siltstone.log.recovery import LoadRequest
from siltstone.records.batch import iter_batches
from tests.kafka.comparing import (
    PRODUCER_EXPIRATION_MS,
    compare_files,
    compare_producers,
    describe_kafka,
    describe_ours,
    names_in,
)
from tests.kafka.log_ops import Isolation as KafkaIsolation
from tests.kafka.log_ops import KafkaRefusedError, LogOps
from tests.kafka.refusals import Refused, expect_refusal, parse_refusal
from tests.kafka.states import Appended, LogState
from tests.support.clock import ManualClock

EVERYTHING: Final = 2**31 - 1  # more bytes than any of these logs has
END_OF_TIME_MS: Final = 2**62
LAZY: Final = (".index", ".timeindex", ".index.deleted", ".timeindex.deleted", ".metadata")

ISOLATIONS: Final[Mapping[Isolation, KafkaIsolation]] = {
    Isolation.LOG_END: "LOG_END",
    Isolation.HIGH_WATERMARK: "HIGH_WATERMARK",
    Isolation.COMMITTED: "TXN_COMMITTED",
}


class Twins:
    """Kafka's log and ours. What one is told, the other is told."""

    def __init__(
        self,
        ops: LogOps,
        directory: Path,
        settings: Mapping[str, str],
        now_ms: int,
        *,
        is_replicated: bool,
    ) -> None:
        self.settings = dict(settings)
        self.clock = ManualClock(now_ms)
        self.is_replicated = is_replicated  # every append moves the high watermark to the log end
        self.has_crashed = False  # since the last stop in good order
        self.has_lost_indexes = False  # in some crash
        self.our_directory = directory / "ours" / "t-0"
        self.kafka = ops.open(
            directory / "kafka" / "t-0",
            config=self.settings,
            now_ms=now_ms,
            auto_high_watermark=is_replicated,
            producer_id_expiration_ms=PRODUCER_EXPIRATION_MS,
        )
        self.ours = self._open(was_clean=True, recovery_point=0, log_start_offset=0)

    @property
    def state(self) -> LogState:
        """What Kafka's log looks like now, which is what ours must look like."""
        return self.kafka.state

    def limits(self) -> tuple[int, int]:
        """Give both high watermarks, which may differ by a gap; see `_compare_limit`."""
        return self.state.high_watermark, self.ours.high_watermark

    def forget(self) -> None:
        self.kafka.forget()

    # Operations, each on both

    def append(
        self,
        data: bytes,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> str:
        """Append as a leader and say what came of it."""
        theirs: Appended | Refused
        try:
            theirs = self.kafka.append(
                data,
                leader_epoch=leader_epoch,
                origin="CLIENT" if origin is AppendOrigin.CLIENT else "COORDINATOR",
                transaction_version=transaction_version,
            )
        except KafkaRefusedError as error:
            theirs = parse_refusal(error)
        ours = self._try(
            lambda: self.ours.append(
                data,
                leader_epoch=leader_epoch,
                origin=origin,
                transaction_version=transaction_version,
            )
        )
        self._replicate()
        if isinstance(theirs, Refused):
            expect_refusal(ours, theirs)
            self._catch_up()
            return f"refused: {theirs.kind}"
        assert isinstance(ours, AppendInfo), ours
        if ours.is_duplicate and self.has_crashed:
            # Kafka: it has lost the time of the batch, see `compare_producers`.
            ours = ours._replace(log_append_time_ms=theirs.log_append_time_ms)
        assert _place(ours) == _place(theirs), (ours, theirs)
        if ours.is_duplicate:
            self._catch_up()
            return f"repeats {ours.first_offset}"
        assert ours.max_timestamp_ms == theirs.max_timestamp_ms, (ours, theirs)
        return f"at {ours.first_offset}..{ours.last_offset}"

    def append_as_follower(self, data: bytes, *, leader_epoch: int) -> str:
        theirs: Appended | Refused
        try:
            theirs = self.kafka.append(data, leader_epoch=leader_epoch, origin="REPLICATION")
        except KafkaRefusedError as error:
            theirs = parse_refusal(error)
        ours = self._try(lambda: self.ours.append_as_follower(data))
        self._replicate()
        if isinstance(theirs, Refused):
            expect_refusal(ours, theirs)
            return f"refused: {theirs.kind}"
        assert isinstance(ours, AppendInfo), ours
        assert _place(ours) == _place(theirs), (ours, theirs)
        return f"at {ours.first_offset}..{ours.last_offset}"

    def delete_records(self, offset: int) -> str:
        theirs: bool | Refused
        try:
            theirs = self.kafka.increment_log_start_offset(offset)
        except KafkaRefusedError as error:
            theirs = parse_refusal(error)
        ours = self._try(lambda: self.ours.delete_records(offset))
        if isinstance(theirs, Refused):
            expect_refusal(ours, theirs)
            return f"refused: {theirs.kind}"
        assert ours == self.kafka.state.log_start_offset, ours
        return "moved" if theirs else "not moved"

    def roll(self) -> str:
        assert self.ours.roll().base_offset == self.kafka.roll()
        return f"at {self.ours.log_end_offset}"

    def flush(self) -> str:
        self.kafka.flush()
        self.ours.flush()
        return ""

    def truncate_to(self, offset: int) -> str:
        # Kafka: it misses the newest timestamp of what is left, unless somebody has asked before.
        self.kafka.lookup(END_OF_TIME_MS)
        theirs, ours = self.kafka.truncate_to(offset), self.ours.truncate_to(offset)
        assert ours is theirs
        # Kafka: it forgets here which transactions are replicated, until the leader tells it the
        # high watermark again. We remember, but a follower is told at once anyway.
        self.update_high_watermark(self.state.high_watermark)
        # Kafka: it replays nothing if it knew of no producer. We may find some who have expired.
        self._remove_expired_producers()
        return str(theirs)

    def truncate_fully_and_start_at(self, offset: int) -> str:
        self.kafka.truncate_fully_and_start_at(offset)
        self.ours.truncate_fully_and_start_at(offset)
        return ""

    def delete_old_segments(self) -> str:
        theirs, ours = self.kafka.delete_old_segments(), self.ours.delete_old_segments()
        assert ours == theirs
        return str(ours)

    def update_high_watermark(self, offset: int) -> str:
        theirs = self.kafka.update_high_watermark(offset)
        assert self.ours.update_high_watermark(offset) == theirs
        return str(theirs)

    def advance(self, ms: int) -> str:
        self.kafka.advance(ms)
        self.clock.advance_ms(ms)
        self._remove_expired_producers()
        return f"to {self.clock.now_ms()}"

    def update_config(self, settings: Mapping[str, str]) -> str:
        self.settings.update(settings)
        self.kafka.update_config(settings)
        self.ours.update_config(LogConfig.parse(self.settings))
        return str(settings)

    def restart(self) -> str:
        """Stop both in good order, hold their files against each other, and start both."""
        self.stop()
        self.has_crashed = False
        self.kafka.reopen(clean=True)
        self.ours = self._open(
            was_clean=True,
            recovery_point=self.ours.recovery_point,
            log_start_offset=self.ours.log_start_offset,
        )
        # Both begin with the high watermark at the log start: the checkpoint of it is not theirs.
        if self.is_replicated:
            self.update_high_watermark(self.state.log_end_offset)
        return ""

    def stop(self) -> None:
        self.kafka.close()
        self.ours.close()
        names = names_in(self.kafka.directory)
        self._compare_names(names_in(self.our_directory), names)
        compare_files(self.our_directory, self.kafka.directory, self.clock.now_ms())

    def crash(self, recovery_point: int, tail: bytes, lost: Sequence[str]) -> str:
        """End both as `kill -9` does, damage their files in the same way, and start both."""
        log_start_offset = self.state.log_start_offset
        self.has_crashed = True
        self.has_lost_indexes |= any(name.endswith("index") for name in lost)
        self.kafka.crash()
        for directory in (self.kafka.directory, self.our_directory):
            with (directory / max(names_in(directory, ".log"))).open("ab") as segment:
                segment.write(tail)
            for name in lost:
                (directory / name).unlink(missing_ok=True)
        self.kafka.reopen(
            clean=False, recovery_point=recovery_point, log_start_offset=log_start_offset
        )
        self.ours = self._open(
            was_clean=False, recovery_point=recovery_point, log_start_offset=log_start_offset
        )
        # Kafka: it takes all transactions for replicated that have ended. We wait until they are.
        self.update_high_watermark(self.state.log_end_offset)
        return f"from {recovery_point}, {len(tail)} bytes of garbage, without {list(lost)}"

    # Comparisons

    def compare(self) -> None:
        """Hold everything that can be seen of the two against each other."""
        self.ours.delete_due_files()
        theirs = describe_kafka(self.state)
        for name, ours in describe_ours(self.ours).items():
            assert ours == theirs[name], f"{name}: {ours} is not {theirs[name]}"
        self._compare_names(names_in(self.our_directory), self.state.files)
        self._compare_limit(self.ours.high_watermark, self.state.high_watermark)
        self._compare_limit(self.ours.last_stable_offset, self.state.last_stable_offset)
        compare_producers(self.ours, self.state, has_crashed=self.has_crashed)

    def _compare_names(self, ours: Iterable[str], theirs: Iterable[str]) -> None:
        """Compare the names of files, without what need not be there at the same time.

        Indexes are created when they are first looked at. A snapshot at or below the log start is
        of no use to anybody: both delete it when they load the log, but need not have written it.
        """

        def compared(names: Iterable[str]) -> set[str]:
            return {
                name
                for name in names
                if not name.endswith(LAZY)
                and not (
                    name.endswith(".snapshot") and int(name[:20]) <= self.ours.log_start_offset
                )
            }

        assert compared(theirs) - compared(ours) == set()
        # Kafka: when it rebuilds an index, it drops the snapshots of all later segments.
        allowed = ".snapshot" if self.has_lost_indexes else ()
        extra = compared(ours) - compared(theirs)
        assert {name for name in extra if not name.endswith(allowed)} == set()

    def _compare_limit(self, ours: int, theirs: int) -> None:
        # Kafka: if there is no batch that begins at a high watermark or last stable offset, as at a
        # log start that cuts a batch in two, a read moves it to the batch there or the next one.
        assert ours == theirs or self._batch_at(ours) == self._batch_at(theirs), (ours, theirs)

    def _batch_at(self, offset: int) -> int:
        """Give the base offset of the first batch that reaches an offset, else the log end."""
        return next(
            (
                stored.header.base_offset
                for segment in self.ours.segments
                for stored in segment.iter_headers()
                if stored.header.last_offset >= offset
            ),
            self.ours.log_end_offset,
        )

    def compare_reads(self, rng: random.Random) -> str:
        """Read from a random offset as all kinds of readers do."""
        start, end = self.state.log_start_offset, self.state.log_end_offset
        offset = rng.randint(max(start - 1, 0), end + 1)
        max_bytes = rng.choice([EVERYTHING, 1, rng.randint(1, 1500)])
        for isolation, theirs_isolation in ISOLATIONS.items():
            self._compare_read(offset, max_bytes, isolation, theirs_isolation)
        upper = rng.randint(start, end)
        lower = rng.randint(start, upper)
        assert [tuple(txn) for txn in self.ours.collect_aborted(lower, upper)] == [
            (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
            for t in self.kafka.aborted_transactions(lower, upper)
            # Kafka: it takes those along that ended before, if their marker is in the segment.
            if t.last_offset >= lower
        ]
        return f"{offset}, {max_bytes} bytes; aborted in {lower}..{upper}"

    def _compare_read(
        self, offset: int, max_bytes: int, isolation: Isolation, kafka_isolation: KafkaIsolation
    ) -> None:
        ours = self._try(lambda: self.ours.read(offset, max_bytes, isolation))
        try:
            theirs = self.kafka.read(offset, max_bytes=max_bytes, isolation=kafka_isolation)
        except KafkaRefusedError as error:
            expect_refusal(ours, parse_refusal(error))
            return
        assert not isinstance(ours, Refused), ours
        # Kafka: it cuts its answer anywhere, and the client drops the half batch. We cut between.
        found = b"" if ours.slice is None else ours.slice.read()
        assert theirs.records.startswith(found), (isolation, len(found), len(theirs.records))
        assert not _has_whole_batch(theirs.records[len(found) :]), isolation
        if isolation is Isolation.COMMITTED and found:
            assert theirs.aborted_transactions is not None
            # Both may name transactions beyond what they return, depending on their guess of where
            # that ends. The ones that a reader of these batches needs must be the same.
            end = [batch.header.next_offset for _, batch in iter_batches(found)][-1]
            assert [
                (t.producer_id, t.first_offset) for t in ours.aborted if t.first_offset < end
            ] == [aborted for aborted in theirs.aborted_transactions if aborted[1] < end]

    def compare_lookups(self, rng: random.Random) -> str:
        """Look up random times, and the newest."""
        records = [
            (record.timestamp_ms, record.offset)
            for segment in self.ours.segments
            for _, batch in segment.iter_batches()
            for record in batch.iter_records()
            if record.offset >= self.ours.log_start_offset
        ]
        known = [timestamp_ms for timestamp_ms, _ in records if timestamp_ms >= 0]
        targets = [rng.choice(known) + rng.choice([-1, 0, 0, 1]) for _ in range(3) if known]
        for target_ms in (max(target_ms, 0) for target_ms in targets):
            ours = self.ours.find_offset_by_timestamp(target_ms)
            theirs = self.kafka.lookup(target_ms)
            truth = next((found for found in records if found[0] >= target_ms), None)
            assert ours == truth, target_ms
            # Kafka: it looks into one segment only, the first that may hold an answer, and gives up
            # if that is below the log start or has no timestamps at all. We go on.
            if theirs is not None:
                assert (theirs.timestamp_ms, theirs.offset) == truth, target_ms
                epoch = self.ours.leader_epochs.find_epoch_at(theirs.offset)
                assert theirs.leader_epoch == epoch
            elif truth is not None:
                assert len(self.ours.segments) > 1, target_ms
        newest = self.kafka.lookup(-3)
        found = self.ours.find_max_timestamp()
        # Kafka: it does not mind the log start here, and counts -1 as a time. It gives up if the
        # newest time is that of a batch which was emptied.
        if newest is not None and newest.timestamp_ms < 0:
            assert found is None
        elif newest is not None and newest.offset >= self.ours.log_start_offset:
            assert found == (newest.timestamp_ms, newest.offset)
        for epoch in range(-1, self.ours.latest_epoch + 2):
            end = self.ours.leader_epochs.end_offset_for(epoch, self.ours.log_end_offset)
            theirs_end = self.kafka.end_offset_for_epoch(epoch)
            assert theirs_end == (None if end == UNDEFINED_END else tuple(end)), epoch
        return str(targets)

    # The rest

    def _open(self, *, was_clean: bool, recovery_point: int, log_start_offset: int) -> PartitionLog:
        return PartitionLog(
            FileSystem(),
            self.clock,
            LoadRequest(
                partition=TopicPartition("t", 0),
                directory=self.our_directory,
                config=LogConfig.parse(self.settings),
                now_ms=self.clock.now_ms(),
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                was_clean=was_clean,
                producer_expiration_ms=PRODUCER_EXPIRATION_MS,
            ),
        )

    def _try(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except SiltstoneError as error:
            return Refused(type(error).__name__, str(error))

    def _replicate(self) -> None:
        if self.is_replicated:
            self.ours.update_high_watermark(self.ours.log_end_offset)

    def _remove_expired_producers(self) -> None:
        self.kafka.remove_expired_producers()
        self.ours.remove_expired_producers()

    def _catch_up(self) -> None:
        """Roll if Kafka has.

        Kafka: it rolls before it looks at sequences, so that a batch which it then refuses, or
        which repeats another, can leave a new segment behind. With us it leaves no trace.
        """
        if len(self.state.segments) > len(self.ours.segments):
            self.ours.roll()


def _place(appended: Appended | AppendInfo) -> tuple[int, ...]:
    return (
        appended.first_offset,
        appended.last_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _has_whole_batch(data: bytes) -> bool:
    return len(data) >= 12 and len(data) >= 12 + int.from_bytes(data[8:12], "big")
