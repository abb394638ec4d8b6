"""SipHash-128 of keys, compiled by numba: one at a time, or the keys of a batch side by side."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit

from siltstone.records.intrinsics import load_u64

MAX_WORDS: Final = 8  # of a key that is hashed together with others: up to 63 bytes


@njit(cache=True, nogil=True, inline="always")  # or the loops around it are not vectorised
def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = v0 + v1
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 = v2 + v3
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 = v0 + v3
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 = v2 + v1
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@njit(cache=True, nogil=True, inline="always")
def _begin(key0: int, key1: int) -> tuple[int, int, int, int]:
    return (
        key0 ^ np.uint64(0x736F6D6570736575),
        key1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE),
        key0 ^ np.uint64(0x6C7967656E657261),
        key1 ^ np.uint64(0x7465646279746573),
    )


@njit(cache=True, nogil=True, inline="always")
def _absorb(v0: int, v1: int, v2: int, v3: int, word: int) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@njit(cache=True, nogil=True, inline="always")
def _finish(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int]:
    v0, v1, v2, v3 = _sip_round(v0, v1, v2 ^ np.uint64(0xEE), v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _sip_round(v0, v1 ^ np.uint64(0xDD), v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True)
def siphash128(data: Any, start: int, length: int, key0: int, key1: int) -> tuple[int, int]:
    """Return SipHash-2-4 with 128 bits of `data[start:start + length]`. Twin: `siphash`."""
    v0, v1, v2, v3 = _begin(key0, key1)
    position = start
    end = start + length
    while position + 8 <= end:
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load_u64(data, position))
        position += 8
    word = np.uint64(length & 0xFF) << np.uint64(56)
    shift = 0
    while position < end:
        word |= np.uint64(data[position]) << np.uint64(shift)
        shift += 8
        position += 1
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, word)
    return _finish(v0, v1, v2, v3)


@njit(cache=True, nogil=True, inline="always")
def put_words(data: Any, start: int, length: int, words: Any, column: int) -> None:
    """Cut a key into words as SipHash takes them, the last one with the length in it."""
    end = start + length
    row = length >> 3
    for i in range(row):
        words[i, column] = load_u64(data, start + 8 * i)
    word = np.uint64(length & 0xFF) << np.uint64(56)
    left = length & 7
    if left > 0:
        if end >= 8:
            # The last bytes by one load that ends with them.
            word |= load_u64(data, end - 8) >> np.uint64(64 - 8 * left)
        else:
            for i in range(left):
                word |= np.uint64(data[end - left + i]) << np.uint64(8 * i)
    words[row, column] = word


@njit(cache=True, nogil=True)
def _put_columns(data: Any, positions: Any, length: int, words: Any) -> None:
    """Cut keys of one length into words, column by column. Twin: `put_words`.

    There is a batch header before the first key, so that no load begins before the data.
    """
    row = length >> 3
    for i in range(row):
        column = words[i]
        for k in range(positions.size):
            column[k] = load_u64(data, positions[k] + 8 * i)
    column = words[row]
    word = np.uint64(length & 0xFF) << np.uint64(56)
    left = length & 7
    if left == 0:
        column[: positions.size] = word
    else:
        shift = np.uint64(64 - 8 * left)
        for k in range(positions.size):
            column[k] = word | (load_u64(data, positions[k] + length - 8) >> shift)


def _make_unrolled(word_count: int) -> Callable[..., None]:
    """Compile the loop over keys of so many words: a straight line, for several keys at a time."""

    @njit(cache=True, nogil=True)
    def hash_unrolled(words: Any, count: int, key0: int, key1: int, lows: Any, highs: Any) -> None:
        for i in range(count):
            v0, v1, v2, v3 = _begin(key0, key1)
            for row in range(word_count):
                v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, words[row, i])
            lows[i], highs[i] = _finish(v0, v1, v2, v3)

    return hash_unrolled


_hash_1, _hash_2, _hash_3, _hash_4 = (_make_unrolled(count) for count in (1, 2, 3, 4))
_hash_5, _hash_6, _hash_7, _hash_8 = (_make_unrolled(count) for count in (5, 6, 7, 8))


@njit(cache=True, nogil=True)
def hash_columns(
    words: Any, word_count: int, count: int, key0: int, key1: int, lows: Any, highs: Any
) -> None:
    """Hash many keys of as many words at once: column i of `words` is key i. Twin: `siphash128`."""
    if word_count == 1:
        _hash_1(words, count, key0, key1, lows, highs)
    elif word_count == 2:
        _hash_2(words, count, key0, key1, lows, highs)
    elif word_count == 3:
        _hash_3(words, count, key0, key1, lows, highs)
    elif word_count == 4:
        _hash_4(words, count, key0, key1, lows, highs)
    elif word_count == 5:
        _hash_5(words, count, key0, key1, lows, highs)
    elif word_count == 6:
        _hash_6(words, count, key0, key1, lows, highs)
    elif word_count == 7:
        _hash_7(words, count, key0, key1, lows, highs)
    else:
        _hash_8(words, count, key0, key1, lows, highs)


@njit(cache=True, nogil=True)
def hash_batch(
    data: Any, keys: Any, count: int, words: Any, key0: int, key1: int, lows: Any, highs: Any
) -> None:
    """Hash the keys of a batch: `keys` has a row of positions and one of lengths.

    A length of -1 is that of no key, which has no hash either: what is said of it means nothing.
    `words` is room for as many keys. Twin: `siphash128` of each.
    """
    if count == 0:
        return
    positions = keys[0, :count]
    lengths = keys[1, :count]
    shortest = lengths[0]
    longest = lengths[0]
    for i in range(count):
        shortest = min(shortest, lengths[i])
        longest = max(longest, lengths[i])
    row = longest >> 3
    is_uniform = 0 <= row < MAX_WORDS
    if is_uniform and shortest == longest:
        _put_columns(data, positions, longest, words)
    elif is_uniform:
        for i in range(count):
            if lengths[i] >= 0:
                if lengths[i] >> 3 != row:
                    is_uniform = False
                    break
                put_words(data, positions[i], lengths[i], words, i)
    if is_uniform:
        hash_columns(words, row + 1, count, key0, key1, lows, highs)
    else:
        for i in range(count):
            if lengths[i] >= 0:
                lows[i], highs[i] = siphash128(data, positions[i], lengths[i], key0, key1)
