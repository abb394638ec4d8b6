import pytest

from siltstone.records.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # RFC 3720, appendix B.4, and the check value that catalogues of CRCs give
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_checksum_is_castagnolis(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_the_checksum_of_two_parts_is_the_checksum_of_both() -> None:
    assert crc32c(memoryview(b"56789"), crc32c(bytearray(b"1234"))) == 0xE3069283
