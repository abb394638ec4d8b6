import pytest

from siltstone.errors import MalformedDataError
from siltstone.records.control import (
    ControlType,
    Marker,
    decode_control_type,
    decode_marker,
    encode_marker,
)
from siltstone.records.record import Record


def control_record(key: str | None, value: str | None) -> Record:
    return Record(
        0,
        0,
        None if key is None else bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
    )


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_reads_back(control_type: ControlType) -> None:
    record = encode_marker(Marker(control_type, 5), offset=4, timestamp_ms=9)

    assert record == Record(
        4, 9, bytes([0, 0, 0, control_type]), bytes.fromhex("0000 00000005"), ()
    )
    assert decode_marker(record) == Marker(control_type, 5)


def test_a_marker_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    record = control_record("0007 0001 ff", "0003 00000005 ffff")

    assert decode_marker(record) == Marker(ControlType.COMMIT, 5)


@pytest.mark.parametrize("control_type", list(ControlType)[2:])
def test_a_control_record_that_ends_no_transaction_is_no_marker(control_type: ControlType) -> None:
    record = control_record(f"0000 {control_type:04x}", None)

    assert decode_control_type(record) is control_type
    assert decode_marker(record) is None


@pytest.mark.parametrize("number", ["0007", "ffff"])
def test_an_unknown_control_type_is_none_and_no_error(number: str) -> None:
    record = control_record("0000" + number, "00")

    assert decode_control_type(record) is None
    assert decode_marker(record) is None


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "control record key of 0 bytes is too small"),
        ("000000", None, "control record key of 3 bytes is too small"),
        ("ffff0001", None, "unknown control record version -1"),
        ("00000001", None, "transaction marker of 0 bytes is too small"),
        ("00000001", "0000000000", "transaction marker of 5 bytes is too small"),
        ("00000000", "800000000000", "unknown transaction marker version -32768"),
    ],
)
def test_a_malformed_marker_says_what_is_wrong(
    key: str | None, value: str | None, reason: str
) -> None:
    with pytest.raises(MalformedDataError) as caught:
        decode_marker(control_record(key, value))
    assert caught.value.reason == reason
