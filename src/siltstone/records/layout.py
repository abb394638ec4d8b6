"""The v2 batch header in numbers: widths, positions and attribute bits, and nothing else."""

import struct
from typing import Final

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size  # 61
LOG_OVERHEAD: Final = 12  # base offset and length, which `length` does not count
MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD  # 49: a v2 batch without records
MAX_LENGTH: Final = 2**31 - 1 - LOG_OVERHEAD  # the size of the whole batch is an int to Kafka
MIN_LEGACY_LENGTH: Final = 14  # of magic 0; anything shorter is no batch of any version

LENGTH_POSITION: Final = 8
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21  # the CRC covers from here to the end
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35

# What a leader may change without a new CRC: base offset, length, leader epoch.
STAMP: Final = struct.Struct(">qii")

MAGIC: Final = 2

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

MAX_SEQUENCE: Final = 2**31 - 1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
