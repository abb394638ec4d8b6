"""Make the golden files anew: log directories that a real Kafka wrote, and what is in them.

    .venv/bin/python -m tests.golden.make_golden

needs Java, javac and Maven, like `make test-kafka`. Two directories result:

    stopped/   a broker's log directory after an orderly shutdown
    killed/    one after kill -9, with an open transaction and indexes at their pre-allocated size

and `manifest.json`, which says what Kafka itself finds in them: batches, records, indexes,
snapshots, epochs; what its consumer reads; and the state of each log once it is loaded. Nothing of
ours takes part. Markers, LogAppendTime and ids differ from run to run, so the manifest always
belongs to the files it was made with.

Values above a kilobyte stand in the manifest as length and SHA-256.
"""

import base64
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from tests.kafka.broker import KafkaBroker
from tests.kafka.harness import Harness, ProducerScript, ensure_harness
from tests.kafka.jars import KAFKA_VERSION
from tests.kafka.states import NewRecord

HERE: Final = Path(__file__).parent
T0: Final = 1_600_000_000_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LONGEST_INLINE_VALUE: Final = 1024
LINE_LENGTH: Final = 100

# Small, so that an index of a killed broker is not ten megabytes of zeroes.
INDEX_BYTES: Final = 1200

PROPERTIES: Final = {
    "log.index.size.max.bytes": str(INDEX_BYTES),
    "log.cleaner.backoff.ms": "200",
}

