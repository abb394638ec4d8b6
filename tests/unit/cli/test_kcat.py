import pytest

from siltstone.cli.kcat import (
    ConsumedRecord,
    Format,
    Range,
    StartKind,
    parse_header,
    parse_range,
    to_json,
    unescape,
)
from siltstone.errors import UsageError
from siltstone.records.batch import TimestampType
from siltstone.records.record import Header, Record


def consumed(
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    headers: tuple[Header, ...] = (),
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> ConsumedRecord:
    return ConsumedRecord("orders", 3, timestamp_type, Record(42, 1600, key, value, headers))


def test_a_format_has_a_token_for_every_part_of_a_record() -> None:
    record = consumed(headers=(("a", b"1"), ("b", None), ("c", b"")))

    rendered = Format(r"%t [%p] at %o: %k(%K) = %s(%S) %T %h 100%%\n").render(record)

    assert rendered == b"orders [3] at 42: k(1) = value(5) 1600 a=1,b=NULL,c= 100%\n"


def test_the_length_can_be_written_as_four_bytes_for_a_program() -> None:
    assert Format("%R%s").render(consumed()) == b"\0\0\0\x05value"
    assert Format("%R%s").render(consumed(value=None)) == b"\xff\xff\xff\xff"


def test_a_format_writes_the_bytes_as_they_are_and_null_as_nothing() -> None:
    record = consumed(key=None, value=b"\xff\x00")

    assert Format("%k|%s|%K").render(record) == b"|\xff\x00|-1"
    assert Format("%k|%s", shows_null=True).render(record) == b"NULL|\xff\x00"
    assert Format("%k|%s", readable=True).render(record) == b"null|0xff00"


def test_an_empty_value_is_not_null() -> None:
    assert Format("%s|%S", shows_null=True).render(consumed(value=b"")) == b"|0"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (r"\n\r\t", b"\n\r\t"),
        (r"\x1f\xA", b"\x1f\n"),
        (r"\0", b"\0"),
        (r"\033", b"\x1b"),
        (r"\65", b"A"),
        (r"\\n", b"\\n"),
        (r"\q", b"q"),
        ("ä", "ä".encode()),
        ("\\", b"\\"),
    ],
)
def test_escapes(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.parametrize("text", ["%q", "100%", "%"])
def test_an_unknown_token_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^-f: unknown token %.?: use %s %S %R"):
        Format(text)


def test_json_is_in_the_shape_of_kcat() -> None:
    record = consumed(headers=(("a", b"1"), ("b", None)))

    assert to_json(record) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "tstype": "create",
        "ts": 1600,
        "broker": -1,
        "headers": ["a", "1", "b", None],
        "key": "k",
        "key_encoding": "utf8",
        "payload": "value",
        "value_encoding": "utf8",
    }


def test_json_of_a_tombstone_and_of_bytes_that_are_no_text() -> None:
    record = consumed(b"\xff", None, (("h", b"\xfe"),), TimestampType.LOG_APPEND_TIME)

    document = to_json(record)

    assert document["tstype"] == "logappend"
    assert document["payload"] is None
    assert "value_encoding" not in document
    assert (document["key"], document["key_encoding"]) == ("/w==", "base64")
    assert (document["headers"], document["headers_encoding"]) == (["h", "/g=="], ["base64"])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], Range(StartKind.BEGINNING)),
        (["beginning"], Range(StartKind.BEGINNING)),
        (["end"], Range(StartKind.END)),
        (["0"], Range(StartKind.OFFSET, 0)),
        (["17"], Range(StartKind.OFFSET, 17)),
        (["-5"], Range(StartKind.TAIL, 5)),
        (["s@1600"], Range(StartKind.TIME, 1600)),
        (["e@1700"], Range(StartKind.BEGINNING, 0, 1700)),
        (["s@1600", "e@1700"], Range(StartKind.TIME, 1600, 1700)),
        (["e@1700", "-5"], Range(StartKind.TAIL, 5, 1700)),
    ],
)
def test_where_to_begin_and_when_to_stop(texts: list[str], expected: Range) -> None:
    assert parse_range(texts) == expected


@pytest.mark.parametrize("text", ["stored", "s@", "e@x", "--5", "1.5", "", "9" * 20, "٣"])
def test_another_starting_point_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="use beginning, end, N, -N, s@ms or e@ms"):
        parse_range([text])


def test_two_starting_points_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^-o 1 -o 2: give one start"):
        parse_range(["1", "2"])


def test_headers_may_be_null_empty_or_contain_the_sign() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)


@pytest.mark.parametrize("text", ["", "=x"])
def test_a_header_needs_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="has no name"):
        parse_header(text)
