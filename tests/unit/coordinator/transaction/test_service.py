"""The coordinator on real logs, with a clock that stands still: time, crashes, and last epochs."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from siltstone.coordinator.state_topic import KeyedValue, StateTopic, StateTopicConfig
from siltstone.coordinator.transaction.config import TransactionConfig
from siltstone.coordinator.transaction.errors import TransactionError
from siltstone.coordinator.transaction.markers import MarkerWriter
from siltstone.coordinator.transaction.records import decode_value, encode_key, encode_value
from siltstone.coordinator.transaction.service import Initialization, TransactionCoordinator
from siltstone.coordinator.transaction.state import LAST_USED_EPOCH, Producer, Status, Transaction
from siltstone.ids import TopicPartition
from siltstone.log.log_directory import LogDirectory
from siltstone.log.log_manager import LogManager
from siltstone.records.batch import Batch
from siltstone.records.builder import build_batch
from siltstone.records.record import Record
from tests.support.clock import ManualClock
from tests.support.log_checks import fetch_all
from tests.support.owned_logs import ManagedLogs

TOPIC = StateTopicConfig("__transaction_state", 2, 1 << 20, "uncompressed")
HERE = TopicPartition("data", 0)
THERE = TopicPartition("data", 1)
OFFSETS = TopicPartition("__consumer_offsets", 0)
ID = "my-id"
TIMEOUT_MS = 5_000
CONFIG = TransactionConfig(
    transaction_max_timeout_ms=60_000, transactional_id_expiration_ms=1_000_000
)
SECOND = 2  # version of the protocol

Start = Callable[[], TransactionCoordinator]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manager(tmp_path: Path, clock: ManualClock) -> Iterator[LogManager]:
    with LogManager([tmp_path / "one", tmp_path / "two"], clock=clock) as manager:
        manager.create_topic("data", 2)
        manager.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        yield manager


@pytest.fixture
def offsets_ended() -> list[tuple[int, int, bool]]:
    return []


@pytest.fixture
def start(
    manager: LogManager, clock: ManualClock, offsets_ended: list[tuple[int, int, bool]]
) -> Start:
    """Start a coordinator as a broker does that finds these logs."""
    producer_ids = count(100)

    def start() -> TransactionCoordinator:
        logs = ManagedLogs(manager)
        topic = StateTopic(logs, clock, TOPIC)
        asyncio.run(topic.ensure())
        coordinator = TransactionCoordinator(
            topic,
            MarkerWriter(logs, clock, lambda *end: offsets_ended.append(end)),
            clock,
            lambda: next(producer_ids),
            lambda: CONFIG,
        )
        coordinator.load()
        return coordinator

    return start


def init(coordinator: TransactionCoordinator, expected: Producer | None = None) -> Producer:
    return coordinator.initialize(Initialization(ID, TIMEOUT_MS, expected))


def write(
    coordinator: TransactionCoordinator,
    manager: LogManager,
    producer: Producer,
    *partitions: TopicPartition,
) -> None:
    coordinator.add_partitions(ID, producer, frozenset(partitions), SECOND)
    for partition in partitions:
        coordinator.check_partition(ID, producer, partition)
        batch = build_batch(
            [Record(0, 1_000, b"k", b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log = manager.get_log(partition)
        log.append(batch)
        log.update_high_watermark(log.log_end_offset)


def markers(manager: LogManager, partition: TopicPartition) -> list[tuple[str, int]]:
    """Return the kind and the producer epoch of each marker in a log."""

    def kind(batch: Batch) -> str:
        marker = batch.marker()
        assert marker is not None
        return marker.control_type.name

    return [
        (kind(batch), batch.header.producer_epoch)
        for batch in fetch_all(manager.get_log(partition))
        if batch.header.is_control
    ]


def get(coordinator: TransactionCoordinator) -> Transaction:
    txn = coordinator.find(ID)
    assert txn is not None
    return txn


def write_state(coordinator: TransactionCoordinator, txn: Transaction) -> None:
    """Put a state into the topic that the coordinator does not know of."""
    record = KeyedValue(encode_key(ID), encode_value(txn))
    coordinator.topic.append(coordinator.topic.partition_for(ID), [record])


def test_everything_is_known_again_after_a_start(start: Start, manager: LogManager) -> None:
    coordinator = start()
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE, THERE)

    again = start()

    found, before = get(again), get(coordinator)
    assert (found.producer, found.status, found.partitions) == (
        before.producer,
        Status.ONGOING,
        frozenset({HERE, THERE}),
    )
    again.end(ID, producer, commit=True, client_version=SECOND)
    assert markers(manager, HERE) == markers(manager, THERE) == [("COMMIT", 1)]


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_before_a_crash_is_finished_after_it(
    start: Start, manager: LogManager, commit: bool
) -> None:
    coordinator = start()
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE, THERE)
    prepared = Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
    write_state(
        coordinator, replace(get(coordinator), status=prepared, epoch=1, client_version=SECOND)
    )

    again = start()

    kind = "COMMIT" if commit else "ABORT"
    assert markers(manager, HERE) == markers(manager, THERE) == [(kind, 1)]
    assert get(again).status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT)
    assert manager.get_log(HERE).last_stable_offset == manager.get_log(HERE).log_end_offset
    # And again, as if the crash had come after one of the markers.
    write_state(
        coordinator, replace(get(coordinator), status=prepared, epoch=1, client_version=SECOND)
    )
    start()
    assert markers(manager, HERE) == [(kind, 1), (kind, 1)]


def test_a_transaction_without_partitions_left_by_a_deleted_topic_still_ends(
    start: Start, manager: LogManager
) -> None:
    coordinator = start()
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE)
    manager.delete_topic("data")

    after = coordinator.end(ID, producer, commit=True, client_version=SECOND)

    assert after == producer._replace(epoch=1)
    assert get(coordinator).status is Status.COMPLETE_COMMIT


class Disks(NamedTuple):
    """One holds the state of the id, the other one of two partitions."""

    far: LogDirectory
    served: TopicPartition
    refused: TopicPartition


def split(coordinator: TransactionCoordinator, manager: LogManager) -> Disks:
    state = TopicPartition("__transaction_state", coordinator.topic.partition_for(ID))
    (far,) = [d for d in manager.directories if state not in d.logs]
    served, refused = (THERE, HERE) if HERE in far.logs else (HERE, THERE)
    assert refused in far.logs
    return Disks(far, served, refused)


def test_a_disk_that_refuses_a_marker_leaves_the_transaction_prepared_until_it_is_back(
    start: Start, manager: LogManager
) -> None:
    coordinator = start()
    far, served, refused = split(coordinator, manager)
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE, THERE)

    far.take_offline("pulled out")
    after = coordinator.end(ID, producer, commit=True, client_version=SECOND)
    coordinator.finish_prepared()

    assert after == producer._replace(epoch=1)
    assert get(coordinator).status is Status.PREPARE_COMMIT
    for step in (
        lambda: coordinator.add_partitions(ID, after, frozenset({served}), SECOND),
        lambda: coordinator.check_partition(ID, after, served),
        lambda: coordinator.end(ID, producer, commit=True, client_version=SECOND),
        lambda: init(coordinator),
    ):
        with pytest.raises(TransactionError, match="try again") as waiting:
            step()
        assert waiting.value.code is ErrorCode.concurrent_transactions
    far.failure = None
    coordinator.finish_prepared()
    assert get(coordinator).status is Status.COMPLETE_COMMIT
    assert markers(manager, served) == markers(manager, refused) == [("COMMIT", 1)]
    assert coordinator.end(ID, producer, commit=True, client_version=SECOND) == after


def test_who_is_told_its_new_producer_id_early_waits_as_well(
    start: Start, manager: LogManager
) -> None:
    coordinator = start_at_the_last_epoch(start)
    last = Producer(100, LAST_USED_EPOCH)
    far, served, refused = split(coordinator, manager)
    write(coordinator, manager, last, refused)

    far.take_offline("pulled out")
    after = coordinator.end(ID, last, commit=True, client_version=SECOND)

    assert after == Producer(101, 0)
    with pytest.raises(TransactionError, match="try again"):
        coordinator.add_partitions(ID, after, frozenset({served}), SECOND)


def test_state_on_a_disk_that_is_gone_is_not_taken_for_none(
    start: Start, manager: LogManager
) -> None:
    coordinator = start()
    producer = init(coordinator)
    state = TopicPartition("__transaction_state", coordinator.topic.partition_for(ID))
    (directory,) = [d for d in manager.directories if state in d.logs]
    directory.take_offline("pulled out")

    again = start()

    for step in (
        lambda: init(again),
        lambda: again.add_partitions(ID, producer, frozenset({HERE}), SECOND),
    ):
        with pytest.raises(TransactionError, match="cannot be read") as refused:
            step()
        assert refused.value.code is ErrorCode.coordinator_not_available


def test_one_transaction_that_cannot_be_written_holds_up_no_other(
    start: Start, manager: LogManager, clock: ManualClock
) -> None:
    coordinator = start()
    refused, served = (name_in(coordinator, partition) for partition in (0, 1))
    state = TopicPartition("__transaction_state", 0)
    (directory,) = [d for d in manager.directories if state in d.logs]
    (data,) = [p for p in (HERE, THERE) if p not in directory.logs]
    for name in (refused, served):
        producer = coordinator.initialize(Initialization(name, TIMEOUT_MS, None))
        coordinator.add_partitions(name, producer, frozenset({data}), SECOND)

    def statuses() -> list[Status]:
        return [txn.status for txn in coordinator.transactions()]

    directory.take_offline("pulled out")
    clock.advance_ms(TIMEOUT_MS + 1)
    coordinator.abort_timed_out()
    assert statuses() == [Status.ONGOING, Status.COMPLETE_ABORT]

    directory.failure = None
    coordinator.abort_timed_out()
    directory.take_offline("pulled out")
    clock.advance_ms(1_000_000)
    assert coordinator.remove_expired() == 1
    assert [txn.transactional_id for txn in coordinator.transactions()] == [refused]


def test_a_transaction_that_no_batch_takes_stays_as_it_was(
    start: Start, manager: LogManager
) -> None:
    coordinator = start()
    producer = init(coordinator)
    manager.alter_topic("__transaction_state", {"max.message.bytes": "500"})
    many = frozenset(TopicPartition("data", number) for number in range(200))

    with pytest.raises(TransactionError, match=r"is over max\.message\.bytes") as refused:
        coordinator.add_partitions(ID, producer, many, SECOND)

    assert refused.value.code is ErrorCode.unknown_server_error
    assert get(coordinator).status is Status.EMPTY


def test_what_was_known_goes_with_its_topic(start: Start, manager: LogManager) -> None:
    coordinator = start()
    write(coordinator, manager, init(coordinator), HERE)

    coordinator.on_topic_deleted("data")
    assert get(coordinator).status is Status.ONGOING
    manager.delete_topic("__transaction_state")
    coordinator.on_topic_deleted("__transaction_state")

    assert coordinator.find(ID) is None
    asyncio.run(coordinator.topic.ensure())
    assert init(coordinator) == Producer(101, 0)


def name_in(coordinator: TransactionCoordinator, partition: int) -> str:
    return next(n for n in map(str, count()) if coordinator.topic.partition_for(n) == partition)


def test_of_a_partition_that_cannot_be_read_whole_nothing_is_acted_upon(
    start: Start, manager: LogManager, clock: ManualClock
) -> None:
    coordinator = start()
    write(coordinator, manager, init(coordinator), HERE)
    # What follows may say that it has been committed since.
    coordinator.topic.append(coordinator.topic.partition_for(ID), [KeyedValue(b"\0", b"")])

    again = start()
    clock.advance_ms(TIMEOUT_MS + 1)
    again.abort_timed_out()

    assert markers(manager, HERE) == []
    with pytest.raises(TransactionError, match="cannot be read"):
        again.find(ID)


def test_a_partition_of_states_that_is_not_there_does_not_stop_the_start(
    start: Start, manager: LogManager
) -> None:
    init(coordinator := start())
    gone = TopicPartition("__transaction_state", coordinator.topic.partition_for(ID))
    (directory,) = [d for d in manager.directories if gone in d.logs]
    directory.logs.pop(gone).close()

    again = start()

    with pytest.raises(TransactionError, match="cannot be read"):
        again.find(ID)


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    start: Start, manager: LogManager, clock: ManualClock
) -> None:
    coordinator = start()
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE)

    clock.advance_ms(TIMEOUT_MS)
    coordinator.abort_timed_out()
    assert markers(manager, HERE) == []
    clock.advance_ms(1)
    coordinator.abort_timed_out()

    assert markers(manager, HERE) == [("ABORT", 1)]
    with pytest.raises(TransactionError) as refused:
        write(coordinator, manager, producer, HERE)
    assert refused.value.code is ErrorCode.producer_fenced
    assert "there is a newer one" in str(refused.value)


def test_an_id_that_nobody_uses_is_forgotten_with_a_tombstone(
    start: Start, manager: LogManager, clock: ManualClock
) -> None:
    coordinator = start()
    first = init(coordinator)
    write(coordinator, manager, first, HERE)

    clock.advance_ms(1_000_000)
    assert coordinator.remove_expired() == 0  # It is open.
    after = coordinator.end(ID, first, commit=False, client_version=SECOND)
    clock.advance_ms(999_999)
    assert coordinator.remove_expired() == 0
    clock.advance_ms(1)
    assert coordinator.remove_expired() == 1

    assert coordinator.find(ID) is None
    again = start()
    assert again.find(ID) is None
    # A producer that does not know it goes on with a new id.
    assert init(again, after) == Producer(101, 0)


def test_offsets_are_told_how_their_transaction_ended(
    start: Start, manager: LogManager, offsets_ended: list[tuple[int, int, bool]]
) -> None:
    coordinator = start()
    producer = init(coordinator)
    write(coordinator, manager, producer, HERE, OFFSETS)

    coordinator.end(ID, producer, commit=True, client_version=SECOND)

    assert offsets_ended == [(0, producer.producer_id, True)]


def start_at_the_last_epoch(start: Start) -> TransactionCoordinator:
    """Start where all epochs of a producer id but the one kept for fencing are used."""
    coordinator = start()
    init(coordinator)
    write_state(coordinator, replace(get(coordinator), epoch=LAST_USED_EPOCH))
    return start()


def test_after_the_last_epoch_a_new_producer_id_goes_on(start: Start, manager: LogManager) -> None:
    coordinator = start_at_the_last_epoch(start)
    last = Producer(100, LAST_USED_EPOCH)
    write(coordinator, manager, last, HERE)

    after = coordinator.end(ID, last, commit=True, client_version=SECOND)

    assert after == Producer(101, 0)
    assert markers(manager, HERE) == [("COMMIT", LAST_USED_EPOCH + 1)]
    # A retry of the end, by who has not heard of it.
    assert coordinator.end(ID, last, commit=True, client_version=SECOND) == after
    write(coordinator, manager, after, HERE)


@pytest.mark.parametrize("knows_itself", [True, False])
def test_an_initialisation_at_the_last_epoch_gets_a_new_producer_id(
    start: Start, knows_itself: bool
) -> None:
    coordinator = start_at_the_last_epoch(start)

    given = init(coordinator, Producer(100, LAST_USED_EPOCH) if knows_itself else None)

    assert given == Producer(101, 0)
    if knows_itself:
        # A retry, by who has not heard of it.
        assert init(coordinator, Producer(100, LAST_USED_EPOCH)) == given


def test_taking_over_at_the_last_epoch_aborts_with_the_one_kept_for_it(
    start: Start, manager: LogManager
) -> None:
    coordinator = start_at_the_last_epoch(start)
    write(coordinator, manager, Producer(100, LAST_USED_EPOCH), HERE)

    with pytest.raises(TransactionError, match="try again"):
        init(coordinator)

    assert markers(manager, HERE) == [("ABORT", LAST_USED_EPOCH + 1)]
    assert init(coordinator) == Producer(101, 1)


def test_states_of_older_kafkas_are_read() -> None:
    # TransactionLogValue version 0, from its schema: not flexible, no tags.
    value = bytes.fromhex(
        "0000"  # version
        "0000000000000007"  # producer id
        "0003"  # epoch
        "0000ea60"  # timeout
        "01"  # ongoing
        "00000001"
        "0004"
        "64617461"
        "00000002"
        "00000000"
        "00000001"  # data: 0, 1
        "0000000000000011"  # updated
        "0000000000000010"  # started
    )

    txn = decode_value(ID, value)

    assert (txn.producer, txn.timeout_ms, txn.status) == (Producer(7, 3), 60_000, Status.ONGOING)
    assert txn.partitions == {HERE, THERE}
    assert (txn.updated_ms, txn.started_ms, txn.client_version) == (17, 16, 0)