ODD_RECORDS: Final = (
    NewRecord(key=b"key", value=b"value", timestamp_ms=T0),
    NewRecord(key=None, value=b"no key", timestamp_ms=T0 + 1),
    NewRecord(key=b"no value", value=None, timestamp_ms=T0 + 2),
    NewRecord(key=b"", value=b"", timestamp_ms=T0 + 3),
    NewRecord(key=None, value=None, timestamp_ms=T0 + 4),
    NewRecord(
        key=b"headers",
        value=b"many",
        timestamp_ms=T0 + 5,
        headers=(("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("ключ", b"\xff\x00")),
    ),
    NewRecord(key=b"back in time", value=b"v", timestamp_ms=T0 - 10_000),
)


def main() -> None:
    harness = ensure_harness()
    manifest: dict[str, Any] = {"kafka_version": KAFKA_VERSION, "loaded_at_ms": T0, "log_dirs": {}}
    try:
        for name, make in (("stopped", make_stopped), ("killed", make_killed)):
            with tempfile.TemporaryDirectory() as scratch:
                manifest["log_dirs"][name] = make(harness, Path(scratch), HERE / name)
    finally:
        harness.close()
    (HERE / "manifest.json").write_text(_format(manifest) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic, who writes it and how."""

    name: str
    client: str
    fill: Callable[[Harness, KafkaBroker, str], None]
    config: Mapping[str, str | int]


def make_stopped(harness: Harness, scratch: Path, target: Path) -> dict[str, Any]:
    topics = list(_stopped_topics())
    with KafkaBroker(harness, scratch / "kafka", properties=PROPERTIES) as broker:
        broker.start()
        _fill(harness, broker, topics)
        _wait_until_cleaned(broker, "compacted")
        consumed = _consume(harness, broker, topics)
        broker.stop()
        _copy_log_dir(broker.log_dir, target)
    return _describe(harness, target, topics, consumed, clean=True)


def make_killed(harness: Harness, scratch: Path, target: Path) -> dict[str, Any]:
    small = {"segment.bytes": 700, "index.interval.bytes": 100}
    topics = [
        Topic(name="open-transaction", client="java", fill=fill_open_transaction, config=small),
        Topic(name="killed-segments", client="java", fill=fill_segments, config=small),
    ]
    with KafkaBroker(harness, scratch / "kafka", properties=PROPERTIES) as broker:
        broker.start()
        _fill(harness, broker, topics)
        consumed = _consume(harness, broker, topics)
        broker.kill()
        _copy_log_dir(broker.log_dir, target)
    return _describe(harness, target, topics, consumed, clean=False)


def _stopped_topics() -> Iterator[Topic]:
    for codec in CODECS:
        yield Topic(name=f"java-{codec}", client="java", fill=fill_java, config={})
    for codec in CODECS:
        yield Topic(
            name=f"librdkafka-{codec}", client="librdkafka", fill=fill_librdkafka, config={}
        )
    small: dict[str, str | int] = {"segment.bytes": 1500, "index.interval.bytes": 200}
    yield Topic(name="plain", client="java", fill=fill_plain, config={})
    yield Topic(name="segments", client="java", fill=fill_segments, config=small)
    yield Topic(
        name="append-time",
        client="java",
        fill=fill_segments,
        config={**small, "message.timestamp.type": "LogAppendTime"},
    )
    yield Topic(
        name="transactions",
        client="java",
        fill=fill_transactions,
        config={"segment.bytes": 700, "index.interval.bytes": 100},
    )
    yield Topic(
        name="librdkafka-transactions",
        client="librdkafka",
        fill=fill_librdkafka_transactions,
        config={"segment.bytes": 700},
    )
    yield Topic(
        name="compacted",
        client="java",
        fill=fill_compacted,
        config={
            "cleanup.policy": "compact",
            "segment.bytes": 400,
            "min.cleanable.dirty.ratio": "0.01",
            "file.delete.delay.ms": 0,
        },
    )
    yield Topic(name="empty", client="nobody", fill=fill_nothing, config={})


def fill_nothing(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Leave the partition as it was created."""


def fill_java(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Idempotent batches of one codec: odd records, a single one, and one of several blocks."""
    codec = topic.rsplit("-", 1)[1]
    script = ProducerScript()
    script.producer(compression_type=codec)
    for record in (*ODD_RECORDS, None, ODD_RECORDS[0], None, *_long_records(codec)):
        if record is None:
            script.flush()
        else:
            script.send(topic, record)
    harness.produce(broker.bootstrap, script)


def fill_librdkafka(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    codec = topic.rsplit("-", 1)[1]
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.codec": codec,
            "enable.idempotence": True,
            "linger.ms": 1000,
        }
    )
    for batch in (ODD_RECORDS, ODD_RECORDS[:1], _long_records(codec)):
        for record in batch:
            _send(producer, topic, record)
        _flush(producer)


def fill_plain(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Batches without a producer id."""
    script = ProducerScript()
    script.producer(enable_idempotence="false", acks="1")
    for _ in range(2):
        for record in ODD_RECORDS:
            script.send(topic, record)
        script.flush()
    harness.produce(broker.bootstrap, script)


def fill_segments(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Many small batches of two producers and two codecs, with timestamps that go up and down."""
    script = ProducerScript()
    script.producer("a", compression_type="lz4")
    script.producer("b")
    for number in range(40):
        producer = "ab"[number % 3 == 0]
        for inner in range(1 + number % 4):
            record = NewRecord(
                key=b"key-%d" % (number % 7),
                value=b"value-%d-%d" % (number, inner) + b"." * (number % 5 * 20),
                timestamp_ms=T0 + number * 100 - (number * 37 % 11) * 150 + inner,
            )
            script.send(topic, record, producer=producer)
        script.flush(producer)
    harness.produce(broker.bootstrap, script)


def fill_transactions(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Transactions that overlap, commit, abort, span segments, between plain records."""
    harness.produce(broker.bootstrap, _transactions(topic))


def fill_open_transaction(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    script = _transactions(topic)
    script.producer("open", transactional_id=f"{topic}-open", transaction_timeout_ms="900000")
    script.begin("open")
    script.send(topic, NewRecord(key=b"open", value=b"undecided", timestamp_ms=T0), producer="open")
    script.flush("open")
    script.send(topic, NewRecord(key=b"p", value=b"after", timestamp_ms=T0), producer="plain")
    script.halt()
    harness.produce(broker.bootstrap, script)


def _transactions(topic: str) -> ProducerScript:
    script = ProducerScript()
    script.producer("plain")
    for name in "abc":
        script.producer(name, transactional_id=f"{topic}-{name}", compression_type="gzip")

    def send(producer: str, *values: bytes) -> None:
        for value in values:
            record = NewRecord(key=producer.encode(), value=value, timestamp_ms=T0)
            script.send(topic, record, producer=producer)
        script.flush(producer)

    for round_number in range(3):
        tag = b"%d" % round_number
        script.begin("a")
        send("a", b"aborted-1-" + tag, b"aborted-2-" + tag)
        script.begin("b")
        send("b", b"committed-1-" + tag)
        send("plain", b"plain-" + tag)
        send("a", b"aborted-3-" + tag)
        script.abort("a")
        send("b", b"committed-2-" + tag, b"committed-3-" + tag)
        script.commit("b")
        script.begin("a")
        send("a", b"committed-4-" + tag)
        script.commit("a")
        script.begin("c")
        send("c", b"aborted-4-" + tag)
        script.abort("c")
    return script


def fill_librdkafka_transactions(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 1000}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for record in ODD_RECORDS:
            _send(producer, topic, record)
        _flush(producer)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def fill_compacted(harness: Harness, broker: KafkaBroker, topic: str) -> None:
    """Superseded records and tombstones; one producer whose only record is superseded by another.

    After the cleaner has passed there are batches with gaps, batches with a delete horizon, and an
    empty batch that keeps the sequence of the first producer.
    """
    script = ProducerScript()
    for name in ("early", "late"):
        script.producer(name)

    def send(producer: str, *pairs: tuple[bytes, bytes | None]) -> None:
        for key, value in pairs:
            script.send(topic, NewRecord(key=key, value=value, timestamp_ms=T0), producer=producer)
        script.flush(producer)

    send("early", (b"a", b"superseded"))
    for number in range(12):
        tag = b"%d" % number
        send("late", (b"a", b"a" + tag), (b"b", b"b" + tag), (b"only-" + tag, b"kept"))
    send("late", (b"b", None), (b"c", b"c"))
    for number in range(6):
        send("late", (b"d", b"padding-%d" % number * 10))
    harness.produce(broker.bootstrap, script)


def _long_records(codec: str) -> tuple[NewRecord, ...]:
    # More than one block of lz4 (64 KiB) and of xerial's snappy (32 KiB), which compress well.
    length = 2_000 if codec == "none" else 70_000
    value = b"".join(b"siltstone %d," % (number % 97) for number in range(length))[:length]
    return tuple(
        NewRecord(key=b"long-%d" % number, value=value, timestamp_ms=T0 + number)
        for number in range(2)
    )


def _send(producer: Producer, topic: str, record: NewRecord) -> None:
    producer.produce(
        topic,
        value=record.value,
        key=record.key,
        partition=0,
        timestamp=record.timestamp_ms or 0,
        headers=list(record.headers),
        on_delivery=_raise_delivery_error,
    )


def _raise_delivery_error(error: Any, _message: Any) -> None:
    if error is not None:
        raise RuntimeError(f"librdkafka could not deliver: {error}")


def _flush(producer: Producer) -> None:
    if producer.flush(30) > 0:
        raise RuntimeError("librdkafka did not deliver in time")


def _fill(harness: Harness, broker: KafkaBroker, topics: list[Topic]) -> None:
    for topic in topics:
        broker.create_topic(topic.name, config=topic.config)
        topic.fill(harness, broker, topic.name)


def _consume(harness: Harness, broker: KafkaBroker, topics: list[Topic]) -> dict[str, Any]:
    """Tell which offsets Kafka's consumer reads, by topic and isolation level."""
    consumed: dict[str, Any] = {}
    for topic in topics:
        consumed[topic.name] = {}
        for isolation in ("read_uncommitted", "read_committed"):
            node = harness.log_ops.result(
                "consume",
                bootstrap=broker.bootstrap,
                topic=topic.name,
                partition=0,
                config={"isolation.level": isolation},
            )
            consumed[topic.name][isolation] = {
                "offsets": [record["offset"] for record in node["records"]],
                "beginning_offset": node["beginning_offset"],
                "end_offset": node["end_offset"],
            }
    return consumed


def _wait_until_cleaned(broker: KafkaBroker, topic: str) -> None:
    """Wait until the cleaner has come as far as it can: to the active segment."""
    deadline = time.monotonic() + 60
    checkpoint = broker.log_dir / "cleaner-offset-checkpoint"
    while time.monotonic() < deadline:
        bases = sorted(int(path.stem) for path in broker.partition_dir(topic).glob("*.log"))
        if f"{topic} 0 {bases[-1]}" in checkpoint.read_text().splitlines():
            return
        time.sleep(0.1)
    raise RuntimeError(f"the cleaner did not finish {topic}: {checkpoint.read_text()}")


def _copy_log_dir(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def _describe(
    harness: Harness,
    log_dir: Path,
    topics: list[Topic],
    consumed: dict[str, Any],
    *,
    clean: bool,
) -> dict[str, Any]:
    by_name = {topic.name: topic for topic in topics}
    partitions: dict[str, Any] = {}
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        node = harness.log_ops.result("log_state", dir=str(directory), records=True)
        _shorten_values(node)
        topic = by_name.get(directory.name.rsplit("-", 1)[0])
        if topic is not None:
            node["client"] = topic.client
            node["config"] = {name: str(value) for name, value in topic.config.items()}
            node["consumed"] = consumed[topic.name]
        node["loaded"] = _load(harness, directory, clean=clean)
        partitions[directory.name] = node
    return {
        "clean_shutdown": clean,
        "files": {
            path.name: path.read_text()
            for path in sorted(log_dir.iterdir())
            if path.is_file() and path.suffix != ".checkpoint"
        },
        "partitions": partitions,
    }


def _load(harness: Harness, directory: Path, *, clean: bool) -> dict[str, Any]:
    """Let Kafka load a copy, recovering everything if the broker was killed, and tell its state."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / directory.name
        shutil.copytree(directory, copy)
        log = harness.log_ops.open(copy, now_ms=T0, clean=clean, config=_index_config())
        # As the only replica does at once; before that nothing is stable.
        log.update_high_watermark(log.state.log_end_offset)
        state: dict[str, Any] = harness.log_ops.call("state", log=log.name)["state"]
        log.forget()
    for name in ("files", "pending_tasks", "now_ms"):
        del state[name]
    for segment in state["segments"]:
        for name in ("created_ms", "roll_jitter_ms", "bytes_since_index_entry"):
            del segment[name]
    return state


def _index_config() -> dict[str, int]:
    return {"segment.index.bytes": INDEX_BYTES, "index.interval.bytes": 100}


def _shorten_values(node: dict[str, Any]) -> None:
    for segment in node["segments"]:
        for batch in segment["batches"]:
            for record in batch["records"]:
                value = base64.b64decode(record["value"] or "")
                if len(value) > LONGEST_INLINE_VALUE:
                    digest = hashlib.sha256(value).hexdigest()
                    record["value"] = {"length": len(value), "sha256": digest}


def _format(node: Any, indent: str = "") -> str:
    """Format as JSON with as many short things on a line as fit; one per line would be 20,000."""
    whole = json.dumps(node, ensure_ascii=False, sort_keys=True)
    if len(indent + whole) <= LINE_LENGTH or not isinstance(node, dict | list):
        return whole
    inner = indent + " "
    if isinstance(node, dict):
        items = [f"{json.dumps(name)}: {_format(node[name], inner)}" for name in sorted(node)]
    else:
        items = [_format(item, inner) for item in node]
    lines = [inner + items[0]]
    for item in items[1:]:
        if "\n" in item or len(lines[-1].splitlines()[-1] + item) > LINE_LENGTH - 3:
            lines[-1] += ","
            lines.append(inner + item)
        else:
            lines[-1] += f", {item}"
    opening, closing = ("{", "}") if isinstance(node, dict) else ("[", "]")
    return "\n".join([opening, *lines, indent + closing])


if __name__ == "__main__":
    main()
