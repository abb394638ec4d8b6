"""Our partition log against Kafka's, operation by operation, over random histories.

Both logs live in directories of their own, under clocks that show the same time. Each operation is
given to both; then everything that can be seen of them must be equal: whether it was accepted and
how it was refused, offsets, segments, index entries, transactions, producers, leader epochs, files.
Now and then both are closed, or crash, and their files must be equal byte by byte.

Where we differ from Kafka on purpose the histories, or the twins, make up for it, each in a place
that says `Kafka:`. No history lets our timer roll an idle segment, which Kafka has not got.

    SILTSTONE_HISTORIES=5000   run so many histories instead of the default
    SILTSTONE_FIRST_SEED=77    begin with this seed, to repeat a failure: the message names it
"""

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from siltstone.log.origin import AppendOrigin
from siltstone.records.batch import TimestampType, read_header
from siltstone.records.builder import build_batch, build_empty_batch, build_marker
from siltstone.records.compression import Codec
from siltstone.records.control import ControlType
from siltstone.records.layout import MAX_SEQUENCE
from siltstone.records.record import Record
from tests.kafka.log_ops import LogOps
from tests.kafka.twins import Twins

HISTORIES: Final = int(os.environ.get("SILTSTONE_HISTORIES", "220"))
FIRST_SEED: Final = int(os.environ.get("SILTSTONE_FIRST_SEED", "0"))
OPERATIONS: Final = 40
SEEDS_PER_TEST: Final = 20

YEAR_2020_MS: Final = 1_577_836_800_000
CLIENTS: Final = (1, 2, 3, 4)  # producer ids; from 3 on they use transactions
REPLICATED: Final = (5, 6)  # producers that are known from another leader


def _first_seeds() -> list[int]:
    return list(range(FIRST_SEED, FIRST_SEED + HISTORIES, SEEDS_PER_TEST))


@pytest.mark.parametrize("first_seed", _first_seeds(), ids=lambda seed: f"from-seed-{seed}")
def test_any_history_leaves_the_same_log_as_in_kafka(
    first_seed: int, log_ops: LogOps, tmp_path: Path
) -> None:
    last_seed = min(first_seed + SEEDS_PER_TEST, FIRST_SEED + HISTORIES)
    print(f"seeds {first_seed} to {last_seed - 1}, {OPERATIONS} operations each")

    for seed in range(first_seed, last_seed):
        directory = tmp_path / str(seed)
        history = History(log_ops, directory, seed)
        try:
            history.run()
        except Exception as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(history.trace))
            raise
        finally:
            history.twins.forget()
        shutil.rmtree(directory)


