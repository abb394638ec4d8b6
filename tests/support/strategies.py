"""Hypothesis strategies for records and batches, sound and damaged."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy, composite

from siltstone.records.batch import TimestampType, read_header
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType, Marker
from siltstone.records.record import Header, Record

T0_MS = 1_600_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)

codecs: SearchStrategy[Codec] = st.sampled_from(Codec)
nullable_bytes: SearchStrategy[bytes | None] = st.none() | st.binary(max_size=64)
# Mostly times as logs have them, and now and then one that makes deltas wrap.
timestamps_ms = st.integers(T0_MS - 10_000, T0_MS + 10_000) | st.just(-1) | INT64
headers: SearchStrategy[tuple[Header, ...]] = st.lists(
    st.tuples(st.text(max_size=8), nullable_bytes), max_size=3
).map(tuple)


@dataclass(frozen=True, kw_only=True)
class ProducerFields:
    """Who wrote a batch, as `build_batch` takes it."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchCase:
    """A batch to build, and so also what must be read from its bytes."""

    records: tuple[Record, ...]
    base_offset: int
    last_offset_delta: int
    codec: Codec = Codec.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    append_time_ms: int | None = None  # only with LogAppendTime
    delete_horizon_ms: int | None = None
    leader_epoch: int = 0
    producer: ProducerFields = field(default_factory=ProducerFields)
    is_emptied: bool = False
    marker: Marker | None = None

    def build(self) -> bytes:
        """Return the bytes of the batch."""
        if self.marker is not None:
            data = build_marker(
                self.marker.control_type,
                offset=self.base_offset,
                timestamp_ms=self.records[0].timestamp_ms,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                coordinator_epoch=self.marker.coordinator_epoch,
                leader_epoch=self.leader_epoch,
                delete_horizon_ms=self.delete_horizon_ms,
            )
        else:
            data = build_batch(
                self.records,
                base_offset=self.base_offset,
                last_offset_delta=self.last_offset_delta,
                codec=self.codec,
                timestamp_type=self.timestamp_type,
                max_timestamp_ms=self.append_time_ms,
                delete_horizon_ms=self.delete_horizon_ms,
                leader_epoch=self.leader_epoch,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                base_sequence=self.producer.base_sequence,
                is_transactional=self.producer.is_transactional,
            )
        return build_empty_batch(read_header(data)) if self.is_emptied else data

    def read_records(self) -> list[Record]:
        """Return the records as a reader must see them."""
        if self.is_emptied:
            return []
        if self.append_time_ms is None:
            return list(self.records)
        return [record._replace(timestamp_ms=self.append_time_ms) for record in self.records]


@composite
def records(
    draw: DrawFn, *, base_offset: int = 0, min_size: int = 1, max_size: int = 8
) -> tuple[Record, ...]:
    """Records with rising offsets, with gaps between them as compaction leaves them."""
    deltas = draw(
        st.lists(st.integers(0, 1_000), unique=True, min_size=min_size, max_size=max_size)
    )
    return tuple(
        Record(
            base_offset + delta,
            draw(timestamps_ms),
            draw(nullable_bytes),
            draw(nullable_bytes),
            draw(headers),
        )
        for delta in sorted(deltas)
    )


@composite
def producers(draw: DrawFn) -> ProducerFields:
    """No producer, an idempotent or a transactional one."""
    if draw(st.booleans()):
        return ProducerFields()
    return ProducerFields(
        producer_id=draw(st.integers(0, 2**63 - 1)),
        producer_epoch=draw(st.integers(0, 2**15 - 1)),
        base_sequence=draw(st.integers(0, 2**31 - 1)),
        is_transactional=draw(st.booleans()),
    )


