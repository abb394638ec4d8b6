"""A topic as a table: look up keys, read all of it, restore a state, follow the changes.

Nothing is locked and no log is changed: an owner may append and compact meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from siltstone.errors import KeyNotLiveError, UnknownTopicError
from siltstone.ids import TopicPartition
from siltstone.log.log_reader import LogReader
from siltstone.records.batch import TimestampType
from siltstone.records.partitioner import java_partition
from siltstone.records.record import Header
from siltstone.table.lookup import PartitionLookup

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.table.request import ViewBounds, ViewRequest
    from siltstone.table.scanning import TableView

Key = bytes | str

_POLL_SECONDS: Final = 0.2


class TableRecord(NamedTuple):
    """The last record of a key; the value of a tombstone is None."""

    key: Any
    value: Any
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    headers: tuple[Header, ...]

    @property
    def is_tombstone(self) -> bool:
        """Whether the key is deleted."""
        return self.value is None


class Change(NamedTuple):
    """A key's value from an offset on; None: the key is deleted."""

    key: Any
    value: Any
    partition: int
    offset: int


class Store(Protocol):
    """Something like RocksDB, which takes one key at a time."""

    def put(self, key: Any, value: Any) -> object:
        """Set the value of a key."""
        ...


class Restored(NamedTuple):
    """How much was restored, and up to where: go on from these offsets."""

    key_count: int
    end_offsets: Mapping[int, int]  # by partition


def _unchanged(data: bytes) -> Any:
    return data


