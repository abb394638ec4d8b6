"""Keys that are hashed side by side, against keys that are hashed one by one."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner import hash_kernels
from siltstone.records.layout import HEADER_SIZE

WORDS = st.integers(0, 2**64 - 1)


@given(
    st.integers(0, 8 * hash_kernels.MAX_WORDS - 1).flatmap(
        lambda length: st.lists(
            st.binary(min_size=length, max_size=length), min_size=1, max_size=20
        )
    ),
    WORDS,
    WORDS,
    st.integers(0, 9),
)
def test_columns_have_the_hashes_of_their_keys(
    keys: list[bytes], word0: int, word1: int, before: int
) -> None:
    key0: Any = np.uint64(word0)
    key1: Any = np.uint64(word1)
    length = len(keys[0])
    data = np.frombuffer(bytes(before) + b"".join(keys), np.uint8)
    words = np.zeros((hash_kernels.MAX_WORDS, len(keys)), np.uint64)
    lows, highs = np.empty((2, len(keys)), np.uint64)
    for i in range(len(keys)):
        hash_kernels.put_words(data, before + i * length, length, words, i)

    hash_kernels.hash_columns(words, length // 8 + 1, len(keys), key0, key1, lows, highs)

    one_by_one = [
        hash_kernels.siphash128(data, before + i * length, length, key0, key1)
        for i in range(len(keys))
    ]
    assert list(zip(lows.tolist(), highs.tolist(), strict=True)) == one_by_one


@given(
    st.lists(st.none() | st.binary(max_size=8 * hash_kernels.MAX_WORDS + 8), max_size=20)
    | st.lists(st.binary(min_size=8, max_size=15), max_size=20)
    | st.lists(st.binary(min_size=13, max_size=13), max_size=20)
    | st.lists(st.none() | st.binary(min_size=16, max_size=16), max_size=20),
    WORDS,
    WORDS,
)
def test_a_batch_has_the_hashes_of_its_keys(
    keys: list[bytes | None], word0: int, word1: int
) -> None:
    key0: Any = np.uint64(word0)
    key1: Any = np.uint64(word1)
    count = len(keys)
    data = np.frombuffer(bytes(HEADER_SIZE) + b"".join(key or b"" for key in keys), np.uint8)
    lengths = [-1 if key is None else len(key) for key in keys]
    ends = HEADER_SIZE + np.cumsum([max(length, 0) for length in lengths], dtype=np.int64)
    places = np.zeros((2, count + 1), np.int64)
    places[0, :count] = ends - np.maximum(lengths, 0)
    places[1, :count] = lengths
    words = np.zeros((hash_kernels.MAX_WORDS, count), np.uint64)
    lows, highs = np.zeros((2, count), np.uint64)

    hash_kernels.hash_batch(data, places, count, words, key0, key1, lows, highs)

    for number, (position, length) in enumerate(places.T[:count].tolist()):
        if length >= 0:
            one = hash_kernels.siphash128(data, position, length, key0, key1)
            assert (lows[number], highs[number]) == one
