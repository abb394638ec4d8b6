from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltstone.errors import ConfigError, UnknownSettingError
from siltstone.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    Kind,
    at_least,
    between,
    check_settings,
    choice,
    format_settings,
    list_of,
    markdown_table,
    parse_settings,
    setting,
    settings_of,
)

COLOURS: Kind[int] = choice({"red": 1, "blue": 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class KettleConfig:
    """Settings of a kettle."""

    fill_ratio: float = setting(
        "fill.ratio", DOUBLE, 0.5, between(0, 1), doc="How full it is.", synonyms=("fill",)
    )
    boil_ms: int = setting("boil.ms", INT, 100, at_least(0), doc="How long it boils.")
    colour: int = setting("colour", COLOURS, 1, doc="Red | blue.")
    owner: str = "nobody"

    def __post_init__(self) -> None:
        check_settings(self)


def test_only_declared_fields_are_settings_and_in_that_order() -> None:
    assert list(settings_of(KettleConfig)) == ["fill.ratio", "boil.ms", "colour"]


def test_a_default_is_the_value_of_the_attribute() -> None:
    assert KettleConfig().fill_ratio == 0.5
    assert KettleConfig().boil_ms == 100


def test_overrides_change_only_what_they_name() -> None:
    defaults = KettleConfig(boil_ms=7, owner="me")

    changed = parse_settings(defaults, {"fill.ratio": " 1 "})

    assert changed == KettleConfig(fill_ratio=1.0, boil_ms=7, owner="me")
    assert parse_settings(defaults, {}) is defaults


def test_zero_is_a_value_like_any_other() -> None:
    changed = parse_settings(KettleConfig(), {"fill.ratio": "0", "boil.ms": "0"})

    assert (changed.fill_ratio, changed.boil_ms) == (0.0, 0)


def test_settings_are_formatted_as_they_are_parsed() -> None:
    config = KettleConfig(fill_ratio=0.25, colour=2)

    texts = format_settings(config)

    assert texts == {"fill.ratio": "0.25", "boil.ms": "100", "colour": "blue"}
    assert parse_settings(KettleConfig(), texts) == config


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownSettingError) as caught:
        parse_settings(KettleConfig(), {"fil.ratio": "1"})

    assert str(caught.value) == "unknown setting fil.ratio: did you mean fill.ratio?"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("fill.ratio", "1.5", "fill.ratio must be 0 to 1, got 1.5"),
        ("fill.ratio", "nan", "fill.ratio must be a number, 0 to 1, got nan"),
        ("fill.ratio", "1_0", "fill.ratio must be a number, 0 to 1, got 1_0"),
        ("fill.ratio", "", "fill.ratio must be a number, 0 to 1, got "),
        ("fill.ratio", "1e999", "fill.ratio must be 0 to 1, got inf"),
        ("boil.ms", "-1", "boil.ms must be at least 0, got -1"),
        ("boil.ms", "1.0", "boil.ms must be a 32-bit integer, at least 0, got 1.0"),
        ("boil.ms", "0x10", "boil.ms must be a 32-bit integer, at least 0, got 0x10"),
        ("boil.ms", "\u0661", "boil.ms must be a 32-bit integer, at least 0, got \u0661"),
        ("colour", "green", "colour must be one of red, blue, got green"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_do(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(KettleConfig(), {name: text})

    assert str(caught.value) == message


def test_a_number_of_many_digits_is_refused_like_any_other() -> None:
    with pytest.raises(ConfigError, match=r"boil.ms must be a 32-bit integer"):
        parse_settings(KettleConfig(), {"boil.ms": "9" * 5000})


def test_bounds_hold_for_objects_made_in_code() -> None:
    with pytest.raises(ConfigError, match=r"fill.ratio must be 0 to 1, got nan"):
        KettleConfig(fill_ratio=float("nan"))


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"), [(INT, -(2**31), 2**31 - 1), (LONG, -(2**63), 2**63 - 1)]
)
def test_whole_numbers_have_javas_range(kind: Kind[int], lowest: int, highest: int) -> None:
    assert kind.parse(str(lowest)) == lowest
    assert kind.parse(f"+{highest}") == highest
    for beyond in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=str(beyond)):
            kind.parse(str(beyond))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_as_text(number: float) -> None:
    assert DOUBLE.parse(DOUBLE.format(number)) == number


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_a_boolean_is_true_or_false_in_any_case(text: str, value: bool) -> None:
    assert BOOLEAN.parse(text) is value
    assert BOOLEAN.format(value) == text.lower()


def test_a_list_takes_each_word_at_most_once() -> None:
    kind = list_of({"b": 2, "a": 1})

    assert kind.parse("b , a") == {1, 2}
    assert kind.parse("") == frozenset()
    assert kind.format(frozenset({2, 1})) == "a,b"
    for text in ("a,a", "a,", ",", "c", "A"):
        with pytest.raises(ValueError, match=text):
            kind.parse(text)


def test_the_table_has_a_line_for_each_setting() -> None:
    assert markdown_table(settings_of(KettleConfig).values()) == (
        "| name | type | default | allowed | broker setting | what it does |\n"
        "|---|---|---|---|---|---|\n"
        "| `fill.ratio` | double | `0.5` | 0 to 1 | `fill` | How full it is. |\n"
        "| `boil.ms` | int | `100` | at least 0 |  | How long it boils. |\n"
        "| `colour` | string | `red` | one of red, blue |  | Red \\| blue. |\n"
    )
