"""The lz4 kernels against the lz4 library, over sound, damaged and random bytes."""

from typing import Any

import cramjam
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from siltstone.records import lz4_kernels
from siltstone.records.compression import Codec, compress, decompress
from siltstone.records.lz4_kernels import BLOCK_BYTES, SLACK_BYTES
from siltstone.records.scan import as_bytes
from tests.support.strategies import damaged, payloads

GUARD = 0xA5
GUARD_BYTES = 64
LIMIT_BYTES = 1 << 20

# Around the sizes at which there is nothing to match, and at which a block is full.
sizes = (
    st.integers(1, 64)
    | st.integers(1, BLOCK_BYTES)
    | st.integers(BLOCK_BYTES - 20, BLOCK_BYTES)
    | st.sampled_from([12, 13, BLOCK_BYTES])
)
contents = payloads(sizes)


def encode_block(block: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(block, store_size=False))


def decode_block(block: bytes, surroundings: bytes = b"") -> bytes | None:
    """Decode with the kernel; None if it refuses. What is around must not matter nor change."""
    before = len(surroundings)
    room = BLOCK_BYTES + SLACK_BYTES
    out = np.full(GUARD_BYTES + room + GUARD_BYTES, GUARD, np.uint8)
    data = as_bytes(surroundings + block + surroundings)
    end = lz4_kernels.decode_block(data, before, before + len(block), out, GUARD_BYTES)
    assert (out[:GUARD_BYTES] == GUARD).all()
    assert (out[GUARD_BYTES + room :] == GUARD).all()
    if end == lz4_kernels.REFUSED:
        return None
    assert GUARD_BYTES <= end <= GUARD_BYTES + BLOCK_BYTES
    return out[GUARD_BYTES:end].tobytes()


def decode_frame(frame: bytes, out: Any, limit_bytes: int = LIMIT_BYTES) -> int:
    return int(lz4_kernels.decode_frame(as_bytes(frame), 0, len(frame), out, 0, limit_bytes))


@given(contents, st.integers(0, 20))
@example(b"a", 0)
@example(bytes(12), 0)
@example(bytes(13), 0)
@example(bytes(BLOCK_BYTES), 3)
def test_a_block_is_encoded_as_the_library_does_wherever_it_begins(
    block: bytes, before: int
) -> None:
    data = as_bytes(b"a" * before + block + b"a" * 40)
    room = len(block) + SLACK_BYTES
    out = np.full(GUARD_BYTES + room + GUARD_BYTES, GUARD, np.uint8)

    end = lz4_kernels.encode_block(
        data, before, before + len(block), out, GUARD_BYTES, lz4_kernels.make_table()
    )

    assert out[GUARD_BYTES:end].tobytes() == encode_block(block)
    assert (out[:GUARD_BYTES] == GUARD).all()
    assert (out[GUARD_BYTES + room :] == GUARD).all()


@given(contents, st.binary(max_size=20))
def test_what_the_library_has_encoded_is_decoded(block: bytes, surroundings: bytes) -> None:
    assert decode_block(encode_block(block), surroundings) == block


@given(contents)
def test_what_the_thorough_encoder_has_found_is_decoded(block: bytes) -> None:
    packed = bytes(
        cramjam.lz4.compress_block(block, mode="high_compression", compression=9, store_size=False)
    )

    assert decode_block(packed) == block


@given(damaged(contents.map(encode_block)) | st.binary(max_size=80), st.binary(max_size=20))
def test_of_damaged_blocks_only_what_the_library_decodes_is_decoded_and_alike(
    block: bytes, surroundings: bytes
) -> None:
    found = decode_block(block, surroundings)

    assert found == decode_block(block)
    if found is not None:
        expected = bytearray(BLOCK_BYTES)
        count = cramjam.lz4.decompress_block_into(block, expected)
        assert found == expected[:count]


@given(st.lists(contents, max_size=4).map(b"".join))
def test_a_frame_is_the_one_that_plain_code_writes_and_reads_back(payload: bytes) -> None:
    room = lz4_kernels.frame_room(len(payload))
    out = np.full(room + GUARD_BYTES, GUARD, np.uint8)
    table = lz4_kernels.make_table()

    end = lz4_kernels.encode_frame(as_bytes(payload), 0, len(payload), out, 0, table)

    frame = out[:end].tobytes()
    assert (out[room:] == GUARD).all()
    assert frame == compress(Codec.LZ4, payload)
    back = np.empty(len(payload) + BLOCK_BYTES + SLACK_BYTES, np.uint8)
    count = decode_frame(frame, back)
    assert back[:count].tobytes() == payload


@given(damaged(st.lists(contents, max_size=2).map(lambda p: compress(Codec.LZ4, b"".join(p)))))
def test_of_damaged_frames_only_what_plain_code_reads_is_decoded_and_alike(frame: bytes) -> None:
    out = np.empty(LIMIT_BYTES, np.uint8)

    count = decode_frame(frame, out)

    assert count != lz4_kernels.FULL
    if count != lz4_kernels.REFUSED:
        assert out[:count].tobytes() == decompress(Codec.LZ4, frame)


def test_a_frame_asks_for_room_before_it_writes() -> None:
    frame = compress(Codec.LZ4, bytes(3 * BLOCK_BYTES))
    out = np.full(2 * (BLOCK_BYTES + SLACK_BYTES), GUARD, np.uint8)

    assert decode_frame(frame, out[: BLOCK_BYTES + SLACK_BYTES - 1]) == lz4_kernels.FULL
    assert (out == GUARD).all()
    assert decode_frame(frame, out) == lz4_kernels.FULL


def test_a_frame_of_more_than_the_limit_is_refused() -> None:
    frame = compress(Codec.LZ4, bytes(BLOCK_BYTES + 1))
    out = np.empty(3 * BLOCK_BYTES, np.uint8)

    assert decode_frame(frame, out, BLOCK_BYTES + 1) == BLOCK_BYTES + 1
    assert decode_frame(frame, out, BLOCK_BYTES) == lz4_kernels.REFUSED


def test_frames_of_other_kinds_are_left_to_plain_code() -> None:
    out = np.empty(LIMIT_BYTES, np.uint8)
    payload = b"siltstone " * 20_000
    linked = bytes(cramjam.lz4.compress(payload))

    assert decode_frame(linked, out) == lz4_kernels.REFUSED
    assert decompress(Codec.LZ4, linked) == payload


def test_a_block_that_repeats_nothing_is_refused() -> None:
    # A literal, then a match at a distance of 0, then literals as a block must end.
    block = bytes([0x10, ord("a"), 0, 0, 0x50]) + b"bcdef"

    assert decode_block(block) is None
    assert decode_block(block[:2] + b"\x01" + block[3:]) == b"aaaaabcdef"
