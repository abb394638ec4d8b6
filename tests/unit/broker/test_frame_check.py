"""The arrays of a request are measured before anybody makes room for them."""

import struct
import uuid
from typing import Any, NamedTuple

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from siltstone.broker.frame_check import check_frame, skipper
from siltstone.broker.wire import BadFrameError, decode
from siltstone.errors import DecodeError
from tests.clients.test_every_version import (
    EVERY_VERSION,
    IN_TRANSACTION,
    values_for,
    values_in_transaction,
)
from tests.support.serving import frame_of


class SomeProducer(NamedTuple):
    """A producer that no broker knows."""

    transactional_id: str
    producer_id: int
    epoch: int


def body_of(api_key: int, version: int) -> tuple[Any, memoryview, int]:
    if api_key in IN_TRANSACTION:
        values = values_in_transaction(api_key, "topic", SomeProducer("name", 7, 3))
    else:
        values = values_for(api_key, "topic", uuid.UUID(int=5))
    frame = memoryview(frame_of(api_key, version, values))[4:]
    request_type = load_request_schema(api_key, version)
    _, size = entity_reader(request_type.__header_schema__)(frame, 0)
    return request_type, frame, size


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_a_request_is_skipped_exactly(api_key: int, version: int) -> None:
    request_type, frame, position = body_of(api_key, version)

    assert skipper(request_type)(frame, position) == len(frame)


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_no_request_is_taken_whose_arrays_are_longer_than_itself(
    api_key: int, version: int
) -> None:
    _, frame, position = body_of(api_key, version)

    for at in range(position, len(frame) - 4):
        for claim in (struct.pack(">i", 2**31 - 1), b"\xff\xff\xff\xff\x7f"):
            spoilt = bytearray(frame)
            spoilt[at : at + len(claim)] = claim
            # It may well make sense, as a number or as text: but it must not end the process.
            try:
                decode(memoryview(bytes(spoilt)), "host")
            except BadFrameError:
                continue


def test_an_array_that_cannot_be_is_named() -> None:
    request_type, frame, position = body_of(3, 12)
    spoilt = bytearray(frame)
    spoilt[position : position + 5] = b"\xff\xff\xff\xff\x7f"

    with pytest.raises(DecodeError, match="an array of 34359738366 in"):
        check_frame(request_type, memoryview(bytes(spoilt)), position)
