"""How far groups have come, and how far they will have come once a transaction commits.

Offsets are kept as the bytes that stand in the log, and decoded when somebody asks: after a restart
there may be millions of them, and few are asked for.

What a transaction commits counts from its marker on, unless it was written before something that
counts already. Until then a consumer that wants stable offsets has to wait.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from siltstone.coordinator.group.records import (
    OffsetKey,
    OffsetValue,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
)

_PARTITION_BYTES: Final = 4  # its number, at the end of a key


class _Pending(NamedTuple):
    """What a transaction that is not decided yet has written for one partition."""

    value: bytes
    number: int  # later ones have higher numbers


class OffsetStore:
    """The committed offsets of all groups; changed only by what stands in the log."""

    def __init__(self) -> None:
        self._committed: Final[dict[str, dict[bytes, bytes]]] = {}
        self._pending: Final[dict[str, dict[int, dict[bytes, _Pending | None]]]] = {}
        self._next_number = 0

    # Looking

    def groups(self) -> set[str]:
        """Return the groups that have offsets, also such that are to come."""
        return {*(group for group, found in self._committed.items() if found), *self._pending}

    @property
    def has_pending(self) -> bool:
        """Whether any transaction is open that has written offsets."""
        return bool(self._pending)

    def has_any(self, group_id: str) -> bool:
        """Say whether a group has offsets, or may get some."""
        return bool(self._committed.get(group_id)) or bool(self._pending.get(group_id))

    def find(self, key: OffsetKey) -> OffsetValue | None:
        """Return how far a group has come in a partition, or None."""
        data = self._committed.get(key.group_id, {}).get(encode_offset_key(key))
        return None if data is None else decode_offset_value(data)

    def is_unstable(self, key: OffsetKey) -> bool:
        """Say whether a transaction that is not decided yet may change an offset."""
        pending = self._pending.get(key.group_id)
        if not pending:
            return False
        raw = encode_offset_key(key)
        return any(raw in written for written in pending.values())

    def keys(self, group_id: str) -> list[OffsetKey]:
        """Return the partitions that a group has offsets for."""
        return [decode_offset_key(raw) for raw in self._committed.get(group_id, ())]

    def all_keys(self, group_id: str) -> list[OffsetKey]:
        """Return the partitions that a group has offsets for, or may get some."""
        return list({*self.keys(group_id), *self.pending_keys(group_id)})

    def keys_of_topic(self, group_id: str, topic: str) -> list[OffsetKey]:
        """Return those of one topic; the others, which may be many, are not decoded."""
        prefix = encode_offset_key(OffsetKey(group_id, topic, 0))[:-_PARTITION_BYTES]
        pending = self._pending.get(group_id, {}).values()
        every = chain(self._committed.get(group_id, ()), *pending)
        found = {raw for raw in every if raw.startswith(prefix)}
        return [decode_offset_key(raw) for raw in found]

    def pending_keys(self, group_id: str) -> set[OffsetKey]:
        """Return the partitions that open transactions have written offsets for."""
        pending = self._pending.get(group_id, {})
        return {decode_offset_key(raw) for written in pending.values() for raw in written}

    def items(self, group_id: str) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Yield the offsets of a group."""
        for raw, data in self._committed.get(group_id, {}).items():
            yield decode_offset_key(raw), decode_offset_value(data)

    def count(self, group_id: str) -> int:
        """Return how many offsets a group has."""
        return len(self._committed.get(group_id, ()))

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    # What stands in the log

    def entries(self, group_id: str) -> dict[bytes, bytes]:
        """Return the offsets of a group as key and value, for who loads many of them."""
        return self._committed.setdefault(group_id, {})

    def put(self, group_id: str, key: bytes, value: bytes | None) -> None:
        """Take in a record that counts at once.

        Without a value it takes the offset away, also what open transactions have written for it.
        """
        if value is None:
            self._remove(group_id, key)
            return
        self._committed.setdefault(group_id, {})[key] = value
        for written in self._pending.get(group_id, {}).values():
            if key in written:
                written[key] = None  # Older than what counts now.

    def put_pending(self, group_id: str, producer_id: int, key: bytes, value: bytes) -> None:
        """Take in a record of a transaction."""
        self._next_number += 1
        written = self._pending.setdefault(group_id, {}).setdefault(producer_id, {})
        written[key] = _Pending(value, self._next_number)

    def end_transaction(self, group_id: str, producer_id: int, *, is_committed: bool) -> None:
        """Let what a transaction has written count, or forget it."""
        pending = self._pending.get(group_id, {})
        written = pending.pop(producer_id, {})
        if not pending:
            self._pending.pop(group_id, None)
        if not is_committed:
            return
        committed = self._committed.setdefault(group_id, {})
        for key, one in written.items():
            if one is None:
                continue
            committed[key] = one.value
            for others in pending.values():
                other = others.get(key)
                if other is not None and other.number < one.number:
                    others[key] = None

    def groups_of_producer(self, producer_id: int) -> list[str]:
        """Return the groups whose offsets wait for a transaction of a producer."""
        return [group for group, pending in self._pending.items() if producer_id in pending]

    def _remove(self, group_id: str, key: bytes) -> None:
        committed = self._committed.get(group_id)
        if committed is not None:
            committed.pop(key, None)
            if not committed:
                del self._committed[group_id]
        pending = self._pending.get(group_id, {})
        for producer_id, written in list(pending.items()):
            written.pop(key, None)
            if not written:
                del pending[producer_id]
        if not pending:
            self._pending.pop(group_id, None)
