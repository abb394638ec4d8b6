"""Facts 8.E: what a pass makes of one batch, for every codec.

Kafka's tests call the filter; here a batch goes through a real pass. E9 is about a buffer that is
too small for the result: there is none, but what grows must come out whole as well.
"""

from typing import Any

import pytest

from siltstone.errors import CorruptBatchError
from siltstone.records.batch import Batch, BatchHeader, TimestampType, read_batch
from siltstone.records.builder import build_batch, encode_batch
from siltstone.records.compression import Codec
from siltstone.records.layout import HEADER_SIZE, LENGTH_POSITION, MAGIC_POSITION
from siltstone.records.record import Record
from tests.support.cleaning import Cleaner, MakeCompactedLog, horizons_ms, records_of
from tests.support.clock import START_MS, ManualClock
from tests.support.make_log import MadeLog

HEADERS = (("trace", b"\x00\xff"), ("empty", b""), ("null", None))


@pytest.fixture(params=list(Codec), ids=lambda codec: codec.name.lower())
def codec(request: pytest.FixtureRequest) -> Codec:
    """Every test that asks for it runs with all codecs, and with none."""
    found: Codec = request.param
    return found


def batches_of(log: MadeLog) -> list[Batch]:
    return [batch for segment in log.real.segments for _, batch in segment.iter_batches()]


def only_batch(log: MadeLog) -> Batch:
    """Return the first batch, after which only what supersedes it may come."""
    return batches_of(log)[0]


