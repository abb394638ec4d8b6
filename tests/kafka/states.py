"""What the harness says about Kafka's logs, as values that can be compared and printed."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]
IndexEntries = tuple[tuple[int, int], ...]


def decode(text: str | None) -> bytes | None:
    """Undo base64; a null stays a null."""
    return None if text is None else base64.b64decode(text)


def encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "key": encode(self.key),
            "value": encode(self.value),
            "timestamp_ms": self.timestamp_ms,
            "headers": [[name, encode(value)] for name, value in self.headers],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """A record inside a batch on disk."""

    offset: int
    timestamp_ms: int
    sequence: int
    size: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """A batch on disk, with its records if they were asked for."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    count: int
    crc: int
    is_valid: bool
    codec: str
    timestamp_type: str
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    leader_epoch: int
    attributes: int
    base_timestamp_ms: int
    delete_horizon_ms: int | None
    records: tuple[RecordState, ...] | None = None
    records_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBatch:
    """One of the last five batches that a producer is remembered by."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The state of one producer; -1 where there is none, as Kafka has it on disk."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int
    batches: tuple[ProducerBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """A segment of an open log. An index is None as long as its file does not exist."""

    base_offset: int
    size: int
    offset_index: IndexEntries | None
    time_index: IndexEntries | None
    txn_index: tuple[AbortedTransaction, ...] | None
    max_timestamp: tuple[int, int] | None  # and its offset; None while Kafka has not looked
    rolling_timestamp_ms: int | None
    bytes_since_index_entry: int
    created_ms: int
    roll_jitter_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """An open log after an operation."""

    now_ms: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_unstable_offset: int | None
    recovery_point: int
    size: int
    producer_state_end_offset: int
    latest_snapshot_offset: int | None
    latest_epoch: int | None
    epochs: IndexEntries  # (epoch, start offset)
    producers: tuple[Producer, ...]
    aborted_transactions: tuple[AbortedTransaction, ...]
    segments: tuple[SegmentState, ...]
    files: Mapping[str, int]  # name -> length
    pending_tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """A segment of a closed log. An index is None if its file does not exist."""

    base_offset: int
    size: int
    batches: tuple[BatchState, ...]
    batches_error: str | None
    trailing_bytes: int
    offset_index: IndexEntries | None
    offset_index_error: str | None
    time_index: IndexEntries | None
    time_index_error: str | None
    txn_index: tuple[AbortedTransaction, ...] | None
    txn_index_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A producer snapshot file."""

    offset: int
    producers: tuple[Producer, ...]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """Everything in the directory of a closed log."""

    files: Mapping[str, int]
    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[Snapshot, ...]
    epochs: IndexEntries | None
    topic_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What Kafka answers to an append."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    valid_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What Kafka answers to a read; `aborted_transactions` as (producer id, first offset)."""

    records: bytes
    offset: int
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool
    aborted_transactions: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What Kafka answers to a lookup by timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    """A record as Kafka's Java consumer hands it out."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """A partition read from its beginning to its end."""

    records: tuple[ConsumedRecord, ...]
    beginning_offset: int
    end_offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of one record of a producer script."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTime:
    """How long Kafka's LogManager took to load a directory."""

    logs: int
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """A topic setting as Kafka defines it; `default` and `valid` are Kafka's own texts."""

    name: str
    type: str
    default: str | None
    valid: str | None
    server_default_name: str | None
    internal: bool


def parse_batch(node: Mapping[str, Any]) -> BatchState:
    fields = dict(node)
    if fields.get("records") is not None:
        fields["records"] = tuple(_parse_record(record) for record in fields["records"])
    return BatchState(**fields)


def parse_log_state(node: Mapping[str, Any]) -> LogState:
    fields = dict(node)
    fields["epochs"] = _pairs(node["epochs"])
    fields["producers"] = parse_producers(node["producers"])
    fields["aborted_transactions"] = parse_aborted(node["aborted_transactions"])
    fields["segments"] = tuple(_parse_segment(segment) for segment in node["segments"])
    fields["pending_tasks"] = tuple(node["pending_tasks"])
    return LogState(**fields)


def parse_partition_files(node: Mapping[str, Any]) -> PartitionFiles:
    return PartitionFiles(
        files=node["files"],
        segments=tuple(_parse_segment_files(segment) for segment in node["segments"]),
        snapshots=tuple(
            Snapshot(
                offset=snapshot["offset"],
                producers=parse_producers(snapshot["producers"]),
                error=snapshot["error"],
            )
            for snapshot in node["snapshots"]
        ),
        epochs=_optional_pairs(node["epochs"]),
        topic_id=node["topic_id"],
    )


def parse_producers(nodes: Sequence[Mapping[str, Any]]) -> tuple[Producer, ...]:
    return tuple(
        Producer(
            **{
                **node,
                "batches": tuple(ProducerBatch(**batch) for batch in node["batches"]),
            }
        )
        for node in nodes
    )


def parse_aborted(nodes: Sequence[Mapping[str, Any]]) -> tuple[AbortedTransaction, ...]:
    return tuple(AbortedTransaction(**node) for node in nodes)


def parse_fetched(node: Mapping[str, Any]) -> Fetched:
    fields = dict(node)
    fields["records"] = base64.b64decode(node["records"])
    fields["aborted_transactions"] = _optional_pairs(node["aborted_transactions"])
    return Fetched(**fields)


def parse_consumed(node: Mapping[str, Any]) -> Consumed:
    records = tuple(ConsumedRecord(**_with_bytes(record)) for record in node["records"])
    return Consumed(**{**node, "records": records})


def _parse_record(node: Mapping[str, Any]) -> RecordState:
    return RecordState(**_with_bytes(node))


def _with_bytes(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **node,
        "key": decode(node["key"]),
        "value": decode(node["value"]),
        "headers": tuple((name, decode(value)) for name, value in node["headers"]),
    }


def _parse_segment(node: Mapping[str, Any]) -> SegmentState:
    max_timestamp = node["max_timestamp"]
    fields = _with_indexes(node)
    fields["max_timestamp"] = None if max_timestamp is None else tuple(max_timestamp)
    return SegmentState(**fields)


def _parse_segment_files(node: Mapping[str, Any]) -> SegmentFiles:
    fields = _with_indexes(node)
    fields["batches"] = tuple(parse_batch(batch) for batch in node["batches"])
    fields.setdefault("batches_error", None)
    return SegmentFiles(**fields)


def _with_indexes(node: Mapping[str, Any]) -> dict[str, Any]:
    txn_index = node["txn_index"]
    return {
        **node,
        "offset_index": _optional_pairs(node["offset_index"]),
        "time_index": _optional_pairs(node["time_index"]),
        "txn_index": None if txn_index is None else parse_aborted(txn_index),
    }


def _optional_pairs(pairs: Sequence[Sequence[int]] | None) -> IndexEntries | None:
    return None if pairs is None else _pairs(pairs)


def _pairs(pairs: Sequence[Sequence[int]]) -> IndexEntries:
    return tuple((first, second) for first, second in pairs)
