import pytest

from siltstone.cli.output import encode_bytes, format_bytes, format_size, format_time
from siltstone.cli.tables import Column, print_table


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (1_503_238_554, "1.4 GiB"),
        (2**63 - 1, "8.0 EiB"),
    ],
)
def test_sizes_are_written_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (1_600_000_000_007, "2020-09-13 12:26:40.007Z"),
        (-1, "-"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_times_are_in_utc(timestamp_ms: int, text: str) -> None:
    assert format_time(timestamp_ms) == text


def test_bytes_are_text_where_they_are_utf8_and_hexadecimal_where_not() -> None:
    assert format_bytes("grüße".encode()) == "grüße"
    assert format_bytes(b"\xff\x00") == "0xff00"
    assert format_bytes(b"") == ""
    assert format_bytes(None) == "null"


def test_json_says_how_bytes_were_encoded() -> None:
    assert encode_bytes(b"abc") == ("abc", "utf8")
    assert encode_bytes(b"\xff") == ("/w==", "base64")
    assert encode_bytes(b"") == ("", "utf8")
    assert encode_bytes(None) == (None, None)


def test_a_table_in_a_pipe_is_neither_coloured_nor_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    long_name = "t" * 249

    print_table(
        [Column("TOPIC"), Column("SIZE", is_number=True)], [[long_name, "7"], ["[b]", "42"]]
    )

    assert capsys.readouterr().out.splitlines() == [
        f"{'TOPIC':<249}  SIZE",
        f"{long_name}     7",
        f"{'[b]':<249}    42",
    ]