def changed(before: BatchHeader, after: BatchHeader) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two headers differ, but for length and CRC."""
    return {
        name: (old, new)
        for name, old, new in zip(before._fields, before, after, strict=True)
        if old != new and name not in ("length", "crc")
    }


def signed(batch: bytes, payload: bytes) -> bytes:
    """Put another payload into a batch, with a CRC that fits."""
    return encode_batch(read_batch(batch).header, payload)


def commit_marked_batch(log: MadeLog, text: str, codec: Codec) -> None:
    """Append a batch of which every field says something, and the end of its transaction."""
    log.append_batch(
        log.build(
            text,
            codec=codec,
            producer_id=7,
            producer_epoch=3,
            base_sequence=11,
            is_transactional=True,
        ),
        leader_epoch=5,
    )
    log.commit(producer=7, epoch=3)


class TestRebuiltBatch:
    """Batches that lose some of their records."""

    # E1, E7, E8, E10
    def test_a_batch_keeps_all_that_identifies_it(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        commit_marked_batch(log, "[a=1 b=1 c=1 d=1 e=1]", codec)
        log.append("a=2 c=2 e=2 |")
        before = only_batch(log).header

        cleaner.clean(log)

        after = only_batch(log).header
        assert changed(before, after) == {"record_count": (5, 2)}
        assert (after.base_offset, after.last_offset, after.leader_epoch) == (0, 4, 5)
        assert (after.producer_id, after.producer_epoch, after.is_transactional) == (7, 3, True)
        assert (after.base_sequence, after.last_sequence) == (11, 15)
        assert after.codec is codec
        assert log.contents() == "1:b=1 3:d=1 5:commit 6:a=2 7:c=2 8:e=2 |"

    def test_records_keep_offset_timestamp_key_value_and_headers(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        kept = [
            Record(1, START_MS + 70, b"b", b"", HEADERS),
            Record(2, START_MS - 5, b"", b"value of an empty key"),
            Record(3, START_MS + 9, b"\x00\xff" * 300, bytes(2000), HEADERS),
        ]
        log.append_batch(build_batch([Record(0, START_MS, b"a", b"1"), *kept], codec=codec))
        log.append("a=2 |")

        cleaner.clean(log)

        assert records_of(log)[:-1] == kept

    # E10: the max timestamp is that of the survivors
    def test_a_batch_forgets_the_timestamps_of_records_that_are_gone(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(log.build("[a=1@100 b=1@300 c=1@200]", codec=codec))
        log.append("a=2@1 b=2@2 |")

        cleaner.clean(log)

        after = only_batch(log).header
        assert (after.base_timestamp_ms, after.max_timestamp_ms) == (200, 200)
        assert log.segment(0).max_timestamp == (200, 2)

    # E11
    def test_a_batch_with_append_time_keeps_it(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(message_timestamp_type="LogAppendTime")
        log.append_batch(log.build("[a=1@5 b=1@6 c=1@7]", codec=codec))
        clock.advance_ms(10)
        log.append("c=2 a=2 |")

        cleaner.clean(log)

        after = only_batch(log).header
        assert after.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert after.max_timestamp_ms == START_MS
        assert [r.timestamp_ms for r in records_of(log)] == [START_MS, START_MS + 10, START_MS + 10]

    # E6
    def test_a_batch_of_which_nothing_survives_goes_without_a_trace_of_its_neighbours(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        for text in ("[a=1 b=1]", "[c=1 d=1]", "[e=1 f=1]"):
            log.append_batch(log.build(text, codec=codec))
        log.append("c=2 d=2 |")
        before = [bytes(batch.data) for batch in batches_of(log)]

        cleaner.clean(log)

        assert [bytes(b.data) for b in batches_of(log)] == [before[0], *before[2:]]

    def test_a_batch_of_which_everything_survives_is_copied_byte_for_byte(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("x=1")
        # Not as we would write it: another level, and a batch that begins with a gap.
        data = build_batch(
            [Record(3, START_MS, b"a", b"1" * 100), Record(5, START_MS, b"b", b"1")],
            base_offset=2,
            last_offset_delta=7,
            codec=codec,
            level=1 if codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD) else None,
            leader_epoch=0,
        )
        log.follow(data)
        log.append("x=2 |")

        cleaner.clean(log)

        assert bytes(only_batch(log).data) == data

    # E7: gaps from earlier passes
    def test_a_batch_that_was_thinned_out_before_keeps_its_span(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(log.build("[a=1 b=1 c=1 d=1]", codec=codec))
        for text in ("a=2 |", "d=2 |", "b=2 |"):
            log.append(text)
            cleaner.clean(log)

        header = only_batch(log).header
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 1)
        assert log.contents() == "2:c=1 4:a=2 5:d=2 6:b=2 |"

    def test_segments_may_mix_codecs(self, make_log: MakeCompactedLog, cleaner: Cleaner) -> None:
        log = make_log()
        for number, each in enumerate(Codec):
            log.append_batch(log.build(f"[same={number} k{number}=1]", codec=each))
        log.append("|")

        cleaner.clean(log)

        assert [batch.header.codec for batch in batches_of(log)] == list(Codec)
        assert log.contents() == "1:k0=1 3:k1=1 5:k2=1 7:k3=1 8:same=4 9:k4=1 |"


class TestEmptyBatch:
    # E2
    def test_a_batch_that_must_stay_becomes_a_bare_header(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        commit_marked_batch(log, "[a=1@700 b=1@900]", codec)
        log.append("a=2 b=2 |")
        before = only_batch(log).header

        counts = cleaner.counts(log)

        batch = only_batch(log)
        assert len(batch.data) == HEADER_SIZE == 61
        assert changed(before, batch.header) == {
            "record_count": (2, 0),
            "base_timestamp_ms": (700, -1),
            **({} if codec is Codec.NONE else {"attributes": (0x10 | codec, 0x10)}),
        }
        assert batch.header.max_timestamp_ms == 900
        assert (counts.batches_emptied, counts.superseded, counts.records_kept) == (1, 2, 2)

    # E3
    def test_a_bare_header_stays_as_it_is(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(
            log.build("a=1", codec=codec, producer_id=7, producer_epoch=3, base_sequence=11)
        )
        log.append("a=2 |")
        cleaner.clean(log)
        before = bytes(only_batch(log).data)

        log.append("a=3 |")  # or nothing would be rewritten
        cleaner.clean(log)

        assert bytes(only_batch(log).data) == before
        assert log.contents() == "0..0:empty 2:a=3 |"

    # E4
    def test_a_bare_header_goes_once_nobody_needs_it(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(
            log.build("a=1", codec=codec, producer_id=7, producer_epoch=3, base_sequence=11)
        )
        log.append("a=2 |")
        cleaner.clean(log)
        assert log.contents() == "0..0:empty 1:a=2 |"

        log.produce("b=1", producer=7, epoch=3, sequence=12)
        log.append("|")
        cleaner.clean(log)

        assert log.contents() == "1:a=2 2:b=1 |"

    def test_the_batch_at_the_end_of_a_pass_stays_only_until_the_next_one(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log("a=1", delete_retention_ms=10)
        log.append_batch(log.build("b~", codec=codec))
        log.append("|")
        cleaner.clean(log)
        clock.advance_ms(10)
        cleaner.clean(log)
        assert log.contents() == "0:a=1 1..1:empty |"
        assert log.readable() == "0:a=1 1..1:empty"  # a reader gets to the end

        log.append("c=1 |")
        cleaner.clean(log)
        assert log.contents() == "0:a=1 2:c=1 |"


class TestHorizons:
    # E5
    def test_a_horizon_leaves_the_timestamps_of_records_alone(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(delete_retention_ms=77)
        log.append_batch(log.build("[a=1@100 b~@300 c=1@200]", codec=codec))
        log.append("|")
        before = records_of(log)

        cleaner.clean(log)

        header = only_batch(log).header
        assert header.delete_horizon_ms == header.base_timestamp_ms == clock.now_ms() + 77
        assert header.max_timestamp_ms == 300
        assert records_of(log) == before
        assert header.codec is codec

    def test_a_horizon_never_moves_and_stays_when_its_tombstone_is_gone(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log(delete_retention_ms=100)
        log.append_batch(log.build("[a=1 b~ c=1]", codec=codec))
        log.append("|")
        horizon_ms = clock.now_ms() + 100
        cleaner.clean(log)

        clock.advance_ms(99)
        log.append("a=2 |")
        cleaner.clean(log)
        assert log.contents() == "1:b~ 2:c=1 3:a=2 |"
        assert horizons_ms(log) == {0: horizon_ms}

        clock.advance_ms(1)
        cleaner.clean(log)
        assert log.contents() == "2:c=1 3:a=2 |"
        assert horizons_ms(log) == {0: horizon_ms}

        clock.advance_ms(1_000_000)
        log.append("d=1 |")
        cleaner.clean(log)
        assert horizons_ms(log) == {0: horizon_ms}

    def test_tombstones_that_are_superseded_set_no_horizon(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(log.build("[a~ b=1]", codec=codec))
        log.append("a=1 |")

        cleaner.clean(log)

        assert log.contents() == "1:b=1 2:a=1 |"
        assert horizons_ms(log) == {}

    def test_an_empty_value_is_no_tombstone(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        log.append_batch(log.build("[a= b=1]", codec=codec))
        log.append("|")

        cleaner.clean_twice(log)

        assert log.contents() == "0:a= 1:b=1 |"
        assert horizons_ms(log) == {}

    # Facts 6.9: with no retention the next pass removes it
    def test_without_retention_a_tombstone_goes_with_the_second_pass(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log(delete_retention_ms=0)
        log.append_batch(log.build("[a~ b=1]", codec=codec))
        log.append("|")

        cleaner.clean(log)
        assert log.contents() == "0:a~ 1:b=1 |"
        cleaner.clean(log)
        assert log.contents() == "1:b=1 |"

    # Facts 6.9: a replica inherits the horizon, and may delete in its own first pass
    def test_a_tombstone_that_was_fetched_with_an_expired_horizon_goes_at_once(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner, clock: ManualClock
    ) -> None:
        log = make_log()
        log.follow(log.build_at(0, "[a~ b=1]", codec=codec, delete_horizon_ms=clock.now_ms()))
        log.append("|")

        counts = cleaner.counts(log)

        assert log.contents() == "1:b=1 |"
        assert (counts.tombstones_removed, counts.tombstones_kept) == (1, 0)

    # E9, as far as it applies: the result may be larger than what was read
    def test_a_batch_that_grows_comes_out_whole(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log()
        text = " ".join(f"k{number}~" for number in range(500))
        log.append_batch(log.build(f"[{text}]", codec=codec))
        log.append("|")
        before = records_of(log)
        before_bytes = log.real.size_bytes

        cleaner.clean(log)

        assert records_of(log) == before
        if codec is Codec.NONE:  # four bytes more for each timestamp
            assert log.real.size_bytes == before_bytes + 500 * 3


class TestDamage:
    # E12
    @pytest.mark.parametrize(
        ("position", "replacement", "reason"),
        [
            (MAGIC_POSITION, b"\x03", "unknown magic 3"),
            (LENGTH_POSITION, b"\x00\x00\x00\x09", "batch length 9 is too small"),
            (LENGTH_POSITION, b"\x00\x00\x00\x30", "batch length 48 is too small"),
            (LENGTH_POSITION, b"\x7f\xff\xff\xff", "batch of 2147483659 bytes ends after the file"),
            (21, b"\x00\x07", "unknown codec 7|CRC"),
        ],
    )
    def test_a_header_that_makes_no_sense_is_refused(
        self,
        position: int,
        replacement: bytes,
        reason: str,
        make_log: MakeCompactedLog,
        cleaner: Cleaner,
    ) -> None:
        log = make_log("a=1 a=2 |")
        data = bytearray(log.path("0.log").read_bytes())
        data[70 + position : 70 + position + len(replacement)] = replacement
        log.path("0.log").write_bytes(data)

        with pytest.raises(
            CorruptBatchError, match=f"0.log is corrupt at position 70: .*({reason})"
        ):
            cleaner.clean(log)

    # I1: whatever is signed, but is no record
    def test_a_payload_that_cannot_be_decompressed_is_refused(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("x=1")
        log.follow(signed(log.build_at(1, "[a=1 b=1]", codec=codec), b"\xee" * 40))
        log.append("|")
        before = log.path("0.log").read_bytes()

        with pytest.raises(CorruptBatchError, match=r"0\.log is corrupt at position 70: "):
            cleaner.clean(log)

        assert log.path("0.log").read_bytes() == before

    def test_a_count_that_is_wrong_is_refused(
        self, codec: Codec, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("x=1")
        batch = read_batch(log.build_at(1, "[a=1 b=1]", codec=codec))
        lying = batch.header._replace(record_count=3, last_offset_delta=2)
        log.follow(encode_batch(lying, batch.data[HEADER_SIZE:]))
        log.append("|")

        with pytest.raises(CorruptBatchError, match="header says 3 records, found 2"):
            cleaner.clean(log)
