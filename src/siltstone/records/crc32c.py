"""CRC-32C (Castagnoli), the checksum of a v2 batch."""

import crc32c as _crc32c

from siltstone.records.varint import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of `data`, going on from `value` when the data comes in parts."""
    return _crc32c.crc32c(data, value)
