"""Request frames that went wrong: changed, cut, lengthened, and with numbers that lie."""

import random
import struct
from collections.abc import Iterator

BODY_POSITION = 12  # behind size, API key, version and correlation id
_SIZE = struct.Struct(">i")
_HUGE_INT = b"\x7f\xff\xff\xff"
_HUGE_VARINT = b"\xff\xff\xff\xff\x07"


def spoil(frame: bytes, chance: random.Random) -> bytes:
    """Return the frame with some damage behind its correlation id; its size is right."""
    data = bytearray(frame)
    at = chance.randrange(BODY_POSITION, len(data))
    match chance.randrange(6):
        case 0:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(BODY_POSITION, len(data))] = chance.randrange(256)
        case 1:
            data[at] ^= 1 << chance.randrange(8)
        case 2:
            del data[at:]
        case 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 4:
            width = chance.choice((1, 2, 4, 8))
            data[at : at + width] = chance.choice((b"\xff", b"\x7f", b"\x80", b"\x00")) * width
        case 5:
            # A piece once more, or somewhere else.
            end = chance.randrange(at, len(data)) + 1
            data[at:at] = data[at:end] * chance.randrange(1, 4)
    return _sized(data)


def claim_much(frame: bytes) -> Iterator[bytes]:
    """Put the largest number of either kind at every place, so also where arrays have lengths."""
    for at in range(BODY_POSITION, len(frame)):
        yield _sized(frame[:at] + _HUGE_INT + frame[at + 4 :])
        yield _sized(frame[:at] + _HUGE_VARINT + frame[at + 1 :])


def spoil_head(frame: bytes, chance: random.Random) -> bytes:
    """Return the frame with a size that is not true, or with another API or version."""
    data = bytearray(frame)
    match chance.randrange(3):
        case 0:
            claimed = chance.choice((-(2**31), -1, 0, 7, 8, 11, 2**31 - 1, 104_857_600))
            _SIZE.pack_into(data, 0, claimed)
        case 1:
            _SIZE.pack_into(data, 0, chance.randrange(2 * len(data)))
        case 2:
            data[chance.randrange(4, 8)] = chance.randrange(256)
    return bytes(data)


def _sized(data: bytes | bytearray) -> bytes:
    return _SIZE.pack(len(data) - _SIZE.size) + data[_SIZE.size :]
