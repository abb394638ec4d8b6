"""One partition's log: what may be appended and how it is stored, and how it is read back."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import (
    ChecksumError,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    LogDirOfflineError,
    MalformedDataError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordTooLargeError,
    TruncatedDataError,
    UsageError,
)
from siltstone.log.filesystem import File
from siltstone.log.origin import AppendOrigin
from siltstone.log.partition_log import HIGH_WATERMARK_OFFSET, AppendInfo
from siltstone.log.reading import Isolation
from siltstone.log.time_index import TimestampOffset
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import BatchHeader, TimestampType, iter_batches, read_batch
from siltstone.records.builder import build_batch, build_marker, encode_batch
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.layout import HEADER_SIZE, MAGIC_POSITION
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import EVERYTHING, HastyDisk, MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

COMMITTED = Isolation.COMMITTED
HIGH_WATERMARK = Isolation.HIGH_WATERMARK
LOG_END = Isolation.LOG_END


class TestAppending:
    def test_offsets_follow_on_each_other(self, make_log: MakeLog) -> None:
        log = make_log()

        infos = [log.append("[a=1 b=1]"), log.append("c=1"), log.append("[d=1 e=1 f=1]")]

        assert [(info.first_offset, info.last_offset) for info in infos if info] == [
            (0, 1),
            (2, 2),
            (3, 5),
        ]
        assert log.contents() == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1 5:f=1"
        assert log.real.log_end_offset == 6

    def test_the_answer_says_where_the_batch_went(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1")
        log.real.delete_records(1)

        assert log.append("[d=1@50 e=1@70 f=1@60]") == AppendInfo(
            first_offset=3,
            last_offset=5,
            max_timestamp_ms=70,
            log_append_time_ms=-1,
            log_start_offset=1,
            size_bytes=HEADER_SIZE + 27,
        )

    @pytest.mark.parametrize("codec", Codec)
    def test_only_the_stamp_of_a_batch_is_written_over(
        self, make_log: MakeLog, codec: Codec
    ) -> None:
        log = make_log("x=1 y=1")
        data = log.build("[a=1 b~ =3]", codec=codec)

        log.append_batch(data, leader_epoch=7)

        stored = log.path("0.log").read_bytes()[2 * BATCH_BYTES :]
        assert stored[MAGIC_POSITION:] == data[MAGIC_POSITION:]
        header = read_batch(stored).header
        assert (header.base_offset, header.leader_epoch) == (2, 7)

    def test_a_batch_is_on_file_when_the_call_returns(self, make_log: MakeLog) -> None:
        log = make_log("a=1")

        assert log.path("0.log").stat().st_size == BATCH_BYTES

    def test_any_buffer_will_do(self, make_log: MakeLog) -> None:
        log = make_log()
        data = log.build("a=1")

        log.real.append(bytearray(data))
        log.real.append(memoryview(b"...." + data)[4:])

        assert log.contents() == "0:a=1 1:a=1"

    def test_settings_act_from_the_next_append_on(self, make_log: MakeLog) -> None:
        log = make_log("=1")

        log.configure(cleanup_policy="compact")

        with pytest.raises(InvalidRecordError):
            log.append("=2")


class TestLeaderEpochs:
    def test_a_new_epoch_is_noted_where_it_begins(self, make_log: MakeLog) -> None:
        log = make_log()
        assert log.epochs() == ""

        for epoch in (0, 0, 3, 3):
            log.append_batch(log.build("a=1"), leader_epoch=epoch)

        assert log.epochs() == "0\n2\n0 0\n3 2\n"
        assert [header.leader_epoch for header in log.headers()] == [0, 0, 3, 3]

    def test_the_latest_epoch_goes_on_unless_told_otherwise(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        log.append_batch(log.build("b=1"), leader_epoch=5)

        log.append("c=1")
        log.restart()
        log.append("d=1")

        assert [header.leader_epoch for header in log.headers()] == [0, 5, 5, 5]

    def test_a_refused_batch_leaves_no_epoch(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1")

        data = log.build("b=1", producer_id=1, producer_epoch=0, base_sequence=9)
        with pytest.raises(OutOfOrderSequenceError):
            log.append_batch(data, leader_epoch=4)

        assert log.epochs() == "0\n1\n0 0\n"

    def test_lost_epochs_are_learned_again_from_the_batches(self, make_log: MakeLog) -> None:
        log = make_log()
        for epoch in (0, 2, 2, 5):
            log.append_batch(log.build("a=1"), leader_epoch=epoch)
        log.crash()
        (log.directory / "leader-epoch-checkpoint").write_bytes(b"nonsense")

        log.start()

        assert log.epochs() == "0\n3\n0 0\n2 1\n5 3\n"


class TestTimestamps:
    def test_a_wrong_max_timestamp_is_corrected(self, make_log: MakeLog) -> None:
        log = make_log()
        data = log.build("[a=1@30 b=1@70 c=1@50]", max_timestamp_ms=12345)

        info = log.append_batch(data)

        assert info.max_timestamp_ms == 70
        (batch,) = log.iter_fetched()  # which checks the CRC
        assert batch.header.max_timestamp_ms == 70
        assert batch.header.base_timestamp_ms == 30
        assert [record.timestamp_ms for record in batch.iter_records()] == [30, 70, 50]

    def test_with_log_append_time_the_leaders_clock_counts(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(message_timestamp_type="LogAppendTime")
        clock.advance_ms(5)

        info = log.append("[a=1@30 b=1@70]")

        assert info is not None
        assert info.log_append_time_ms == info.max_timestamp_ms == clock.now_ms()
        (batch,) = log.iter_fetched()
        assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert batch.header.max_timestamp_ms == clock.now_ms()
        assert [record.timestamp_ms for record in batch.iter_records()] == [clock.now_ms()] * 2
        # The producer's times are still there, though nobody reads them.
        assert batch.header.base_timestamp_ms == 30
        assert bytes(batch.data[HEADER_SIZE:]) == log.build("[a=1@30 b=1@70]")[HEADER_SIZE:]

    def test_with_log_append_time_any_timestamp_is_taken(self, make_log: MakeLog) -> None:
        log = make_log(
            message_timestamp_type="LogAppendTime",
            message_timestamp_before_max_ms=0,
            message_timestamp_after_max_ms=0,
        )

        log.append(f"a=1@0 b=1@-1 c=1@{2**62}")

        assert log.contents() == "0:a=1 1:b=1 2:c=1"

    def test_a_marker_gets_log_append_time_as_well(self, make_log: MakeLog) -> None:
        log = make_log(message_timestamp_type="LogAppendTime")
        marker = build_marker(
            ControlType.COMMIT,
            offset=0,
            timestamp_ms=5,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
        )

        log.append_batch(marker, origin=AppendOrigin.COORDINATOR)

        (batch,) = log.iter_fetched()
        assert batch.header.attributes == 0x38
        assert batch.header.max_timestamp_ms == START_MS

    @pytest.mark.parametrize(
        ("timestamp_ms", "is_taken"),
        [
            (START_MS - 1_000, True),
            (START_MS - 1_001, False),
            (START_MS + 2_000, True),
            (START_MS + 2_001, False),
            (-1, True),  # no timestamp at all
            (-2, False),
        ],
    )
    def test_a_record_must_not_be_too_old_or_too_new(
        self, make_log: MakeLog, timestamp_ms: int, is_taken: bool
    ) -> None:
        log = make_log(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=2_000)
        data = log.build(f"[a=1 b=1@{timestamp_ms}]")

        if is_taken:
            log.append_batch(data)
            assert log.contents() == "0:a=1 1:b=1"
            return
        with pytest.raises(InvalidTimestampError) as error:
            log.append_batch(data)
        assert str(error.value) == (
            f"orders-3: record 1 of the batch: timestamp is outside of {START_MS - 1_000} to "
            f"{START_MS + 2_000} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
        )
        assert error.value.record_index == 1
        assert log.contents() == ""

    def test_a_bad_timestamp_outweighs_a_missing_key(self, make_log: MakeLog) -> None:
        log = make_log(cleanup_policy="compact", message_timestamp_after_max_ms=0)

        with pytest.raises(InvalidTimestampError) as error:
            log.append(f"[=1 a=1 b=1@{START_MS + 1}]")

        assert error.value.record_index == 2

    def test_a_producer_that_claims_log_append_time_is_not_believed(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()

        log.append_batch(
            log.build(
                "a=1@30", timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=START_MS
            )
        )

        (batch,) = log.iter_fetched()
        assert batch.header.timestamp_type is TimestampType.CREATE_TIME

    @pytest.mark.parametrize(
        ("topic", "max_timestamp_ms"),
        [("LogAppendTime", START_MS), ("LogAppendTime", -1), ("CreateTime", -1)],
    )
    def test_a_producer_that_claims_log_append_time_is_refused_where_it_would_matter(
        self, make_log: MakeLog, topic: str, max_timestamp_ms: int
    ) -> None:
        log = make_log(message_timestamp_type=topic)
        data = log.build(
            "a=1",
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp_ms=max_timestamp_ms,
        )

        with pytest.raises(InvalidTimestampError) as error:
            log.append_batch(data)

        assert str(error.value) == (
            "orders-3: a producer must not set the timestamp type to LogAppendTime"
        )


class TestRefusedBatches:
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        return make_log("x=1")

    def check(self, log: MadeLog, data: bytes, error: type[Exception], message: str) -> None:
        with pytest.raises(error) as refused:
            log.append_batch(data)
        assert str(refused.value) == message
        assert log.contents() == "0:x=1"
        assert log.real.log_end_offset == 1

    def change(self, data: bytes, **fields: int) -> bytes:
        """Sign a batch anew after its header was changed."""
        return encode_batch(read_batch(data).header._replace(**fields), data[HEADER_SIZE:])

    def test_a_batch_over_max_message_bytes(self, log: MadeLog) -> None:
        log.configure(max_message_bytes=BATCH_BYTES)
        self.check(
            log,
            log.build("a=12"),
            RecordTooLargeError,
            "orders-3: a batch of 71 bytes is over max.message.bytes (70)",
        )
        log.append("b=1")
        assert log.contents() == "0:x=1 1:b=1"  # exactly as large as allowed

    def test_a_base_offset(self, log: MadeLog) -> None:
        self.check(
            log,
            log.build_at(1, "a=1"),
            InvalidRecordError,
            "orders-3: base offset is 1, a producer's must be 0",
        )

    def test_two_batches(self, log: MadeLog) -> None:
        self.check(
            log,
            log.build("a=1") + log.build("b=1"),
            InvalidRecordError,
            "orders-3: more than one batch in a request",
        )

    def test_a_control_batch(self, log: MadeLog) -> None:
        marker = build_marker(
            ControlType.COMMIT,
            offset=0,
            timestamp_ms=0,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        self.check(
            log, marker, InvalidRecordError, "orders-3: clients must not write control batches"
        )

    def test_a_producer_without_a_sequence(self, log: MadeLog) -> None:
        self.check(
            log,
            self.change(log.build("a=1"), producer_id=8, producer_epoch=0),
            InvalidRecordError,
            "orders-3: producer 8 sent no sequence",
        )

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"last_offset_delta": 4}, "header says 2 records in 5 offsets"),
            ({"last_offset_delta": 0}, "header says 2 records in 1 offsets"),
            ({"last_offset_delta": -1}, "header says 2 records in 0 offsets"),
            ({"record_count": 0}, "header says 0 records in 2 offsets"),
            ({"record_count": -1, "last_offset_delta": -2}, "header says -1 records in -1 offsets"),
        ],
    )
    def test_a_count_that_does_not_match_the_offsets(
        self, log: MadeLog, fields: dict[str, int], message: str
    ) -> None:
        self.check(
            log,
            self.change(log.build("[a=1 b=1]"), **fields),
            InvalidRecordError,
            f"orders-3: {message}",
        )

    def test_records_that_do_not_match_the_count(self, log: MadeLog) -> None:
        data = self.change(log.build("[a=1 b=1]"), record_count=3, last_offset_delta=2)

        with pytest.raises(MalformedDataError, match="header says 3 records, found 2"):
            log.append_batch(data)

    def test_records_with_gaps_between_their_offsets(self, log: MadeLog) -> None:
        records = [Record(0, START_MS, b"a", b"1"), Record(2, START_MS, b"b", b"1")]
        data = self.change(build_batch(records), last_offset_delta=1)

        with pytest.raises(MalformedDataError, match="malformed record 1: offset delta"):
            log.append_batch(data)

    def test_a_checksum_that_is_wrong(self, log: MadeLog) -> None:
        data = bytearray(log.build("a=1"))
        data[-2] ^= 1

        with pytest.raises(ChecksumError, match="header says CRC 0x"):
            log.append_batch(bytes(data))

        assert log.contents() == "0:x=1"

    @pytest.mark.parametrize("size", [0, 5, 16, HEADER_SIZE, BATCH_BYTES - 1])
    def test_half_a_batch(self, log: MadeLog, size: int) -> None:
        with pytest.raises(TruncatedDataError):
            log.append_batch(log.build("a=1")[:size])

        assert log.contents() == "0:x=1"

    @pytest.mark.parametrize(
        ("codec", "name"), [(Codec.GZIP, "gzip"), (Codec.SNAPPY, "snappy"), (Codec.ZSTD, "zstd")]
    )
    def test_a_payload_that_cannot_be_decompressed(
        self, log: MadeLog, codec: Codec, name: str
    ) -> None:
        data = self.change(log.build("a=1"), attributes=int(codec))

        with pytest.raises(MalformedDataError, match=f"cannot decompress {name} payload"):
            log.append_batch(data)

    @pytest.mark.parametrize("codec", Codec)
    def test_a_missing_key_in_a_compressed_batch(self, make_log: MakeLog, codec: Codec) -> None:
        log = make_log(cleanup_policy="compact")

        with pytest.raises(InvalidRecordError) as error:
            log.append_batch(log.build("[a=1 b=1 =1 c=1 =2]", codec=codec))

        assert error.value.record_index == 2
        assert log.contents() == ""


class TestCompressionType:
    TEXT = "[a=1@30 b~@70 c=@50 a=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@60]"
    TARGETS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("source", Codec)
    def test_batches_are_stored_with_the_topics_codec(
        self, make_log: MakeLog, source: Codec, target: str
    ) -> None:
        log = make_log("x=1", compression_type=target)
        data = log.build(self.TEXT, codec=source, producer_id=9, producer_epoch=3, base_sequence=5)

        log.append_batch(data, leader_epoch=2)

        _, batch = log.iter_fetched()
        sent = read_batch(data)
        assert batch.header.codec is Codec(self.TARGETS.index(target))
        assert [record._replace(offset=record.offset - 1) for record in batch.iter_records()] == [
            *sent.iter_records()
        ]
        computed = {"length", "crc", "attributes"}
        stamped = {"base_offset": 1, "leader_epoch": 2}
        assert self.others(batch.header, computed) == {
            **self.others(sent.header, computed),
            **stamped,
        }

    def others(self, header: BatchHeader, without: set[str]) -> dict[str, int]:
        return {key: value for key, value in header._asdict().items() if key not in without}

    @pytest.mark.parametrize("codec", Codec)
    def test_the_producers_codec_is_kept_if_it_is_the_topics(
        self, make_log: MakeLog, codec: Codec
    ) -> None:
        log = make_log(compression_type=self.TARGETS[codec])
        data = log.build(self.TEXT, codec=codec)

        log.append_batch(data)

        assert log.path("0.log").read_bytes()[HEADER_SIZE:] == data[HEADER_SIZE:]

    @pytest.mark.parametrize("target", TARGETS)
    def test_log_append_time_survives_recompression(self, make_log: MakeLog, target: str) -> None:
        log = make_log(compression_type=target, message_timestamp_type="LogAppendTime")

        log.append_batch(log.build(self.TEXT, codec=Codec.LZ4))

        (batch,) = log.iter_fetched()
        assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert [record.timestamp_ms for record in batch.iter_records()] == [START_MS] * 4

    def test_a_batch_that_grows_too_large_is_refused(self, make_log: MakeLog) -> None:
        log = make_log(compression_type="uncompressed", max_message_bytes=150)
        data = log.build(f"a={'1' * 500}", codec=Codec.GZIP)
        assert len(data) <= 150

        with pytest.raises(RecordTooLargeError, match=r"is over max\.message\.bytes \(150\)"):
            log.append_batch(data)

    def test_markers_are_not_compressed(self, make_log: MakeLog) -> None:
        log = make_log(compression_type="gzip")
        log.produce("a=1", transactional=True)
        log.commit()

        assert [header.codec for header in log.headers()] == [Codec.GZIP, Codec.NONE]


class TestIdempotentProducers:
    def test_a_repeated_batch_is_answered_but_not_appended(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("x=1")
        first = log.produce("[a=1 b=1]")
        clock.advance_ms(100)

        again = log.produce("[a=1 b=1]", sequence=0)

        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
        assert again.max_timestamp_ms == first.max_timestamp_ms
        assert log.contents() == "0:x=1 1:a=1 2:b=1"

    def test_the_last_five_batches_are_known(self, make_log: MakeLog) -> None:
        log = make_log()
        for value in range(6):
            log.produce(f"a={value}")

        for sequence in range(1, 6):
            assert log.produce("a=again", sequence=sequence).first_offset == sequence
        with pytest.raises(OutOfOrderSequenceError):
            log.produce("a=again", sequence=0)
        assert log.real.log_end_offset == 6

    def test_the_last_batch_is_known_after_a_restart(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("[a=1 b=1]")
        log.produce("c=1")

        log.restart()

        assert log.produce("c=1", sequence=2).first_offset == 2
        assert log.produce("d=1", sequence=3).first_offset == 3

    def test_all_of_them_are_known_after_a_crash_that_had_no_snapshot(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()
        for value in range(6):
            log.produce(f"a={value}")

        log.recover()

        assert log.produce("a=again", sequence=1).first_offset == 1

    def test_a_gap_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1")

        with pytest.raises(OutOfOrderSequenceError) as error:
            log.produce("b=1", sequence=2)

        assert str(error.value) == ("orders-3: producer 1 with epoch 0 sent sequence 2, expected 1")
        assert log.contents() == "0:a=1"

    def test_a_fenced_producer_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", epoch=1)

        with pytest.raises(InvalidProducerEpochError) as error:
            log.produce("b=1", epoch=0)

        assert str(error.value) == (
            "orders-3: batch of producer 1 has epoch 0, older than epoch 1 seen before"
        )

    def test_a_silent_producer_is_forgotten(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = make_log()
        log.produce("a=1")

        clock.advance_ms(DAY_MS - 1)
        assert log.real.remove_expired_producers() == 0
        clock.advance_ms(1)
        assert log.real.remove_expired_producers() == 1

        log.produce("b=1", sequence=7)  # from anywhere
        assert log.contents() == "0:a=1 1:b=1"


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_oldest_one(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        assert log.real.last_stable_offset == 1

        log.commit(producer=2)
        assert log.real.last_stable_offset == 1
        log.abort(producer=1)
        assert log.real.last_stable_offset == 5

    def test_a_marker_must_be_replicated_before_it_counts(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.is_replicated = False
        log.produce("a=1", transactional=True)
        log.commit()

        for high_watermark, last_stable_offset in [(1, 1), (2, 1), (3, 3)]:
            log.real.update_high_watermark(high_watermark)
            assert log.real.last_stable_offset == last_stable_offset

    def test_a_plain_batch_in_a_transaction_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)

        with pytest.raises(InvalidTxnStateError):
            log.produce("b=1")

    def test_a_marker_of_a_replaced_coordinator_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        markers = [
            build_marker(
                ControlType.COMMIT,
                offset=0,
                timestamp_ms=START_MS,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=epoch,
            )
            for epoch in (5, 4)
        ]

        log.append_batch(markers[0], origin=AppendOrigin.COORDINATOR)
        with pytest.raises(CoordinatorFencedError):
            log.append_batch(markers[1], origin=AppendOrigin.COORDINATOR)

    def test_a_reader_of_committed_records_is_told_what_was_aborted(
        self, make_log: MakeLog
    ) -> None:
        log = make_log("x=1")
        log.produce("a=1", producer=1, transactional=True)
        log.produce("b=1", producer=2, transactional=True)
        log.abort(producer=1)
        log.append("y=1")
        log.commit(producer=2)
        log.produce("c=1", producer=1, transactional=True)  # still open
        aborted = AbortedTxn(producer_id=1, first_offset=1, last_offset=3, last_stable_offset=2)

        result = log.real.read(0, EVERYTHING, COMMITTED)

        assert result.aborted == (aborted,)
        assert result.last_stable_offset == 6
        assert [batch.header.base_offset for batch in result.batches()] == [0, 1, 2, 3, 4, 5]
        assert log.real.read(0, EVERYTHING, HIGH_WATERMARK).aborted == ()

    def test_what_was_aborted_before_a_read_is_left_out(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("x=1")
        log.produce("b=1", transactional=True)
        log.abort()

        aborted = {
            offset: log.real.read(offset, EVERYTHING, COMMITTED).aborted for offset in (1, 2)
        }

        assert [txn.first_offset for txn in aborted[1]] == [0, 3]  # 1 is the marker of the first
        assert [txn.first_offset for txn in aborted[2]] == [3]

    def test_an_abort_in_a_later_segment_is_found(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.append("| x=1 | y=1 |")
        log.abort()

        result = log.real.read(0, EVERYTHING, COMMITTED)

        assert [batch.header.base_offset for batch in result.batches()] == [0]
        assert result.aborted == (AbortedTxn(1, 0, 3, 4),)

    @pytest.mark.parametrize("interval_bytes", [0, 4096])
    def test_a_small_read_is_told_of_every_abort_in_its_bytes(
        self, make_log: MakeLog, interval_bytes: int
    ) -> None:
        log = make_log(index_interval_bytes=interval_bytes)
        for _ in range(5):
            log.produce("a=1", transactional=True)
            log.abort()
        log.append("x=1")

        for offset in range(0, 10, 2):
            result = log.real.read(offset, 1, COMMITTED)

            (batch,) = result.batches()
            assert batch.header.base_offset == offset
            assert (offset, offset + 1) in [(t.first_offset, t.last_offset) for t in result.aborted]


class TestReading:
    def test_as_many_whole_batches_as_fit(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1 d=1")

        sizes = {
            max_bytes: len(list(log.real.read(0, max_bytes).batches()))
            for max_bytes in (139, 140, 141, 209, 210, 280, 1000)
        }

        assert sizes == {139: 1, 140: 2, 141: 2, 209: 2, 210: 3, 280: 4, 1000: 4}

    def test_one_batch_at_least(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")

        for max_bytes in (0, 1, 69):
            (batch,) = log.real.read(1, max_bytes).batches()
            assert batch.header.base_offset == 1

    def test_none_if_one_would_be_too_many(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")

        assert log.real.read(0, 69, min_one_batch=False).slice is None
        assert len(list(log.real.read(0, 70, min_one_batch=False).batches())) == 1

    def test_the_whole_batch_that_holds_the_offset(self, make_log: MakeLog) -> None:
        log = make_log("[a=1 b=1 c=1] [d=1 e=1 f=1]")

        starts = [next(log.real.read(o, 1).batches()).header.base_offset for o in range(6)]

        assert starts == [0, 0, 0, 3, 3, 3]

    def test_the_next_batch_where_there_is_a_gap(self, make_log: MakeLog) -> None:
        log = make_log()
        log.follow(log.build_at(2, "a=1"), log.build_at(5, "b=1"))
        log.append("|")
        log.follow(log.build_at(20, "c=1"))

        found = {
            offset: next(log.real.read(offset, 1).batches()).header.base_offset
            for offset in (0, 2, 3, 5, 6, 19, 20)
        }

        assert found == {0: 2, 2: 2, 3: 5, 5: 5, 6: 20, 19: 20, 20: 20}

    def test_one_segment_at_a_time(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1 | d=1")

        assert len(list(log.real.read(0, EVERYTHING).batches())) == 2
        assert len(list(log.real.read(2, EVERYTHING).batches())) == 1

    def test_nothing_at_the_end(self, make_log: MakeLog) -> None:
        log = make_log("a=1 |")

        result = log.real.read(1, EVERYTHING)

        assert result.slice is None
        assert list(result.batches()) == []
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
            1,
            1,
            0,
        )

    @pytest.mark.parametrize("offset", [-1, 1, 5, 100])
    def test_an_offset_outside_of_the_log_is_refused(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("a=1 b=1 c=1 d=1")
        log.real.delete_records(2)

        with pytest.raises(OffsetOutOfRangeError) as error:
            log.real.read(offset, EVERYTHING)

        assert str(error.value) == f"offset {offset} of orders-3 is outside of the log (2 to 4)"

    def test_each_isolation_has_its_own_end(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        log.produce("b=1", transactional=True)
        log.append("c=1")
        log.is_replicated = False
        log.append("d=1")

        ends = {
            isolation: [b.header.base_offset for b in log.iter_fetched(isolation)]
            for isolation in Isolation
        }

        assert ends == {COMMITTED: [0], HIGH_WATERMARK: [0, 1, 2], LOG_END: [0, 1, 2, 3]}

    def test_an_end_in_the_middle_of_a_fetch_cuts_it(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")
        log.is_replicated = False
        log.append("c=1 | d=1")

        assert len(list(log.real.read(0, EVERYTHING).batches())) == 2
        assert list(log.real.read(2, EVERYTHING).batches()) == []
        assert len(list(log.real.read(0, EVERYTHING, LOG_END).batches())) == 3

    def test_a_reader_can_finish_what_it_has_begun(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1 | b=1", file_delete_delay_ms=0)
        result = log.real.read(0, EVERYTHING)

        log.real.delete_records(1)
        log.real.delete_old_segments()
        log.real.delete_due_files()

        assert "0.log" not in log.names()
        assert [batch.header.base_offset for batch in result.batches()] == [0]

    def test_damage_is_reported_with_its_place(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1")
        with log.path("0.log").open("r+b") as file:
            file.seek(2 * BATCH_BYTES - 1)
            file.write(b"\xee")

        with pytest.raises(
            Exception, match=r"orders-3/0{20}\.log is corrupt at position 70: header says CRC 0x"
        ):
            list(log.real.read(0, EVERYTHING).batches())


class TestFindingTimestamps:
    def test_the_first_record_at_or_after_a_time(self, make_log: MakeLog) -> None:
        log = make_log("[a=1@10 b=1@30] c=1@20 | d=1@50 [e=1@40 f=1@60]")

        found = {
            time: log.real.find_offset_by_timestamp(time) for time in (0, 10, 11, 31, 50, 51, 61)
        }

        assert found == {
            0: TimestampOffset(10, 0),
            10: TimestampOffset(10, 0),
            11: TimestampOffset(30, 1),
            31: TimestampOffset(50, 3),
            50: TimestampOffset(50, 3),
            51: TimestampOffset(60, 5),
            61: None,
        }

    def test_nothing_below_the_log_start(self, make_log: MakeLog) -> None:
        log = make_log("[a=1@10 b=1@20 c=1@30] d=1@40")
        log.real.delete_records(2)

        assert log.real.find_offset_by_timestamp(0) == TimestampOffset(30, 2)

    def test_records_without_timestamps_are_never_found(self, make_log: MakeLog) -> None:
        log = make_log("a=1@-1 b=1@-1")

        assert log.real.find_offset_by_timestamp(0) is None
        assert log.real.find_max_timestamp() is None

    def test_the_newest_of_all(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10 | [b=1@20 c=1@50 d=1@50] e=1@50 | f=1@30")

        assert log.real.find_max_timestamp() == TimestampOffset(50, 2)

    def test_the_epoch_itself_is_a_time(self, make_log: MakeLog) -> None:
        log = make_log("a=1@0 | b=1@-1")

        log.restart()

        assert log.real.find_offset_by_timestamp(0) == TimestampOffset(0, 0)
        assert log.real.find_max_timestamp() == TimestampOffset(0, 0)


class TestIdleRolling:
    def test_a_timer_rolls_a_segment_that_gets_nothing_any_more(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", segment_ms=HOUR_MS)
        log.real.maybe_roll_idle()

        clock.advance_ms(HOUR_MS)
        assert not log.real.maybe_roll_idle()
        clock.advance_ms(1)
        assert log.real.maybe_roll_idle()

        assert log.base_offsets() == [0, 1]
        assert log.real.recovery_point == 1

    def test_an_empty_segment_is_not_rolled(self, make_log: MakeLog, clock: ManualClock) -> None:
        log = make_log(segment_ms=HOUR_MS)

        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_roll_idle()
        assert not log.real.maybe_roll_idle()

    def test_records_without_timestamps_count_from_the_segments_beginning(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1@-1", segment_ms=HOUR_MS)
        log.real.maybe_roll_idle()

        clock.advance_ms(HOUR_MS + 1)

        assert log.real.maybe_roll_idle()

    @pytest.mark.parametrize(
        ("policy", "is_rolled"), [("compact", True), ("compact,delete", True), ("delete", False)]
    )
    def test_a_compacted_log_rolls_in_time_to_be_cleaned(
        self, make_log: MakeLog, clock: ManualClock, policy: str, is_rolled: bool
    ) -> None:
        log = make_log("a=1", cleanup_policy=policy, max_compaction_lag_ms=1_000)
        log.real.maybe_roll_idle()

        clock.advance_ms(1_001)

        assert log.real.maybe_roll_idle() is is_rolled

    def test_a_log_that_is_filled_with_old_records_is_left_alone(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(segment_ms=HOUR_MS)
        old_ms = clock.now_ms() - DAY_MS

        for _ in range(3):
            log.append(f"a=1@{old_ms}")
            log.real.maybe_roll_idle()
        assert log.base_offsets() == [0]

        assert log.real.maybe_roll_idle()  # now nothing has come since the last time

    def test_a_log_that_is_open_for_reading_only_is_left_alone(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", segment_ms=HOUR_MS)
        log.stop()
        log.start(writable=False)
        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_roll_idle()
        assert not log.real.maybe_roll_idle()


class TestTruncating:
    def test_everything_from_an_offset_on_goes(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1 d=1 | e=1")

        assert log.real.truncate_to(3)

        assert log.contents() == "0:a=1 1:b=1 | 2:c=1"
        assert log.real.log_end_offset == log.real.high_watermark == 3
        assert log.real.recovery_point == 3
        log.append("f=1")
        assert log.contents() == "0:a=1 1:b=1 | 2:c=1 3:f=1"
        log.restart()
        assert log.contents() == "0:a=1 1:b=1 | 2:c=1 3:f=1"

    def test_a_batch_goes_whole(self, make_log: MakeLog) -> None:
        log = make_log("a=1 [b=1 c=1 d=1]")

        log.real.truncate_to(3)

        assert log.contents() == "0:a=1"
        assert log.real.log_end_offset == 3  # the leader will say what belongs there
        log.append("e=1")
        assert log.readable() == "0:a=1 3:e=1"

    def test_a_segment_that_begins_at_the_offset_stays_empty(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1")

        log.real.truncate_to(1)

        assert log.base_offsets() == [0, 1]
        log.append("d=1")
        assert log.contents() == "0:a=1 | 1:d=1"

    @pytest.mark.parametrize("offset", [2, 3, 100])
    def test_nothing_happens_at_or_after_the_end(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("a=1 b=1")

        assert not log.real.truncate_to(offset)

        assert log.real.log_end_offset == 2

    def test_a_negative_offset_is_refused(self, make_log: MakeLog) -> None:
        with pytest.raises(UsageError) as error:
            make_log("a=1").real.truncate_to(-1)

        assert str(error.value) == "orders-3: cannot truncate to offset -1"

    def test_below_the_first_segment_the_log_begins_anew(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 | c=1")
        log.real.delete_records(2)
        log.real.delete_old_segments()

        log.real.truncate_to(1)

        assert log.base_offsets() == [1]
        assert log.real.log_start_offset == log.real.log_end_offset == 1

    def test_the_log_start_follows_down(self, make_log: MakeLog) -> None:
        log = make_log("a=1 b=1 c=1 d=1")
        log.real.delete_records(3)

        log.real.truncate_to(1)

        assert (log.real.log_start_offset, log.real.log_end_offset) == (1, 1)

    def test_epochs_that_wrote_nothing_before_the_offset_are_forgotten(
        self, make_log: MakeLog
    ) -> None:
        log = make_log()
        for epoch in (0, 1, 1, 2):
            log.append_batch(log.build("a=1"), leader_epoch=epoch)

        log.real.truncate_to(3)
        assert log.epochs() == "0\n2\n0 0\n1 1\n"
        log.real.truncate_to(1)
        assert log.epochs() == "0\n1\n0 0\n"

    def test_producers_are_as_they_were_then(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", producer=1)
        log.produce("b=1", producer=2)
        log.append("|")
        log.produce("c=1", producer=1)
        log.produce("d=1", producer=3)
        assert log.snapshots() == [2]

        log.real.truncate_to(2)

        entries = log.real.producer_state.entries
        assert {key: entry.last_sequence for key, entry in entries.items()} == {1: 0, 2: 0}
        log.produce("e=1", producer=1, sequence=1)
        assert log.contents() == "0:a=1 1:b=1 | 2:e=1"

    def test_producers_are_as_they_were_in_the_middle_of_a_segment(self, make_log: MakeLog) -> None:
        log = make_log()
        for _ in range(4):
            log.produce("a=1")

        log.real.truncate_to(2)

        assert log.real.producer_state.entries[1].last_sequence == 1
        assert log.produce("a=1", sequence=2).first_offset == 2

    def test_snapshots_after_the_offset_are_gone(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1 | c=1 | d=1")
        assert log.snapshots() == [1, 2, 3]

        log.real.truncate_to(2)

        assert log.snapshots() == [1, 2]

    def test_a_transaction_whose_marker_is_gone_is_open_again(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("y=1")
        assert log.real.last_stable_offset == 4

        log.real.truncate_to(2)
        assert log.real.last_stable_offset == 1
        assert log.real.collect_aborted(0, 100) == []

        log.append("z=1")
        log.abort()
        assert log.real.last_stable_offset == 4
        assert log.real.collect_aborted(0, 100) == [AbortedTxn(1, 1, 3, 4)]

    def test_a_transaction_that_is_gone_holds_nobody_back(self, make_log: MakeLog) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)

        log.real.truncate_to(1)
        log.append("y=1 z=1")

        assert log.real.last_stable_offset == 3

    def test_timestamps_are_as_they_were_then(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10 b=1@50 c=1@20 d=1@90", index_interval_bytes=0)

        log.real.truncate_to(3)

        assert log.real.find_max_timestamp() == TimestampOffset(50, 1)
        assert log.real.find_offset_by_timestamp(51) is None

    def test_a_segment_that_is_emptied_begins_now(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1@-1", segment_ms=HOUR_MS)
        clock.advance_ms(HOUR_MS)
        log.real.truncate_to(0)

        clock.advance_ms(HOUR_MS)
        log.append("b=1@-1 c=1@-1")

        assert log.base_offsets() == [0]

    @pytest.mark.parametrize("offset", [0, 2, 3, 500])
    def test_a_log_can_start_anew_anywhere(self, make_log: MakeLog, offset: int) -> None:
        log = make_log("x=1")
        log.produce("a=1", transactional=True)
        log.append("| b=1")

        log.real.truncate_fully_and_start_at(offset)

        assert log.base_offsets() == [offset]
        assert log.real.log_start_offset == log.real.log_end_offset == offset
        assert log.real.high_watermark == log.real.last_stable_offset == offset
        assert log.real.recovery_point <= offset
        assert dict(log.real.producer_state.entries) == {}
        assert log.epochs() == "0\n0\n"
        assert log.snapshots() == []
        log.append("c=1")
        log.restart()
        assert log.contents() == f"{offset}:c=1"

    def test_a_log_that_starts_anew_makes_its_new_records_durable(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1 b=1 c=1", fs=disk)
        log.real.flush()

        log.real.truncate_fully_and_start_at(1)
        log.append("d=1")
        disk.flushed.clear()
        log.real.flush()

        assert "00000000000000000001.log" in disk.flushed
        assert log.real.recovery_point == 2


class CountingDisk(HastyDisk):
    """Notes what was flushed."""

    def __init__(self) -> None:
        self.flushed: list[str] = []

    def fsync(self, file: File) -> None:
        self.flushed.append(file.path.name)

    def fsync_dir(self, path: Path) -> None:
        self.flushed.append(path.name)


class TestFlushing:
    def test_every_file_and_the_directory_are_flushed(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log(fs=disk, index_interval_bytes=0)
        log.produce("a=1", transactional=True)
        log.abort()
        log.append("b=1")
        disk.flushed.clear()

        log.real.flush()

        assert sorted(disk.flushed) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000000.txnindex",
            "orders-3",
        ]
        assert log.real.recovery_point == 3

    def test_what_is_durable_is_not_flushed_again(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1 | b=1 | c=1", fs=disk)
        disk.flushed.clear()

        log.real.flush()
        assert [name for name in disk.flushed if name.endswith(".log")] == [
            "00000000000000000002.log"
        ]
        disk.flushed.clear()
        log.real.flush()
        assert disk.flushed == []

    def test_so_many_records_are_flushed(self, make_log: MakeLog) -> None:
        log = make_log(flush_messages=3)
        points = []

        for text in ("a=1", "b=1", "c=1", "d=1", "[e=1 f=1]", "[g=1 h=1 i=1 j=1]"):
            log.append(text)
            points.append(log.real.recovery_point)

        assert points == [0, 0, 3, 3, 6, 10]

    def test_records_wait_so_long_for_their_flush(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log("a=1", flush_ms=1_000)

        clock.advance_ms(999)
        assert not log.real.maybe_flush()
        clock.advance_ms(1)
        assert log.real.maybe_flush()
        assert log.real.recovery_point == 1
        assert not log.real.maybe_flush()

    def test_nothing_is_flushed_when_there_is_nothing_new(
        self, make_log: MakeLog, clock: ManualClock
    ) -> None:
        log = make_log(flush_ms=0)

        clock.advance_ms(DAY_MS)

        assert not log.real.maybe_flush()

    def test_closing_flushes(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log("a=1", fs=disk)
        disk.flushed.clear()

        log.real.close()

        assert log.real.recovery_point == 1
        assert {
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000001.snapshot",
            "orders-3",
        } <= set(disk.flushed)

    def test_a_new_epoch_is_durable_before_its_batch_is_written(self, make_log: MakeLog) -> None:
        disk = CountingDisk()
        log = make_log(fs=disk)
        disk.flushed.clear()

        log.append_batch(log.build("a=1"), leader_epoch=3)

        assert disk.flushed == ["leader-epoch-checkpoint.tmp", "orders-3"]


class TestDeletingRecords:
    @pytest.fixture
    def log(self, make_log: MakeLog) -> MadeLog:
        log = make_log("a=1 b=1 [c=1 d=1 e=1]")
        log.is_replicated = False
        log.append("f=1")
        return log

    def test_what_lies_below_cannot_be_read_any_more(self, log: MadeLog) -> None:
        assert log.real.delete_records(3) == 3

        with pytest.raises(OffsetOutOfRangeError):
            log.real.read(2, EVERYTHING)
        assert log.readable() == "2:c=1 3:d=1 4:e=1"  # whole batches, the reader skips
        assert log.contents() == "0:a=1 1:b=1 2:c=1 3:d=1 4:e=1 5:f=1"  # until retention runs

    def test_minus_one_means_all_that_is_replicated(self, log: MadeLog) -> None:
        assert log.real.delete_records(HIGH_WATERMARK_OFFSET) == 5

    def test_the_log_start_never_falls(self, log: MadeLog) -> None:
        log.real.delete_records(3)

        assert log.real.delete_records(1) == 3
        assert log.real.delete_records(0) == 3

    @pytest.mark.parametrize("offset", [-2, 6, 7])
    def test_an_offset_that_is_not_replicated_is_refused(self, log: MadeLog, offset: int) -> None:
        with pytest.raises(OffsetOutOfRangeError) as error:
            log.real.delete_records(offset)

        assert str(error.value) == f"offset {offset} of orders-3 is outside of the log (0 to 5)"

    @pytest.mark.parametrize("policy", ["delete", "compact,delete", ""])
    def test_it_is_allowed_unless_a_topic_is_compacted_only(
        self, log: MadeLog, policy: str
    ) -> None:
        log.configure(cleanup_policy=policy)

        assert log.real.delete_records(2) == 2

    def test_a_compacted_topic_refuses(self, log: MadeLog) -> None:
        log.configure(cleanup_policy="compact")

        with pytest.raises(PolicyViolationError) as error:
            log.real.delete_records(2)

        assert str(error.value) == (
            "orders-3: records of a compacted topic are deleted by tombstones; "
            "cleanup.policy must include delete"
        )
        assert log.real.log_start_offset == 0

    def test_the_new_start_counts_as_durable(self, log: MadeLog) -> None:
        log.real.delete_records(3)

        assert log.real.recovery_point == 3

    def test_the_last_stable_offset_is_not_below_the_log_start(self, make_log: MakeLog) -> None:
        log = make_log()
        log.produce("a=1", transactional=True)
        log.append("b=1 c=1")

        log.real.delete_records(2)

        assert log.real.last_stable_offset == 2


class TestFollowing:
    def test_batches_are_stored_byte_for_byte(self, make_log: MakeLog) -> None:
        log = make_log()
        data = [
            log.build_at(3, "a=1@30", leader_epoch=4, codec=Codec.ZSTD),
            log.build_at(7, "=1@20 b~@10", leader_epoch=6),
        ]

        info = log.follow(*data)

        assert info is not None
        assert (info.first_offset, info.last_offset, info.max_timestamp_ms) == (3, 8, 30)
        assert log.path("0.log").read_bytes() == b"".join(data)
        assert log.epochs() == "0\n2\n4 3\n6 7\n"

    def test_a_compacted_leaders_gaps_and_empty_batches_are_kept(self, make_log: MakeLog) -> None:
        log = make_log(cleanup_policy="compact")
        header = read_batch(log.build_at(5, "a=1", last_offset_delta=4)).header
        empty = encode_batch(header._replace(record_count=0), b"")

        log.follow(log.build_at(2, "a=1"), empty)

        assert log.contents() == "2:a=1 5..9:empty"
        assert log.real.log_end_offset == 10

    def test_what_was_cut_off_at_the_end_is_left_out(self, make_log: MakeLog) -> None:
        log = make_log()
        data = log.build_at(0, "a=1") + log.build_at(1, "b=1")

        for size in range(BATCH_BYTES, 2 * BATCH_BYTES):
            log.real.truncate_fully_and_start_at(0)
            log.follow(data[:size])
            assert log.contents() == "0:a=1"

    @pytest.mark.parametrize("size", [0, 10, HEADER_SIZE, BATCH_BYTES - 1])
    def test_less_than_a_batch_is_nothing(self, make_log: MakeLog, size: int) -> None:
        log = make_log()

        assert log.follow(log.build_at(0, "a=1")[:size]) is None

    @pytest.mark.parametrize("offsets", [(0,), (1,), (2, 2), (5, 4)])
    def test_an_offset_that_does_not_rise_is_refused(
        self, make_log: MakeLog, offsets: Sequence[int]
    ) -> None:
        log = make_log("a=1 b=1")

        with pytest.raises(OffsetOrderError):
            log.follow(*(log.build_at(offset, "c=1") for offset in offsets))

        assert log.contents() == "0:a=1 1:b=1"

    def test_a_damaged_batch_is_refused_with_all_that_came_along(self, make_log: MakeLog) -> None:
        log = make_log()
        data = bytearray(log.build_at(0, "a=1") + log.build_at(1, "b=1"))
        data[-2] ^= 1

        with pytest.raises(ChecksumError):
            log.follow(bytes(data))

        assert log.contents() == ""

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"last_offset_delta": -1}, "last offset delta is -1"),
            ({"record_count": 2}, "header says 2 records in 1 offsets"),
            ({"record_count": -1}, "header says -1 records in 1 offsets"),
        ],
    )
    def test_a_header_that_recovery_would_cut_off_is_refused(
        self, make_log: MakeLog, fields: dict[str, int], message: str
    ) -> None:
        log = make_log("x=1")
        data = log.build_at(3, "a=1")
        damaged = encode_batch(read_batch(data).header._replace(**fields), data[HEADER_SIZE:])

        with pytest.raises(MalformedDataError, match=message):
            log.follow(damaged)

        assert log.contents() == "0:x=1"

    def test_producers_and_transactions_are_followed_too(self, make_log: MakeLog) -> None:
        leader = make_log("x=1")
        leader.produce("a=1", producer=1, transactional=True)
        leader.produce("b=1", producer=2, transactional=True)
        leader.abort(producer=1)
        leader.produce("c=1", producer=3)
        follower = make_log()

        follower.follow(leader.path("0.log").read_bytes())

        assert follower.contents() == leader.contents()
        assert follower.real.last_stable_offset == leader.real.last_stable_offset == 2
        assert follower.real.producer_state.entries == leader.real.producer_state.entries
        assert follower.real.collect_aborted(0, 9) == [AbortedTxn(1, 1, 3, 2)]

    def test_a_whole_transaction_in_one_fetch_is_followed(self, make_log: MakeLog) -> None:
        leader = make_log()
        leader.produce("a=1", transactional=True)
        leader.abort()
        leader.append("b=1")
        follower = make_log()

        follower.follow(leader.path("0.log").read_bytes())
        follower.recover()

        assert follower.real.last_stable_offset == 3
        assert follower.real.collect_aborted(0, 9) == [AbortedTxn(1, 0, 1, 2)]

    def test_a_fetch_may_hold_any_number_of_batches(self, make_log: MakeLog) -> None:
        log = make_log()
        batches = [log.build_at(offset, "a=1") for offset in range(1_500)]

        log.follow(*batches)

        assert log.path("0.log").read_bytes() == b"".join(batches)

    def test_each_batch_of_a_fetch_is_indexed(self, make_log: MakeLog) -> None:
        log = make_log(index_interval_bytes=100)

        log.follow(*(log.build_at(offset, f"a=1@{offset}") for offset in range(7)))

        # Every third batch: two are 140 bytes, and more than 100 must lie before an entry.
        assert log.segment().offset_index.entries() == [(2, 140), (4, 280), (6, 420)]
        assert log.segment().time_index.entries() == [(2, 2), (4, 4), (6, 6)]

    def test_the_newest_timestamp_of_a_fetch_decides_about_a_roll(self, make_log: MakeLog) -> None:
        log = make_log("a=1@10", segment_ms=1_000)

        log.follow(log.build_at(1, "b=1@1011"), log.build_at(2, "c=1@20"))

        assert log.base_offsets() == [0, 1]

    def test_a_fetch_over_segment_bytes_is_refused(self, make_log: MakeLog) -> None:
        log = make_log(segment_bytes=3 * BATCH_BYTES - 1)

        with pytest.raises(RecordTooLargeError):
            log.follow(*(log.build_at(offset, "a=1") for offset in range(3)))


class RefusingDisk(HastyDisk):
    """A disk that refuses to write to some files, after half of the bytes."""

    def __init__(self) -> None:
        self.refused: tuple[str, ...] = ()

    def write(self, file: File, position: int, buffers: Sequence[bytes | memoryview]) -> None:
        if file.path.name.endswith(self.refused):
            half = b"".join(buffers)[: sum(map(len, buffers)) // 2]
            super().write(file, position, [half])
            raise LogDirOfflineError(file.path, "cannot write: No space left on device")
        super().write(file, position, buffers)


class TestFailures:
    @pytest.fixture
    def disk(self) -> RefusingDisk:
        return RefusingDisk()

    def test_a_batch_that_the_disk_refuses_is_not_there(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log",)

        with pytest.raises(LogDirOfflineError, match="No space left on device"):
            log.append("b=1")

        assert log.real.log_end_offset == 1
        assert log.contents() == "0:a=1"
        assert log.path("0.log").stat().st_size == BATCH_BYTES

    def test_nothing_is_appended_until_the_log_is_opened_anew(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log",)
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")
        disk.refused = ()

        with pytest.raises(LogDirOfflineError, match="No space left on device"):
            log.append("c=1")
        with pytest.raises(LogDirOfflineError):
            log.real.truncate_to(0)
        assert log.readable() == "0:a=1"

        log.recover()
        log.append("c=1")
        assert log.contents() == "0:a=1 1:c=1"

    @pytest.mark.parametrize("extension", [".index", ".timeindex"])
    def test_an_index_that_the_disk_refuses_stops_the_log_as_well(
        self, make_log: MakeLog, disk: RefusingDisk, extension: str
    ) -> None:
        log = make_log("a=1@10 b=1@20", fs=disk, index_interval_bytes=0)
        disk.refused = (extension,)
        with pytest.raises(LogDirOfflineError):
            log.real.flush()  # which writes what waited for company
        disk.refused = ()
        with pytest.raises(LogDirOfflineError):
            log.append("c=1@30")

        log.recover()

        assert log.contents() == "0:a=1 1:b=1"
        found = log.real.find_offset_by_timestamp(10)
        assert found is not None
        assert found.offset == 0

    def test_a_state_is_not_changed_by_a_batch_that_was_not_written(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log(fs=disk)
        log.produce("a=1")
        before = dict(log.real.producer_state.entries)
        disk.refused = (".log",)

        with pytest.raises(LogDirOfflineError):
            log.produce("b=1", transactional=True)

        assert dict(log.real.producer_state.entries) == before
        assert log.real.last_stable_offset == 1

    def test_a_log_that_failed_can_still_be_closed(
        self, make_log: MakeLog, disk: RefusingDisk
    ) -> None:
        log = make_log("a=1", fs=disk)
        disk.refused = (".log", ".index", ".timeindex", ".snapshot")
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")

        log.real.close()

        assert log.snapshots() == []


class TestTheEnd:
    def test_a_closed_log_takes_nothing(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        log.real.close()

        with pytest.raises(LogDirOfflineError):
            log.append("b=1")

    def test_closing_twice_does_no_harm(self, make_log: MakeLog) -> None:
        log = make_log("a=1")

        log.real.close()
        log.real.close()

    def test_a_deleted_log_writes_nothing_any_more(self, make_log: MakeLog) -> None:
        log = make_log("a=1")
        doomed = log.directory.with_name("orders-3.0-delete")
        log.directory.rename(doomed)
        before = sorted(path.name for path in doomed.iterdir())

        log.real.mark_deleted(doomed)
        with pytest.raises(LogDirOfflineError):
            log.append("b=1")
        log.real.close()

        assert sorted(path.name for path in doomed.iterdir()) == before
        assert not log.directory.exists()

    def test_a_log_that_is_open_for_reading_only_can_be_read(self, make_log: MakeLog) -> None:
        log = make_log("a=1 | b=1")
        log.stop()

        log.start(writable=False)

        assert log.readable() == "0:a=1 1:b=1"
        with pytest.raises(LogDirOfflineError, match="opened for reading only"):
            log.append("c=1")


# What a log answers must not depend on its indexes (I4): a full scan tells the same.

gaps = st.integers(0, 3)
layouts = st.lists(
    st.tuples(gaps, st.lists(st.integers(0, 50), min_size=1, max_size=3), st.booleans()),
    min_size=1,
    max_size=12,
)


def make_layout(
    directory: str, layout: list[tuple[int, list[int], bool]], interval_bytes: int
) -> MadeLog:
    """Fill a log with batches of records with these timestamps, gaps before them, and rolls."""
    log = MakeLog(Path(directory), ManualClock())(index_interval_bytes=interval_bytes)
    for gap, timestamps, rolls in layout:
        if rolls and log.segment(log.base_offsets()[-1]).size_bytes:
            log.append("|")
        text = " ".join(f"k=v@{timestamp}" for timestamp in timestamps)
        log.follow(log.build_at(log.real.log_end_offset + gap, text))
    return log


def scan(log: MadeLog) -> list[list[BatchHeader]]:
    return [
        [b.header for _, b in iter_batches(segment.path.read_bytes()[: segment.size_bytes])]
        for segment in log.real.segments
    ]


def scan_records(log: MadeLog) -> list[Record]:
    return [
        record
        for segment in log.real.segments
        for _, batch in segment.iter_batches()
        for record in batch.iter_records()
    ]


@given(
    layouts,
    st.sampled_from([0, 100, 4096]),
    st.sampled_from([0, 1, 100, 200, 10_000]),
    st.booleans(),
)
def test_a_read_at_any_offset_gives_what_a_scan_gives(
    layout: list[tuple[int, list[int], bool]], interval_bytes: int, max_bytes: int, restarts: bool
) -> None:
    with TemporaryDirectory() as directory:
        log = make_layout(directory, layout, interval_bytes)
        if restarts:
            log.restart()
        segments = scan(log)

        for offset in range(log.real.log_end_offset):
            found = [b.header for b in log.real.read(offset, max_bytes).batches()]

            following = next(
                rest
                for headers in segments
                if (rest := [header for header in headers if header.last_offset >= offset])
            )
            expected: list[BatchHeader] = []
            for header in following:
                size = sum(h.size_bytes for h in expected) + header.size_bytes
                if expected and size > max_bytes:
                    break
                expected.append(header)
            assert found == expected


@given(layouts, st.sampled_from([0, 100, 4096]), st.booleans())
def test_a_look_up_of_any_time_gives_what_a_scan_gives(
    layout: list[tuple[int, list[int], bool]], interval_bytes: int, restarts: bool
) -> None:
    with TemporaryDirectory() as directory:
        log = make_layout(directory, layout, interval_bytes)
        if restarts:
            log.restart()
        records = scan_records(log)

        for time_ms in range(52):
            expected = next(
                (
                    TimestampOffset(record.timestamp_ms, record.offset)
                    for record in records
                    if record.timestamp_ms >= time_ms
                ),
                None,
            )
            assert log.real.find_offset_by_timestamp(time_ms) == expected
