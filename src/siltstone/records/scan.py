"""Whole chunks of a segment at once: the typed way to the kernels, and their plain twins.

A kernel only says *that* the bytes at a position are no sound batch. The reason comes from the
plain code of `batch`, which is asked for that one batch and must refuse it as well.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from siltstone.errors import (
    ChecksumError,
    DecodeError,
    MalformedDataError,
    TruncatedDataError,
)
from siltstone.lazy import LazyModule
from siltstone.records.batch import Batch, read_batch
from siltstone.records.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from siltstone.records.record import RecordField, malformed_record
from siltstone.records.varint import Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from siltstone.records import kernel_types

    Bytes = NDArray[np.uint8]
    Batches = NDArray[Any]  # of kernel_types.BATCH_DTYPE
    Records = NDArray[Any]  # of kernel_types.RECORD_DTYPE
else:
    np = LazyModule("numpy")
    kernel_types = LazyModule("siltstone.records.kernel_types")
    Bytes = Batches = Records = Any

# Enough for a chunk of 8 MiB in batches of 16 kB; a fuller chunk takes other rounds, larger ones:
# they would be fresh memory each time, which takes longer than the walk.
_FIRST_ROUND_BATCHES: Final = 512
_ROUND_BATCHES: Final = 8192
_MAX_OFFSET: Final = 2**63 - 1
_MIN_RECORD_BYTES: Final = 7  # length, attributes, two deltas, key, value, headers


class Walk(NamedTuple):
    """The sound, complete batches at the start of some bytes, and what ended them."""

    batches: Batches
    stop_position: int  # where the first incomplete or refused batch begins, or the end
    refusal: DecodeError | None  # why the batch there is not sound; None if bytes are missing


class Scan(NamedTuple):
    """The records of some batches, in order; positions count in the payload of their batch."""

    batches: Batches
    records: Records
    payloads: tuple[Bytes, ...]  # per batch: the chunk itself, or the decompressed records


class _Kernels:
    """The compiled loops, loaded when there is something for them to do.

    Their compiler takes longer to load than a lookup in a log that was closed well takes in all.
    """

    def __init__(self) -> None:
        self._loaded: Any = None
        self.needs_arrays = True  # and not any buffer of bytes

    def get(self) -> Any:
        if self._loaded is None:
            from siltstone.records import kernels  # noqa: PLC0415

            self._loaded = kernels
        return self._loaded

    def use_stored(self) -> None:
        from siltstone.records import stored_kernels  # noqa: PLC0415

        self._loaded = stored_kernels.load_stored_kernels()
        self.needs_arrays = self._loaded is None


_kernels: Final = _Kernels()


def use_stored_kernels() -> None:
    """Have all that is below done by kernels from a file, where there may be some."""
    _kernels.use_stored()


def as_bytes(data: Buffer) -> Bytes:
    """View a buffer as the read-only array that the kernels are compiled for."""
    if not isinstance(data, bytes):
        data = memoryview(data).toreadonly()
    return np.frombuffer(data, np.uint8)


def walk(data: Buffer, *, next_offset: int = 0, check_crc: bool = True) -> Walk:
    """Find the batches from the start of `data` up to the first that is incomplete or not sound.

    They must rise, from `next_offset` on.
    """
    kernels = _kernels.get()
    array = as_bytes(data)
    rounds: list[Batches] = []
    position = 0
    while True:
        room = _ROUND_BATCHES if rounds else _FIRST_ROUND_BATCHES
        batches = np.empty(room, kernel_types.BATCH_DTYPE)
        count, position, why = kernels.walk_batches(
            array, position, array.size, next_offset, check_crc, batches
        )
        rounds.append(batches[:count])
        if count:
            next_offset = int(batches["last_offset"][count - 1]) + 1
        if why != kernel_types.FULL:
            refusal = None
            if why == kernel_types.REFUSED:
                refusal = _reason(data, position, next_offset, check_crc=check_crc)
            return Walk(
                rounds[0] if len(rounds) == 1 else np.concatenate(rounds), position, refusal
            )


def scan(data: Buffer, batches: Batches, *, limit_bytes: int) -> Scan:
    """Index the records of batches that `walk` found in `data`; raise DecodeError if one lies.

    `limit_bytes` bounds what one compressed batch may unfold to.
    """
    kernels = _kernels.get()
    array = as_bytes(data)
    if not (batches["attributes"] & CODEC_MASK).any():
        records = _make_room(batches, batches["size_bytes"] - HEADER_SIZE)
        if records is None or kernels.index_batches(array, batches, records)[1] >= 0:
            _explain(data, batches, limit_bytes)
        return Scan(batches, records, (array,) * len(batches))

    payloads: list[Bytes] = []
    spans: list[tuple[int, int]] = []
    for row in batches:
        position = int(row["position"])
        payload, start, end = array, position + HEADER_SIZE, position + int(row["size_bytes"])
        if row["attributes"] & CODEC_MASK and end > start:
            try:
                payload = as_bytes(read_batch(data, position).payload(limit_bytes))
            except DecodeError:
                _explain(data, batches, limit_bytes)
            start, end = 0, payload.size
        payloads.append(payload)
        spans.append((start, end))
    records = _make_room(batches, np.array([end - start for start, end in spans]))
    if records is None:
        _explain(data, batches, limit_bytes)
    first = 0
    for row, payload, (start, end) in zip(batches, payloads, spans, strict=True):
        if kernels.index_records(payload, start, end, row, records, first) < 0:
            _explain(data, batches, limit_bytes)
        first += int(row["record_count"])
    return Scan(batches, records, tuple(payloads))


def _make_room(batches: Batches, payload_bytes: "NDArray[Any]") -> Records | None:
    """Make an array for the records; None if a batch says it has more than fit its payload.

    A count is believed only this far, or a batch of a hundred bytes could ask for all memory.
    """
    counts = batches["record_count"].astype(np.int64)
    if (counts * _MIN_RECORD_BYTES > payload_bytes).any():
        return None
    return np.empty(int(counts.sum()), kernel_types.RECORD_DTYPE)


def is_usual_batch(data: Buffer, needs_keys: bool, oldest_ms: int, newest_ms: int) -> bool:
    """Say whether a producer's batch can be appended as it is: see the kernel of that name."""
    kernels = _kernels.get()
    array: Any = as_bytes(data) if _kernels.needs_arrays else data
    usual: bool = kernels.is_usual_batch(array, needs_keys, oldest_ms, newest_ms)
    return usual