class History:
    """A random life of a log. Equal seeds give equal histories."""

    def __init__(self, ops: LogOps, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.trace: list[str] = []
        settings = self._settings()
        now_ms = self.rng.choice([0, YEAR_2020_MS, YEAR_2020_MS])
        self.is_compacted = "compact" in settings["cleanup.policy"]
        self.has_tiny_indexes = int(settings["segment.index.bytes"]) < 1000
        self.had_producers = False
        self.leader_epoch = 0
        self.producer_ids = itertools.count(1000)
        self.lives = Counter[int]()
        self.replicated = Counter[int]()  # next sequences of producers of another leader
        self.twins = Twins(ops, directory, settings, now_ms, is_replicated=self.rng.random() < 0.6)
        self.trace.append(f"  {settings}, replicated: {self.twins.is_replicated}, at {now_ms}")

    def run(self) -> None:
        self.twins.compare()
        for _ in range(OPERATIONS):
            operation, weight = zip(*self._operations(), strict=True)
            (act,) = self.rng.choices(operation, weight)
            self.trace.append(f"  {act.__name__.strip('_')}")
            self.trace[-1] += f": {act()}"
            self.twins.compare()
            self.had_producers |= bool(self.twins.state.producers)
        self.twins.stop()

    def _settings(self) -> dict[str, str]:
        rng = self.rng
        policy = rng.choice(["delete", "delete", "compact", "compact,delete", ""])
        settings = {
            "cleanup.policy": policy,
            "segment.bytes": rng.choice([400, 700, 1500, 6000]),
            "index.interval.bytes": rng.choice([0, 80, 200, 500, 4096]),
            "segment.index.bytes": rng.choice([36, 60, 240, 4096, 4096, 10_485_760]),
            "segment.ms": rng.choice([1000, 20_000, 604_800_000]),
            "file.delete.delay.ms": rng.choice([0, 2000, 60_000]),
            "message.timestamp.type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        }
        optional: dict[str, Any] = {
            "retention.ms": rng.choice([-1, 3000, 20_000]),
            "retention.bytes": rng.choice([-1, 500, 2000]),
            "max.compaction.lag.ms": rng.choice([1500, 15_000]),
            "message.timestamp.before.max.ms": rng.choice([500, 5000]),
            "message.timestamp.after.max.ms": rng.choice([0, 500, 5000]),
            "max.message.bytes": rng.choice([150, 300]),
            "flush.messages": rng.choice([1, 5]),
            "compression.type": "uncompressed",
            "preallocate": "true",
        }
        chances = {"retention.ms": 0.6, "retention.bytes": 0.4}
        settings |= {
            name: value
            for name, value in optional.items()
            if rng.random() < chances.get(name, 0.15)
        }
        return {name: str(value) for name, value in settings.items()}

    def _operations(self) -> Iterator[tuple[Callable[[], str], float]]:
        yield self._append_plain, 8
        yield self._append_as_producer, 10
        yield self._append_marker, 5
        yield self._append_malformed, 1.5
        yield self._append_as_follower, 2
        yield self._roll, 1
        yield self.twins.flush, 1
        yield self._truncate, 1
        yield self.twins.delete_old_segments, 2
        yield self._update_config, 0.3
        yield self._advance, 3
        yield self.twins.restart, 1
        yield self._read, 2
        yield self._look_up, 1
        if not self.twins.is_replicated:
            yield self._update_high_watermark, 4
        if self.twins.settings["cleanup.policy"] != "compact":
            # Kafka: its broker, not its log, refuses to delete records of compacted topics.
            yield self._delete_records, 1.5
        if not self.has_tiny_indexes:
            # Kafka: it cannot load a log whose rebuilt index has more entries than fit.
            yield self._crash, 1.5

    # Appends

    def _records(self) -> list[Record]:
        rng = self.rng
        now_ms = self.twins.clock.now_ms()
        count = rng.choice([1, 1, 1, 2, 3, 8])
        style = rng.choice(["now", "now", "spread", "spread", "none", "mixed", "far", "negative"])

        def timestamp_ms() -> int:
            if style == "none" or (style == "mixed" and rng.random() < 0.5):
                return -1
            if style == "now":
                return now_ms
            if style == "negative" and "compression.type" not in self.twins.settings:
                # Kafka: it breaks down when it must recompress a record from before 1970.
                return rng.choice([-1, -2, -500])
            return max(now_ms + rng.randint(-3000, 1000 if style == "spread" else 8000), 0)

        def key() -> bytes | None:
            if rng.random() < (0.02 if self.is_compacted else 0.2):
                return None
            return rng.choice([b"", b"a", b"b", b"key-%d" % rng.randint(0, 9)])

        return [
            Record(
                number,
                timestamp_ms(),
                key(),
                rng.choice([None, b"", b"v" * rng.randint(1, 150), rng.randbytes(20)]),
                (("h", b"x"), ("", None)) if rng.random() < 0.1 else (),
            )
            for number in range(count)
        ]

    def _codec(self) -> Codec:
        codecs: list[Codec] = [Codec.NONE, Codec.NONE, *Codec]
        return self.rng.choice(codecs)

    def _epoch(self) -> int:
        """Give the leader epoch, which rises now and then."""
        if self.rng.random() < 0.05:
            self.leader_epoch += self.rng.randint(1, 3)
        return self.leader_epoch

    def _append_plain(self) -> str:
        return self._append_as_leader(
            build_batch(self._records(), codec=self._codec()), is_new_epoch_fine=True
        )

    def _append_as_leader(self, data: bytes, *, is_new_epoch_fine: bool = False) -> str:
        """Append with an epoch that is new only if the batch is likely to be accepted.

        Kafka: a refused batch can leave its epoch behind, as it can a new segment.
        """
        epochs = self.twins.state.epochs
        if is_new_epoch_fine and self._is_acceptable(data):
            epoch = self._epoch()
        elif epochs:
            epoch = epochs[-1][0]
        else:
            return "left out: no epoch yet"
        return f"{len(data)} bytes in epoch {epoch} {self.twins.append(data, leader_epoch=epoch)}"

    def _is_acceptable(self, data: bytes) -> bool:
        return len(data) < int(self.twins.settings["segment.bytes"]) // 2

    def _append_as_producer(self) -> str:
        rng = self.rng
        producers = {producer.producer_id: producer for producer in self.twins.state.producers}
        producer_id = rng.choice(CLIENTS)
        known = producers.get(producer_id)
        records = self._records()
        epoch, sequence, transactional, what = 0, 0, producer_id >= 3, "first"
        if known is None:
            # One who had expired never begins anew with the same numbers, or what we remember
            # after a crash would take its batch for a retry.
            life = self.lives[producer_id]
            self.lives[producer_id] += 1
            sequence = rng.choice([0, 0, 5, MAX_SEQUENCE - 1]) if life == 0 else 1000 * life
        else:
            epoch = known.producer_epoch
            in_transaction = known.current_txn_first_offset >= 0
            what = rng.choices(
                ["next", "repeat", "gap", "new epoch", "wrong new epoch", "old epoch", "mixed"],
                [14, 3, 1, 1, 0.5, 0.5, 0.5],
            )[0]
            sequence = (known.last_sequence + 1) & MAX_SEQUENCE
            if what == "repeat" and known.batches:
                repeated = rng.choice(known.batches)
                count = repeated.last_offset - repeated.first_offset + 1
                now_ms = self.twins.clock.now_ms()
                records = [Record(number, now_ms, b"k", None) for number in range(count)]
                sequence = repeated.first_sequence
            elif what == "gap":
                sequence = (sequence + rng.choice([1, 7, -3])) & MAX_SEQUENCE
            elif what == "new epoch":
                epoch, sequence = epoch + 1, 0
            elif what == "wrong new epoch":
                epoch, sequence = epoch + 1, 3
            elif what == "old epoch" and epoch > 0:
                epoch -= 1
            elif what == "mixed":
                transactional = not transactional
            transactional = transactional or (in_transaction and what != "mixed")
        data = build_batch(
            records,
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        fine = what in ("first", "next")
        done = self._append_as_leader(data, is_new_epoch_fine=fine)
        kind = "transactional" if transactional else "idempotent"
        return f"{kind} {what} of {producer_id}, epoch {epoch}, sequence {sequence}: {done}"

    def _append_marker(self) -> str:
        rng = self.rng
        state = self.twins.state
        if not state.epochs:
            return "left out: no epoch yet"
        in_transaction = [p for p in state.producers if p.current_txn_first_offset >= 0]
        chosen = rng.choice(in_transaction or state.producers or (None,))
        version = rng.choice([0, 1, 2, 2])
        producer_id, epoch, coordinator_epoch = next(self.producer_ids), 0, 0
        if chosen is not None and rng.random() < 0.95:
            producer_id = chosen.producer_id
            epoch = chosen.producer_epoch + (version == 2)
            coordinator_epoch = max(chosen.coordinator_epoch, 0)
            if rng.random() < 0.1:
                epoch = max(epoch + rng.choice([-1, 1]), 0)
            if rng.random() < 0.1:
                coordinator_epoch = max(coordinator_epoch + rng.choice([-1, 1]), 0)
        kind = rng.choice([ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT])
        marker = build_marker(
            kind,
            offset=0,
            timestamp_ms=max(self.twins.clock.now_ms() + rng.choice([0, 0, -500, 500]), 0),
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
        )
        done = self.twins.append(
            marker,
            leader_epoch=state.epochs[-1][0],
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        return (
            f"{kind.name} of {producer_id}, epoch {epoch}, coordinator {coordinator_epoch}, "
            f"version {version}: {done}"
        )

    def _append_malformed(self) -> str:
        rng = self.rng
        records = self._records()
        plain = build_batch(records, codec=self._codec())
        flipped = bytearray(plain)
        flipped[rng.randrange(21, len(plain))] ^= 1 << rng.randrange(8)
        what = rng.choice(
            ["base offset", "gap", "flipped bit", "two batches", "control", "time", "type", "large"]
        )
        match what:
            case "base offset":
                data = build_batch([r._replace(offset=r.offset + 5) for r in records])
            case "gap":
                data = build_batch(records, last_offset_delta=len(records))
            case "flipped bit":
                data = bytes(flipped)
            case "two batches":
                data = plain + plain
            case "control":
                data = build_batch(
                    records[:1],
                    producer_id=9,
                    producer_epoch=0,
                    is_transactional=True,
                    is_control=True,
                )
            case "time":  # which the leader corrects
                data = build_batch(records, max_timestamp_ms=17)
            case "type":
                # Kafka: it then takes the newest time for that of all. We look at each.
                records = [r._replace(timestamp_ms=records[0].timestamp_ms) for r in records]
                data = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
            case _:
                data = build_batch([Record(0, -1, b"k", b"x" * 7000)])
        return f"{what}: {self._append_as_leader(data)}"

    def _append_as_follower(self) -> str:
        """Append several batches in one call, as a leader that compacts may have stored them."""
        rng = self.rng
        offset = self.twins.state.log_end_offset + rng.choice([0, 0, 0, 3])
        epoch = self._epoch()
        batches = []
        # Kafka: it breaks down when one call fills an index, so with small ones one batch it is.
        for _ in range(1 if self.has_tiny_indexes else rng.randint(1, 4)):
            batches.append(self._replicated_batch(offset, epoch))
            offset = read_header(batches[-1]).next_offset + rng.choice([0, 0, 2])
        sizes = [len(batch) for batch in batches]
        if sum(sizes) > int(self.twins.settings["segment.bytes"]):
            return "left out: over segment.bytes"
        if rng.random() < 0.2:  # as much as fitted into the leader's answer
            batches.append(batches[-1][: rng.randint(1, sizes[-1] - 1)])
        done = self.twins.append_as_follower(b"".join(batches), leader_epoch=epoch)
        return f"{sizes} in epoch {epoch} {done}"

    def _replicated_batch(self, offset: int, epoch: int) -> bytes:
        """Build a batch that has its offsets, of nobody or of a producer, or a marker."""
        rng = self.rng
        records = [r._replace(offset=offset + r.offset) for r in self._records()]
        what = rng.choices(["plain", "idempotent", "transactional", "marker"], [4, 1, 2, 2])[0]
        producer_id = REPLICATED[what in ("transactional", "marker")]
        if what == "marker":
            return build_marker(
                rng.choice([ControlType.ABORT, ControlType.COMMIT]),
                offset=offset,
                timestamp_ms=self.twins.clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                leader_epoch=epoch,
            )
        batch = build_batch(
            [r for r in records if rng.random() < 0.9] or records,
            base_offset=offset,
            last_offset_delta=len(records) - 1,
            codec=self._codec(),
            leader_epoch=epoch,
            producer_id=-1 if what == "plain" else producer_id,
            producer_epoch=-1 if what == "plain" else 0,
            base_sequence=-1 if what == "plain" else self._next_replicated(producer_id, records),
            is_transactional=what == "transactional",
        )
        return build_empty_batch(read_header(batch)) if rng.random() < 0.1 else batch

    def _next_replicated(self, producer_id: int, records: list[Record]) -> int:
        sequence = self.replicated[producer_id]
        self.replicated[producer_id] += len(records)
        return sequence

    # Everything else

    def _roll(self) -> str:
        if not self.twins.state.segments[-1].size:
            return "left out: it is empty"
        return self.twins.roll()

    def _truncate(self) -> str:
        rng = self.rng
        start, end = self.twins.state.log_start_offset, self.twins.state.log_end_offset
        if self.had_producers and not self.twins.state.producers:
            # Kafka: it loads a snapshot, but replays nothing if it knew of no producer. Whatever
            # was open at the snapshot is then open for ever.
            return "left out: all producers have expired"
        if rng.random() < 0.15:
            offset = rng.randint(max(start - 3, 0), end + 10)
            return f"fully to {offset} {self.twins.truncate_fully_and_start_at(offset)}"
        offset = rng.choice([rng.randint(start, end), max(end - rng.randint(0, 5), 0)])
        if rng.random() < 0.1:
            offset = rng.randint(0, end + 2)
        return f"to {offset}: {self.twins.truncate_to(offset)}"

    def _delete_records(self) -> str:
        start, limits = self.twins.state.log_start_offset, self.twins.limits()
        if min(limits) < start:
            return "left out: Kafka's high watermark is below the log start"
        offset = self.rng.randint(start, min(limits))
        if self.rng.random() < 0.1:
            offset = max(limits) + 1
        return f"below {offset}: {self.twins.delete_records(offset)}"

    def _update_high_watermark(self) -> str:
        # No follower acknowledges half a batch, so it is always the start of one.
        state = self.twins.state
        starts = [
            stored.header.base_offset
            for segment in self.twins.ours.segments
            for stored in segment.iter_headers()
            if stored.header.base_offset >= state.high_watermark
        ]
        return self.twins.update_high_watermark(self.rng.choice([*starts, state.log_end_offset]))

    def _update_config(self) -> str:
        name, values = self.rng.choice(
            [
                ("retention.ms", [-1, 1000]),
                ("segment.ms", [500, 20_000]),
                ("segment.bytes", [900]),
                ("index.interval.bytes", [0, 300]),
            ]
        )
        return self.twins.update_config({name: str(self.rng.choice(values))})

    def _advance(self) -> str:
        return self.twins.advance(self.rng.choice([1, 200, 1001, 5000, 40_000]))

    def _crash(self) -> str:
        rng = self.rng
        state = self.twins.state
        recovery_point = rng.choice([0, state.recovery_point, rng.randint(0, state.recovery_point)])
        # Kafka: when it recovers a segment that begins at or below the log start, it forgets who
        # has written before. We do not, so there had better be nobody.
        bases = [segment.base_offset for segment in state.segments]
        first = max((base for base in bases if base <= recovery_point), default=0)
        if any(max(first, 1) <= base <= state.log_start_offset for base in bases):
            return "left out: would begin below the log start"
        tail = rng.choice([b"", b"", bytes(100), rng.randbytes(50)])
        if state.segments[-1].size and rng.random() < 0.5:
            # A batch that is cut off, as by a crash in the middle of a write.
            batch = build_batch(self._records(), base_offset=None)
            tail = batch[: rng.randint(1, len(batch) - 1)]
        # Kafka: it takes a lost time index for an empty one. We build it anew, as both do if the
        # offset index is lost as well.
        lost = [
            f"{segment.base_offset:020d}{ending}"
            for segment in state.segments
            if rng.random() < 0.1 and segment.base_offset > state.log_start_offset
            for ending in (".index", ".timeindex", ".txnindex")
        ]
        if not lost:
            # Kafka: it writes missing snapshots of old segments anew. We need only the newest.
            snapshots = sorted(name for name in state.files if name.endswith(".snapshot"))
            lost = rng.choice([[], [], snapshots[-1:]])
        return self.twins.crash(recovery_point, tail, lost)

    def _read(self) -> str:
        return self.twins.compare_reads(self.rng)

    def _look_up(self) -> str:
        return self.twins.compare_lookups(self.rng)
