"""The zstd kernels against plain code, over sound, damaged and random bytes."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from siltstone.errors import MalformedDataError
from siltstone.records import zstd_kernels
from siltstone.records.compression import Codec, compress, decompress
from siltstone.records.lz4_kernels import FULL, REFUSED
from siltstone.records.scan import as_bytes
from siltstone.records.zstd_kernels import ZstdContexts
from tests.support.strategies import damaged, payloads

GUARD = 0xA5
GUARD_BYTES = 64
LIMIT_BYTES = 1 << 20
BLOCK_BYTES = 128 << 10  # The library cuts its input into pieces of this size.

CONTEXTS = ZstdContexts()

sizes = (
    st.integers(1, 64)
    | st.integers(1, BLOCK_BYTES)
    | st.integers(BLOCK_BYTES - 3, BLOCK_BYTES + 3)
    | st.sampled_from([2 * BLOCK_BYTES, 3 * BLOCK_BYTES + 1])
)
contents = payloads(sizes)


def encode(payload: bytes, before: int = 0) -> bytes:
    data = as_bytes(b"a" * before + payload + b"a" * 40)
    room = zstd_kernels.frame_room(len(payload))
    out = np.full(GUARD_BYTES + room + GUARD_BYTES, GUARD, np.uint8)
    end = zstd_kernels.encode_frame(
        CONTEXTS.addresses, data, before, before + len(payload), out, GUARD_BYTES, room
    )
    assert (out[:GUARD_BYTES] == GUARD).all()
    assert (out[GUARD_BYTES + room :] == GUARD).all()
    return out[GUARD_BYTES:end].tobytes()


def decode(frame: bytes, out: Any, limit_bytes: int = LIMIT_BYTES) -> int:
    data = as_bytes(frame)
    return int(
        zstd_kernels.decode_frames(CONTEXTS.addresses, data, 0, len(frame), out, 0, limit_bytes)
    )


def test_the_library_is_there() -> None:
    assert zstd_kernels.has_library(CONTEXTS.addresses)


@given(contents, st.integers(0, 20))
@example(b"", 0)
def test_a_frame_is_the_one_that_plain_code_writes_and_is_read_back(
    payload: bytes, before: int
) -> None:
    frame = encode(payload, before)

    assert frame == compress(Codec.ZSTD, payload)
    out = np.empty(len(payload), np.uint8)
    assert decode(frame, out) == len(payload)
    assert out.tobytes() == payload


@given(damaged(contents.map(lambda payload: compress(Codec.ZSTD, payload))))
def test_of_damaged_frames_only_what_plain_code_reads_is_decoded_and_alike(frame: bytes) -> None:
    out = np.empty(LIMIT_BYTES, np.uint8)

    count = decode(frame, out)

    assert count != FULL
    if count != REFUSED:
        assert out[:count].tobytes() == decompress(Codec.ZSTD, frame, limit_bytes=LIMIT_BYTES)


@given(st.lists(contents, min_size=2, max_size=3), st.binary(min_size=1, max_size=9))
def test_frames_one_after_the_other_are_one_payload_and_bytes_after_them_are_refused(
    parts: list[bytes], rest: bytes
) -> None:
    frames = b"".join(compress(Codec.ZSTD, part) for part in parts)
    out = np.empty(4 * LIMIT_BYTES, np.uint8)

    count = decode(frames, out, 4 * LIMIT_BYTES)

    assert out[:count].tobytes() == b"".join(parts) == decompress(Codec.ZSTD, frames)
    assert decode(frames + rest, out, 4 * LIMIT_BYTES) == REFUSED
    assert not is_read(frames + rest)


def is_read(frames: bytes) -> bool:
    try:
        decompress(Codec.ZSTD, frames)
    except MalformedDataError:
        return False
    return True


def test_a_frame_that_finds_no_room_asks_for_more_up_to_the_limit() -> None:
    frame = compress(Codec.ZSTD, bytes(1000))
    out = np.full(1000 + GUARD_BYTES, GUARD, np.uint8)

    assert decode(frame, out[:999]) == FULL
    assert (out[999:] == GUARD).all()
    assert decode(frame, out[:999], 999) == REFUSED
    assert decode(frame, out, 999) == REFUSED
    assert decode(frame, out, 1000) == 1000


def test_an_encoder_goes_on_after_a_frame_that_found_no_room() -> None:
    noise = np.random.default_rng(5).bytes(1000)
    out = np.empty(2000, np.uint8)

    assert (
        zstd_kernels.encode_frame(CONTEXTS.addresses, as_bytes(noise), 0, 1000, out, 0, 100)
        == REFUSED
    )
    assert encode(noise) == compress(Codec.ZSTD, noise)