@composite
def batch_cases(draw: DrawFn, *, base_offset: int | None = None) -> BatchCase:
    """Batches of every kind: data, transaction markers, and what compaction makes of them."""
    if base_offset is None:
        base_offset = draw(st.integers(0, 2**62))
    horizon_ms = draw(st.none() | st.integers(0, T0_MS + 10_000))
    leader_epoch = draw(st.integers(-1, 2**31 - 1))
    is_emptied = draw(st.booleans()) and draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        marker = Marker(
            draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT])),
            draw(st.integers(-1, 2**31 - 1)),
        )
        key = b"\0\0\0" + bytes([marker.control_type])
        value = b"\0\0" + marker.coordinator_epoch.to_bytes(4, "big", signed=True)
        return BatchCase(
            records=(Record(base_offset, draw(timestamps_ms), key, value),),
            base_offset=base_offset,
            last_offset_delta=0,
            delete_horizon_ms=horizon_ms,
            leader_epoch=leader_epoch,
            producer=ProducerFields(
                producer_id=draw(st.integers(0, 2**63 - 1)),
                producer_epoch=draw(st.integers(0, 2**15 - 1)),
                is_transactional=True,
            ),
            is_emptied=is_emptied,
            marker=marker,
        )

    contents = draw(records(base_offset=base_offset))
    timestamp_type = draw(st.sampled_from(TimestampType))
    append_time_ms = None
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time_ms = draw(timestamps_ms)
    return BatchCase(
        records=contents,
        base_offset=base_offset,
        last_offset_delta=contents[-1].offset - base_offset + draw(st.integers(0, 3)),
        codec=draw(codecs),
        timestamp_type=timestamp_type,
        append_time_ms=append_time_ms,
        delete_horizon_ms=horizon_ms,
        leader_epoch=leader_epoch,
        producer=draw(producers()),
        is_emptied=is_emptied,
    )


@composite
def segments(draw: DrawFn, *, max_size: int = 5) -> list[BatchCase]:
    """Batches that may follow each other in a segment, with gaps between them."""
    cases: list[BatchCase] = []
    next_offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, max_size))):
        case = draw(batch_cases(base_offset=next_offset))
        cases.append(case)
        gap = draw(st.integers(0, 2))
        next_offset = case.base_offset + case.last_offset_delta + 1 + gap
    return cases


@composite
def damaged(draw: DrawFn, data: SearchStrategy[bytes]) -> bytes:
    """Bytes of which some were changed, cut out, put in, or cut off at the end."""
    damaged_bytes = bytearray(draw(data))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(damaged_bytes)))
        length = draw(st.integers(0, 12))
        match draw(st.sampled_from(["change", "cut out", "put in", "cut off"])):
            case "change":
                end = min(position + length, len(damaged_bytes))
                noise = draw(st.binary(min_size=end - position, max_size=end - position))
                damaged_bytes[position:end] = noise
            case "cut out":
                del damaged_bytes[position : position + length]
            case "put in":
                damaged_bytes[position:position] = draw(st.binary(max_size=length))
            case "cut off":
                del damaged_bytes[position:]
    return bytes(damaged_bytes)


@st.composite
def payloads(draw: DrawFn, sizes: SearchStrategy[int]) -> bytes:
    """Bytes of which a codec makes nothing, much, or as much as of records."""
    size = draw(sizes)
    rng = random.Random(draw(st.integers(0, 2**32)))
    match draw(st.sampled_from(["noise", "pattern", "letters", "records", "mixed"])):
        case "noise":
            return rng.randbytes(size)
        case "pattern":
            return (rng.randbytes(draw(st.integers(1, 40))) * size)[:size]
        case "letters":
            return bytes(rng.choices(range(draw(st.integers(1, 16))), k=size))
        case "records":
            lines = (
                b"%d {'user': %d, 'page': 'home'}" % (number, rng.randrange(1000))
                for number in range(size // 20 + 1)
            )
            return b"".join(lines)[:size]
        case _:
            words = [rng.randbytes(rng.randrange(1, 300)) for _ in range(20)]
            return b"".join(rng.choices(words, k=size // 100 + 20))[:size]


def join_batches(cases: list[BatchCase]) -> bytes:
    """Return the bytes of a segment."""
    return b"".join(_build_all(cases))


def _build_all(cases: list[BatchCase]) -> Iterator[bytes]:
    for case in cases:
        yield case.build()
