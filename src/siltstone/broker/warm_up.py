"""Call every kernel of the append path once before the first client comes.

A first call loads compiled code, and where none is cached compiles it: seconds that otherwise the
first producer would wait for.
"""

from siltstone.records.batch import read_batch
from siltstone.records.builder import build_batch
from siltstone.records.compression import Codec
from siltstone.records.record import Record
from siltstone.records.scan import check_records

_RECORD = Record(offset=0, timestamp_ms=0, key=b"k", value=b"v")


def warm_up() -> None:
    """Check a plain and a compressed batch as an append does."""
    for codec in (Codec.NONE, Codec.LZ4):
        batch = read_batch(build_batch([_RECORD], codec=codec))
        batch.check_crc()
        check_records(batch, needs_keys=True, oldest_ms=0, newest_ms=1, limit_bytes=1 << 20)