class RecordCheck(NamedTuple):
    """What a leader must know of the records in a producer's batch."""

    keyless: int | None  # the first record without a key, where one is needed
    untimely: int | None  # the first record with a timestamp outside of the limits
    max_timestamp_ms: int


def check_records(
    batch: Batch, *, needs_keys: bool, oldest_ms: int, newest_ms: int, limit_bytes: int
) -> RecordCheck:
    """Check every record of a producer's batch; raise DecodeError if they make no sense.

    Offsets must follow on each other without gaps: a producer has nothing compacted.
    """
    kernels = _kernels.get()
    header = batch.header
    data: Any = batch.data
    start = HEADER_SIZE
    if header.attributes & CODEC_MASK:
        data, start = batch.payload(limit_bytes), 0
    end, keyless, untimely, max_timestamp_ms = kernels.check_records(
        as_bytes(data) if _kernels.needs_arrays else data,
        start,
        len(data),
        header.record_count,
        header.base_timestamp_ms,
        needs_keys,
        oldest_ms,
        newest_ms,
    )
    if end < 0 or not 0 <= header.record_count <= max(header.last_offset_delta + 1, 0):
        plain_check_records(
            batch,
            needs_keys=needs_keys,
            oldest_ms=oldest_ms,
            newest_ms=newest_ms,
            limit_bytes=limit_bytes,
        )
        raise AssertionError("kernel and twin disagree about the records of a batch")
    return RecordCheck(
        keyless if keyless >= 0 else None, untimely if untimely >= 0 else None, max_timestamp_ms
    )


def plain_check_records(
    batch: Batch, *, needs_keys: bool, oldest_ms: int, newest_ms: int, limit_bytes: int
) -> RecordCheck:
    """Do what `check_records` does, without a kernel: its twin."""
    # What the producer claims about who set the timestamps does not change them.
    header = batch.header._replace(attributes=batch.header.attributes & ~TIMESTAMP_TYPE_BIT)
    keyless = untimely = None
    max_timestamp_ms = NO_TIMESTAMP
    for number, record in enumerate(Batch(header, batch.data).iter_records(limit_bytes)):
        if record.offset != header.base_offset + number:
            raise malformed_record(HEADER_SIZE, number, RecordField.OFFSET_DELTA)
        if needs_keys and record.key is None and keyless is None:
            keyless = number
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        timely = record.timestamp_ms == NO_TIMESTAMP or (
            oldest_ms <= record.timestamp_ms <= newest_ms
        )
        if not timely and untimely is None:
            untimely = number
    return RecordCheck(keyless, untimely, max_timestamp_ms)


def check_batch(data: Buffer, position: int, next_offset: int, *, check_crc: bool = True) -> Batch:
    """Return the batch at a position; raise DecodeError unless its header is sound and in order."""
    batch = read_batch(data, position)
    header = batch.header
    if header.last_offset_delta < 0 or header.last_offset > _MAX_OFFSET:
        raise MalformedDataError(position, f"last offset delta is {header.last_offset_delta}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise MalformedDataError(
            position,
            f"header says {header.record_count} records in {header.last_offset_delta + 1} offsets",
        )
    if header.base_offset < next_offset:
        raise MalformedDataError(
            position, f"offset {header.base_offset}, expected {next_offset} or more"
        )
    if check_crc:
        try:
            batch.check_crc()
        except ChecksumError as error:
            raise ChecksumError(position, error.reason) from None
    return batch


def plain_walk(data: Buffer, *, next_offset: int = 0) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) like `walk`, one at a time and without a kernel: its twin."""
    position = 0
    while position < len(data):
        try:
            batch = check_batch(data, position, next_offset)
        except TruncatedDataError:
            return
        yield position, batch
        next_offset = batch.header.next_offset
        position += batch.header.size_bytes


def _reason(data: Buffer, position: int, next_offset: int, *, check_crc: bool) -> DecodeError:
    try:
        check_batch(data, position, next_offset, check_crc=check_crc)
    except DecodeError as error:
        return error
    raise AssertionError(f"kernel and twin disagree about the batch at position {position}")


def _explain(data: Buffer, batches: Batches, limit_bytes: int) -> NoReturn:
    """Raise what the plain code says about the first of the batches that it refuses."""
    for row in batches:
        position = int(row["position"])
        try:
            for _ in read_batch(data, position).iter_records(limit_bytes):
                pass
        except DecodeError as error:
            # A batch counts positions from its own start, whoever called from that of the chunk.
            raise MalformedDataError(position + error.position, error.reason) from None
    raise AssertionError("kernel and twin disagree about the records of a chunk")
