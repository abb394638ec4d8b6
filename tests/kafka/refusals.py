"""Kafka's refusals and ours: an operation that Kafka refuses, we refuse with the same meaning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from siltstone.errors import (
    CoordinatorFencedError,
    DecodeError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    OffsetOrderError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    SiltstoneError,
)
from tests.kafka.log_ops import KafkaRefusedError

# What a client would see, and our error for it.
KINDS: Final[Mapping[str, type[SiltstoneError]]] = {
    "CORRUPT_MESSAGE": DecodeError,
    "INVALID_PRODUCER_EPOCH": InvalidProducerEpochError,
    "INVALID_RECORD": InvalidRecordError,
    "INVALID_TIMESTAMP": InvalidTimestampError,
    "INVALID_TXN_STATE": InvalidTxnStateError,
    "MESSAGE_TOO_LARGE": RecordTooLargeError,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRangeError,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": OutOfOrderSequenceError,
    "RECORD_LIST_TOO_LARGE": RecordTooLargeError,
    "TRANSACTION_COORDINATOR_FENCED": CoordinatorFencedError,
    "UnexpectedAppendOffsetException": OffsetOrderError,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """An operation was refused, with an error that a client would see as `kind`."""

    kind: str
    message: str


def parse_refusal(error: KafkaRefusedError) -> Refused:
    kind = error.code_name if error.code_name in KINDS else error.exception
    return Refused(kind, str(error))


def expect_refusal(ours: object, theirs: Refused) -> None:
    assert isinstance(ours, Refused), (ours, theirs)
    assert theirs.kind in KINDS, theirs
    expected = KINDS[theirs.kind]
    assert ours.kind in {expected.__name__, *(c.__name__ for c in expected.__subclasses__())}, (
        ours,
        theirs,
    )
