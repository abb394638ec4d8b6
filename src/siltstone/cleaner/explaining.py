"""Why a kernel refused a batch: kernels only say that, and the plain code says why."""

from collections.abc import Callable
from typing import NoReturn

from siltstone.cleaner.chunks import Chunk
from siltstone.errors import CorruptBatchError, DecodeError
from siltstone.log.filesystem import File
from siltstone.records import kernels
from siltstone.records.batch import Batch


def check_chunk(file: File, chunk: Chunk) -> None:
    """Check the CRC of each batch; raise CorruptBatchError."""
    bad, _ = kernels.check_batches(chunk.data, chunk.batches)
    if bad >= 0:
        explain_crc(file, chunk, bad)


def explain_crc(file: File, chunk: Chunk, number: int) -> NoReturn:
    """Ask the plain code what is wrong with the CRC of a batch, and raise that."""
    _explain(file, chunk, number, Batch.check_crc)


def explain(file: File, chunk: Chunk, number: int) -> NoReturn:
    """Ask the plain code what is wrong with the records of a batch, and raise that."""
    _explain(file, chunk, number, lambda batch: list(batch.iter_records()))


def _explain(file: File, chunk: Chunk, number: int, check: Callable[[Batch], object]) -> NoReturn:
    try:
        check(chunk.batch_at(number))
    except DecodeError as error:
        position = chunk.position + int(chunk.batches["position"][number])
        raise CorruptBatchError(file.path, position, error.reason) from error
    raise AssertionError(f"kernel and twin disagree about batch {number} of {file.path}")
