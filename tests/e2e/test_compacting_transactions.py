"""Transactions that commit, abort, stay open and time out, while their topic is compacted."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from siltstone.log.reading import AbortedFilter
from siltstone.log.transaction_index import AbortedTxn
from siltstone.records.batch import iter_batches
from tests.support.serving import RawClient, ServedBroker
from tests.support.transactions import RawProducer, create_topic, fetch
from tests.support.waiting import wait_until

TOPIC = "t"
KEYS = [b"k%d" % number for number in range(6)]
ROUNDS = 60
TIMEOUT_MS = 250
SETTINGS = {
    "log.cleaner.backoff.ms": "30",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "20",
    "log.segment.bytes": "700",
    "log.segment.delete.delay.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "2000",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    module = "tests.support.local_broker"
    with ServedBroker(tmp_path / "logs", SETTINGS, module=module) as broker:
        yield broker.start()


class Reader:
    """Reads everything that is committed, as a client does, and sees that nothing goes back."""

    def __init__(self, raw: RawClient) -> None:
        self._raw = raw
        self._stable_offset = 0

    def read(self) -> list[tuple[int, bytes, bytes]]:
        """Return (offset, key, value) of all that a reader of committed records gets."""
        found: list[tuple[int, bytes, bytes]] = []
        offset = 0
        while True:
            part = fetch(self._raw, TOPIC, offset)
            assert part.error_code == ErrorCode.none
            assert part.last_stable_offset >= self._stable_offset, "the last stable offset fell"
            self._stable_offset = part.last_stable_offset
            aborted = [
                AbortedTxn(txn.producer_id, txn.first_offset, 0, 0)
                for txn in part.aborted_transactions or ()
            ]
            hidden = AbortedFilter(aborted)
            next_offset = offset
            for _, batch in iter_batches(part.records or b""):
                next_offset = batch.header.next_offset
                if hidden.hides(batch):
                    continue
                for record in batch.iter_records():
                    assert record.key is not None
                    assert record.value is not None
                    found.append((record.offset, record.key, record.value))
            if next_offset == offset:
                return found
            offset = next_offset


def test_no_aborted_record_is_ever_seen_and_no_committed_one_disappears(
    broker: ServedBroker,
) -> None:
    choice = random.Random(0)
    expected: dict[bytes, bytes] = {}
    never: set[bytes] = set()
    with RawClient(broker.port) as raw:
        create_topic(raw, TOPIC, cleanup_policy="compact")
        reader = Reader(raw)
        # Of both versions of the protocol, side by side.
        producers = [RawProducer(raw, f"id-{i}", version=1 + i % 2).init() for i in range(4)]
        for number in range(ROUNDS):
            if number % 12 == 5:
                never |= _write_and_time_out(RawProducer(raw, f"late-{number}"))
                continue
            keys = choice.sample(KEYS, choice.randint(1, 3))
            written = {key: b"%s-%d" % (key, number) for key in keys}
            producer = choice.choice(producers)
            for key, value in written.items():
                producer.produce(TOPIC, value, key=key)
            commits = choice.random() < 0.6
            producer.end(commit=commits)
            if commits:
                expected |= written
            else:
                never |= {*written.values()}
            if number % 10 == 9:
                found = reader.read()
                assert not never & {value for _, _, value in found}
                assert {key: value for _, key, value in found} == expected
        # Now that nothing is open any more, let the cleaner finish: every key once.
        wait_until(lambda: len(reader.read()) <= 3 * len(KEYS))
        found = reader.read()
        assert {key: value for _, key, value in found} == expected
    broker.kill()
    broker.start()
    with RawClient(broker.port) as raw:
        assert {key: value for _, key, value in Reader(raw).read()} == expected
    assert "ERROR" not in broker.log()


def _write_and_time_out(producer: RawProducer) -> set[bytes]:
    """Open a transaction, wait until the coordinator aborts it, and return what was written."""
    producer.init(timeout_ms=TIMEOUT_MS)
    value = producer.transactional_id.encode()
    # It may be over before anything is written: on a busy machine time flies.
    producer.add(TOPIC, 0)
    producer.ask_produce(TOPIC, value, key=KEYS[0], version=11)
    wait_until(lambda: producer.describe().transaction_state == "CompleteAbort")
    return {value}
