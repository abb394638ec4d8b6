"""Patterns of clients: RE2's, and none that takes for ever."""

import pytest

from siltstone.coordinator.patterns import check_pattern, find_matches, find_topics
from siltstone.errors import DecodeError


def test_a_pattern_matches_names_from_end_to_end() -> None:
    names = ("orders", "orders-eu", "old-orders", "größe")

    assert find_matches("orders.*", names) == {"orders", "orders-eu"}
    assert find_matches(r"\pL+", names) == {"orders", "größe"}
    assert find_matches("", names) == frozenset()


@pytest.mark.timeout(20)
def test_no_pattern_takes_for_ever() -> None:
    names = tuple("a" * length + "!" for length in range(100, 249))

    assert find_matches("(a|aa)+", names) == frozenset()


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "((a{100}){100})"])
def test_what_re2_does_not_take_is_no_pattern(pattern: str) -> None:
    with pytest.raises(DecodeError, match="is no pattern"):
        check_pattern(pattern)


def test_topics_of_the_brokers_match_nothing_and_what_is_no_pattern_matches_none() -> None:
    assert find_topics(".*", ("__consumer_offsets", "t")) == {"t"}
    assert find_topics("(", ("t",)) == frozenset()
