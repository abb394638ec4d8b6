"""Appending to a log: what may be appended, what is refused, and how it is stored."""

import pytest

from siltstone.errors import (
    ChecksumError,
    InvalidRecordError,
    InvalidTimestampError,
    MalformedDataError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TruncatedDataError,
)
from siltstone.log.append_info import AppendInfo
from siltstone.log.origin import AppendOrigin
from siltstone.records.batch import BatchHeader, TimestampType, read_batch
from siltstone.records.builder import build_batch, build_marker, encode_batch
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.layout import HEADER_SIZE, MAGIC_POSITION
from siltstone.records.record import Record
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import MadeLog, MakeLog

BATCH_BYTES = 70  # of one record with a key and a value of one byte each


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
