"""Transactions in raw frames: every step, in both versions of the protocol, and what is refused."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from siltstone.broker import wire
from siltstone.records.batch import iter_batches
from tests.clients.conftest import MakeTopic
from tests.support.serving import RawClient
from tests.support.transactions import RawProducer, fetch, find_coordinator, patiently
from tests.support.waiting import wait_until

MakeProducer = Callable[..., RawProducer]


@pytest.fixture
def new_id() -> str:
    return f"txn-{uuid.uuid4()}"


@pytest.fixture
def make_producer(raw: RawClient, new_id: str) -> MakeProducer:
    def make(version: int = 2) -> RawProducer:
        return RawProducer(raw, new_id, version=version).init()

    return make


def batches(part: Any) -> list[tuple[int, bool, int]]:
    """Return (base offset, whether a marker, epoch) of each batch of an answer."""
    headers = [batch.header for _, batch in iter_batches(part.records or b"")]
    return [(h.base_offset, h.is_control, h.producer_epoch) for h in headers]


def stable_offset(raw: RawClient, topic: str) -> int:
    return int(fetch(raw, topic).last_stable_offset)


def wait_until_stable(raw: RawClient, topic: str, offset: int) -> Any:
    """Wait for the marker: a real Kafka answers before it is written."""
    wait_until(lambda: stable_offset(raw, topic) >= offset)
    return fetch(raw, topic)


def listed_state(raw: RawClient, producer: RawProducer) -> str:
    """Return the state by its name; described, an empty one has a time that kio cannot read."""
    answer = raw.ask(
        wire.LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=(producer.producer_id,)
    )
    (found,) = answer.transaction_states
    return str(found.transaction_state)


# Becoming a producer


def test_each_initialisation_gets_the_next_epoch(raw: RawClient, new_id: str) -> None:
    first = RawProducer(raw, new_id).init()
    second = RawProducer(raw, new_id).init()

    assert (first.epoch, second.epoch) == (0, 1)
    assert first.producer_id == second.producer_id


def test_a_producer_that_goes_on_after_an_error_says_who_it_was(
    raw: RawClient, new_id: str
) -> None:
    producer = RawProducer(raw, new_id).init()
    was = {"producer_id": producer.producer_id, "producer_epoch": 0}

    raised = producer.ask_init(**was)
    repeated = producer.ask_init(**was)
    RawProducer(raw, new_id).init()
    fenced = producer.ask_init(**was)
    fenced_in_old_words = producer.ask_init(3, **was)

    assert (raised.error_code, raised.producer_epoch) == (ErrorCode.none, 1)
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.none, 1)
    assert fenced.error_code == ErrorCode.producer_fenced
    assert fenced_in_old_words.error_code == ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"timeout_ms": 900_001}, ErrorCode.invalid_transaction_timeout),
        ({"timeout_ms": 0}, ErrorCode.invalid_transaction_timeout),
        ({"producer_id": 5}, ErrorCode.invalid_request),
        ({"producer_epoch": 5}, ErrorCode.invalid_request),
    ],
)
def test_an_initialisation_that_makes_no_sense_is_refused(
    raw: RawClient, new_id: str, values: dict[str, Any], code: ErrorCode
) -> None:
    find_coordinator(raw, new_id)

    answer = RawProducer(raw, new_id).ask_init(**values)

    assert (answer.error_code, answer.producer_id) == (code, -1)


def test_an_empty_transactional_id_is_refused(raw: RawClient) -> None:
    assert RawProducer(raw, "").ask_init().error_code == ErrorCode.invalid_request


def test_who_takes_over_aborts_and_fences_who_was_there(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    old = make_producer()
    old.produce(topic, b"left behind")

    assert RawProducer(raw, old.transactional_id).ask_init().error_code == (
        ErrorCode.concurrent_transactions
    )
    new = make_producer()

    assert new.epoch == 2  # One for the abort, one for the new producer.
    refused = old.ask_produce(topic, b"too late", version=12)
    assert refused.error_code == ErrorCode.invalid_producer_epoch
    assert old.ask_end(commit=True).error_code == ErrorCode.producer_fenced
    part = wait_until_stable(raw, topic, 2)
    assert [txn.first_offset for txn in part.aborted_transactions] == [0]
    assert batches(part) == [(0, False, 0), (1, True, 1)]


# Writing


@pytest.mark.parametrize("version", [1, 2])
def test_committed_records_are_seen_and_aborted_ones_are_named(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer, version: int
) -> None:
    topic = make_topic()
    producer = make_producer(version)

    assert producer.produce(topic, b"a", b"b") == 0
    assert stable_offset(raw, topic) == 0
    assert batches(fetch(raw, topic)) == []
    producer.end(commit=True)
    wait_until_stable(raw, topic, 3)
    assert producer.produce(topic, b"c") == 3
    assert stable_offset(raw, topic) == 3
    producer.end(commit=False)
    part = wait_until_stable(raw, topic, 5)

    epochs = [0, 0, 0, 0] if version == 1 else [0, 1, 1, 2]
    expected = zip([0, 2, 3, 4], [False, True, False, True], epochs, strict=True)
    assert batches(part) == list(expected)
    assert [(txn.producer_id, txn.first_offset) for txn in part.aborted_transactions] == [
        (producer.producer_id, 3)
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.invalid_txn_state),
        (10, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable),
    ],
)
def test_a_batch_outside_of_its_transaction_is_refused(
    raw: RawClient,
    make_topic: MakeTopic,
    make_producer: MakeProducer,
    version: int,
    code: ErrorCode,
) -> None:
    topic = make_topic(2)
    producer = make_producer(1)
    producer.produce(topic, b"inside", partition=1)

    refused = producer.ask_produce(topic, b"outside", version=version)

    assert refused.error_code == code
    assert fetch(raw, topic, committed=False).high_watermark == 0


def test_a_batch_that_comes_after_the_end_is_refused(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer()
    producer.produce(topic, b"a")
    late = RawProducer(raw, producer.transactional_id)
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    late.sequences = dict(producer.sequences)
    producer.end(commit=True)
    wait_until_stable(raw, topic, 2)

    refused = late.ask_produce(topic, b"late", version=12)

    assert refused.error_code == ErrorCode.invalid_producer_epoch
    assert stable_offset(raw, topic) == fetch(raw, topic).high_watermark == 2


def test_a_producer_id_of_somebody_else_is_refused(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer()
    producer.producer_id += 1_000_000

    assert producer.add(topic, 0) == [ErrorCode.invalid_producer_id_mapping]
    assert producer.verify(topic, 0) == {0: ErrorCode.invalid_producer_id_mapping}
    assert producer.ask_end(commit=True).error_code == ErrorCode.invalid_producer_id_mapping
    refused = producer.ask_produce(topic, b"a", version=12)
    assert refused.error_code == ErrorCode.invalid_producer_id_mapping


def test_no_partition_is_added_if_one_is_not_there(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer()

    codes = producer.add(topic, 0, 7)

    assert codes == [ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition]
    assert listed_state(raw, producer) == "Empty"


def test_a_partition_below_the_first_is_not_there(
    make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    assert make_producer().add(make_topic(), -1) == [ErrorCode.unknown_topic_or_partition]


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (3, ErrorCode.producer_fenced)]
)
def test_a_fenced_producer_adds_no_partitions(
    raw: RawClient,
    make_topic: MakeTopic,
    make_producer: MakeProducer,
    version: int,
    code: ErrorCode,
) -> None:
    topic = make_topic()
    old = make_producer()
    make_producer()

    assert old.add(topic, 0, version=version) == [code]


def test_verification_says_which_partitions_are_in_the_transaction(
    make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic(2)
    producer = make_producer()
    producer.produce(topic, b"a", partition=1)

    assert producer.verify(topic, 0, 1) == {0: ErrorCode.transaction_abortable, 1: ErrorCode.none}
    producer.epoch += 1
    assert producer.verify(topic, 1) == {1: ErrorCode.producer_fenced}


# Ending


def test_ends_that_make_no_sense_in_the_first_version(
    make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer(1)
    assert producer.ask_end(commit=True).error_code == ErrorCode.invalid_txn_state
    assert producer.ask_end(commit=False).error_code == ErrorCode.invalid_txn_state
    producer.produce(topic, b"a")
    producer.end(commit=True)

    repeated = patiently(lambda: producer.ask_end(commit=True), lambda a: a.error_code)
    changed = producer.ask_end(commit=False)
    producer.epoch += 1
    unknown = producer.ask_end(commit=True)
    unknown_in_old_words = producer.ask_end(commit=True, version=1)

    assert repeated.error_code == ErrorCode.none
    assert changed.error_code == ErrorCode.invalid_txn_state
    assert unknown.error_code == ErrorCode.producer_fenced
    assert unknown_in_old_words.error_code == ErrorCode.invalid_producer_epoch


def test_ends_that_make_no_sense_in_the_second_version(
    make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer()
    assert producer.ask_end(commit=True).error_code == ErrorCode.invalid_txn_state
    producer.produce(topic, b"a")
    before = producer.epoch
    producer.end(commit=True)
    after = producer.epoch

    producer.epoch = before
    repeated = patiently(lambda: producer.ask_end(commit=True), lambda a: a.error_code)
    changed = producer.ask_end(commit=False)
    producer.epoch = after
    nothing_to_commit = producer.ask_end(commit=True)
    nothing_to_abort = producer.ask_end(commit=False)
    producer.epoch = before
    fenced = patiently(lambda: producer.ask_end(commit=True), lambda a: a.error_code)

    assert after == before + 1
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.none, after)
    assert changed.error_code == ErrorCode.invalid_txn_state
    assert nothing_to_commit.error_code == ErrorCode.invalid_txn_state
    assert (nothing_to_abort.error_code, nothing_to_abort.producer_epoch) == (
        ErrorCode.none,
        after + 1,
    )
    assert fenced.error_code == ErrorCode.producer_fenced


def test_markers_are_written_as_a_tool_asks(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    make_producer(1)
    producer = make_producer(1)
    producer.produce(topic, b"hanging")

    def write(producer_epoch: int, partition: int = 0, coordinator_epoch: int = 0) -> ErrorCode:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        answer = raw.ask(wire.WRITE_TXN_MARKERS, 1, markers=[marker])
        (code,) = [p.error_code for p in answer.markers[0].topics[0].partitions]
        return ErrorCode(code)

    assert write(0) == ErrorCode.invalid_producer_epoch
    assert write(1, partition=7) == ErrorCode.unknown_topic_or_partition
    assert stable_offset(raw, topic) == 0
    assert write(1, coordinator_epoch=5) == ErrorCode.none
    assert stable_offset(raw, topic) == 2
    assert write(1, coordinator_epoch=4) == ErrorCode.transaction_coordinator_fenced


# Looking at them


def test_a_transaction_is_described(make_topic: MakeTopic, make_producer: MakeProducer) -> None:
    topic = make_topic(2)
    producer = make_producer()
    producer.produce(topic, b"a", partition=1)

    ongoing = producer.describe()

    assert (ongoing.error_code, ongoing.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (ongoing.producer_id, ongoing.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(found.topic, found.partitions) for found in ongoing.topics] == [(topic, (1,))]
    assert ongoing.transaction_timeout.total_seconds() == 60
    assert abs(ongoing.transaction_start_time.timestamp() - time.time()) < 60


def test_an_unknown_transactional_id_is_not_described(raw: RawClient, new_id: str) -> None:
    find_coordinator(raw, new_id)

    assert RawProducer(raw, new_id).describe().error_code == ErrorCode.transactional_id_not_found
    assert RawProducer(raw, "").describe().error_code == ErrorCode.invalid_request


def test_transactions_are_listed_by_what_is_asked(
    raw: RawClient, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic = make_topic()
    producer = make_producer()
    producer.produce(topic, b"a")

    def names(**filters: Any) -> Any:
        asked = {
            "state_filters": (),
            "producer_id_filters": (producer.producer_id,),
            "duration_filter": -1,
            "transactional_id_pattern": None,
            **filters,
        }
        return raw.ask(wire.LIST_TRANSACTIONS, 2, **asked)

    found = names()
    mine = producer.transactional_id
    assert [(t.transactional_id, t.transaction_state) for t in found.transaction_states] == [
        (mine, "Ongoing")
    ]
    assert names(state_filters=("Ongoing",)).transaction_states == found.transaction_states
    assert names(state_filters=("Empty",)).transaction_states == ()
    odd = names(state_filters=("Odd",))
    assert (odd.unknown_state_filters, odd.transaction_states) == (("Odd",), ())
    assert names(producer_id_filters=(10**9,)).transaction_states == ()
    assert names(duration_filter=10**8).transaction_states == ()
    assert names(transactional_id_pattern="txn-.*").transaction_states == found.transaction_states
    assert names(transactional_id_pattern="txn-").transaction_states == ()
    assert names(transactional_id_pattern="(").error_code == ErrorCode.invalid_regular_expression


def test_clients_cannot_write_to_internal_topics(
    raw: RawClient, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    producer.raw = raw

    refused = producer.ask_produce("__transaction_state", b"a", version=12)

    assert refused.error_code == ErrorCode.invalid_topic_exception