class Table:
    """The last value of each live key of a topic.

    Keys are given as bytes or text; they and the values come back as `decode_key` and
    `decode_value` make them, bytes if nothing else is said (see `siltstone.table.decoding`).
    """

    def __init__(
        self,
        reader: LogReader,
        topic: str,
        *,
        decode_key: Callable[[bytes], Any] = _unchanged,
        decode_value: Callable[[bytes], Any] = _unchanged,
    ) -> None:
        self.topic = topic
        self._reader = reader
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._partition_count = reader.describe(topic).partition_count
        self._lookups = {
            number: PartitionLookup(reader, TopicPartition(topic, number))
            for number in reader.partitions(topic)
        }

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions that can be read here."""
        return tuple(self._lookups)

    # One key

    def find(self, key: Key, *, partition: int | None = None) -> TableRecord | None:
        """Return the last record of a key, which may be a tombstone; None if there is none.

        Looks where Java's partitioner puts the key, unless told a partition.
        """
        data = key.encode("utf-8") if isinstance(key, str) else key
        number = self.partition_of(data) if partition is None else partition
        lookup = self._lookups.get(number)
        if lookup is None:
            raise UnknownTopicError(self.topic, number)
        found = lookup.find(data)
        if found is None:
            return None
        record = found.record
        return TableRecord(
            self._decode_key(data),
            None if record.value is None else self._decode_value(record.value),
            number,
            record.offset,
            record.timestamp_ms,
            found.timestamp_type,
            record.headers,
        )

    def get(self, key: Key, default: Any = None, *, partition: int | None = None) -> Any:
        """Return the value of a key; `default` if it was never seen, or was deleted."""
        found = self.find(key, partition=partition)
        return default if found is None or found.is_tombstone else found.value

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """Return the values of those of the keys that are live."""
        found = ((key, self.find(key)) for key in keys)
        return {
            key: record.value
            for key, record in found
            if record is not None and not record.is_tombstone
        }

    def __getitem__(self, key: Key) -> Any:
        found = self.find(key)
        if found is None or found.is_tombstone:
            shown = key if isinstance(key, str) else repr(key)
            raise KeyNotLiveError(shown, self.topic, None if found is None else found.offset)
        return found.value

    def __contains__(self, key: Key) -> bool:
        found = self.find(key)
        return found is not None and not found.is_tombstone

    def partition_of(self, key: bytes) -> int:
        """Return the partition that Java's partitioner puts a key into."""
        return java_partition(key, self._partition_count)

    # All of them

    def to_arrow(self, request: "ViewRequest | None" = None) -> "pa.RecordBatchReader":
        """Return the table, or another view, as a stream of Arrow record batches.

        DuckDB, Polars and pandas read it as it is. The schema's metadata has the bounds.
        """
        return self._view(request).to_reader()

    def bounds(self) -> "list[ViewBounds]":
        """Return for each partition up to where `to_arrow` would read now, and from where exact."""
        return list(self._view(None).bounds)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every live key with its value."""
        for keys, values in self._view(None).iter_columns():
            yield from zip(
                map(self._decode_key, keys), map(self._decode_value, values), strict=True
            )

    def restore_into(self, target: MutableMapping[Any, Any] | Store) -> Restored:
        """Put every live key into a dict, a mapping, or something with `put`.

        Much faster than one by one: keys and values are cut out of whole columns.
        """
        view = self._view(None)
        count = 0
        for raw_keys, raw_values in view.iter_columns():
            keys: Iterable[Any] = raw_keys
            values: Iterable[Any] = raw_values
            if self._decode_key is not _unchanged:
                keys = map(self._decode_key, raw_keys)
            if self._decode_value is not _unchanged:
                values = map(self._decode_value, raw_values)
            if isinstance(target, MutableMapping):
                target.update(zip(keys, values, strict=True))
            else:
                for key, value in zip(keys, values, strict=True):
                    target.put(key, value)
            count += len(raw_keys)
        ends = {bounds.partition.partition: bounds.end_offset for bounds in view.bounds}
        return Restored(count, ends)

    def follow(
        self, start_offsets: Mapping[int, int] | None = None, *, waits: bool = True
    ) -> Iterator[Change]:
        """Yield the state, and then every committed change, with nothing missing in between.

        With `start_offsets` (those of `restore_into`) only the changes after them. Ends at the end
        of the log unless it `waits` for more.
        """
        scanning = _load_scanning()
        ends = dict(start_offsets or {})
        for number in self.partitions:
            if number not in ends:
                view = scanning.read_table(self._reader, self.topic, None, [number])
                for rows in view.iter_changes():
                    yield from map(self._change, rows)
                ends[number] = view.bounds[0].end_offset
        while True:
            is_idle = True
            for number in self.partitions:
                view = scanning.read_changes(self._reader, self.topic, number, ends[number])
                for rows in view.iter_changes():
                    is_idle = False
                    yield from map(self._change, rows)
                ends[number] = view.bounds[0].end_offset
            if is_idle:
                if not waits:
                    return
                time.sleep(_POLL_SECONDS)

    def _change(self, row: tuple[bytes | None, bytes | None, int, int]) -> Change:
        key, value, partition, offset = row
        return Change(
            None if key is None else self._decode_key(key),
            None if value is None else self._decode_value(value),
            partition,
            offset,
        )

    def _view(self, request: "ViewRequest | None") -> "TableView":
        view: TableView = _load_scanning().read_table(
            self._reader, self.topic, request, self.partitions
        )
        return view


class Logs:
    """Log directories that another process may own, open for reading."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._reader = LogReader(paths)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return [topic.topic for topic in self._reader.topics()]

    def table(
        self,
        topic: str,
        *,
        decode_key: Callable[[bytes], Any] = _unchanged,
        decode_value: Callable[[bytes], Any] = _unchanged,
    ) -> Table:
        """Open a topic as a table; raise UnknownTopicError if there is none of that name."""
        return Table(self._reader, topic, decode_key=decode_key, decode_value=decode_value)


def open_logs(*paths: str | Path) -> Logs:
    """Open log directories for reading."""
    return Logs([Path(path) for path in paths])


def _load_scanning() -> Any:
    # Here, for it brings along Arrow and the compiler, which a lookup does without.
    from siltstone.table import scanning  # noqa: PLC0415

    return scanning
