"""Keys that are hashed side by side, against keys that are hashed one by one."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltstone.cleaner import hash_kernels

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
