"""Our errors as Kafka's codes: the one table, and the one place that knows of surprises."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.coordinator.errors import CodedError
from siltstone.errors import (
    ChecksumError,
    ConfigError,
    CoordinatorFencedError,
    CorruptBatchError,
    DecodeError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordTooLargeError,
    RequestError,
    SiltstoneError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)

logger = logging.getLogger(__name__)

# Looked up along the classes of an error: the most specific one decides.
ERROR_CODES: Final[Mapping[type[BaseException], ErrorCode]] = MappingProxyType(
    {
        ConfigError: ErrorCode.invalid_config,
        UnknownTopicError: ErrorCode.unknown_topic_or_partition,
        TopicExistsError: ErrorCode.topic_already_exists,
        UsageError: ErrorCode.invalid_request,
        CorruptBatchError: ErrorCode.kafka_storage_error,
        StorageError: ErrorCode.kafka_storage_error,
        OffsetOutOfRangeError: ErrorCode.offset_out_of_range,
        ChecksumError: ErrorCode.corrupt_message,
        DecodeError: ErrorCode.invalid_record,
        InvalidTimestampError: ErrorCode.invalid_timestamp,
        InvalidRecordError: ErrorCode.invalid_record,
        RecordTooLargeError: ErrorCode.message_too_large,
        PolicyViolationError: ErrorCode.policy_violation,
        OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
        InvalidProducerEpochError: ErrorCode.invalid_producer_epoch,
        InvalidTxnStateError: ErrorCode.invalid_txn_state,
        CoordinatorFencedError: ErrorCode.transaction_coordinator_fenced,
        RequestError: ErrorCode.invalid_request,
        SiltstoneError: ErrorCode.unknown_server_error,
    }
)


class ProtocolError(CodedError):
    """An answer that only the wire knows."""


def code_of(error: Exception, what: object) -> ErrorCode:
    """Return the code for an error; one that nobody expected is logged with what was asked."""
    if isinstance(error, CodedError):
        return error.code
    if isinstance(error, RecordTooLargeError) and error.setting == "segment.bytes":
        return ErrorCode.record_list_too_large
    for error_type in type(error).__mro__:
        code = ERROR_CODES.get(error_type)
        if code is not None:
            return code
    logger.error("a bug: %s failed", what, exc_info=error)
    return ErrorCode.unknown_server_error


def describe(error: Exception) -> str | None:
    """Say to a client what is wrong; a surprise of ours is for our own log."""
    return str(error) if isinstance(error, SiltstoneError) else None
