"""The changes of a PostgreSQL table, from its own write-ahead log: logical decoding by `pgoutput`.

The server needs `wal_level=logical`. A publication says which table, a slot remembers how far we
are: the server keeps what the slot has not passed, however long we are away. A key is the row's
primary key and a value the row, both as JSON; a row that is gone has no value.
"""

import json
import struct
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from psycopg import sql

Row = dict[str, str | None]


class RowChange(NamedTuple):
    """What a row is from now on; None: it is deleted."""

    key: bytes
    row: bytes | None


class ChangeFeed:
    """Reads what has changed in one table since it was asked last."""

    def __init__(self, connection: psycopg.Connection, table: str) -> None:
        self._connection = connection
        self._name = f"silt_{table}"
        self._decoder = PgOutput()
        known = connection.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (self._name,)
        ).fetchone()
        if known is None:
            name, source = sql.Identifier(self._name), sql.Identifier(table)
            connection.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(name, source))
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._name,)
            )

    def read(self) -> Iterator[RowChange]:
        """Yield the changes of all committed transactions, in the order of their commits.

        They are forgotten when the last one was taken: who dies on the way gets them again.
        """
        messages = self._connection.execute(
            "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes("
            "%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)",
            (self._name, self._name),
        ).fetchall()
        for _, data in messages:
            yield from self._decoder.decode(data)
        if messages:
            position = messages[-1][0]
            self._connection.execute(
                "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self._name, position)
            )


class PgOutput:
    """Takes messages of `pgoutput` apart, version 1 of its protocol."""

    def __init__(self) -> None:
        self._columns: dict[int, list[tuple[str, bool]]] = {}  # by table: name, is in its key

    def decode(self, data: bytes) -> Iterator[RowChange]:
        """Yield the changes that a message tells of: none for most, two if a key has changed."""
        kind, reader = data[:1], _Reader(data[1:])
        if kind == b"R":
            self._note_columns(reader)
        elif kind == b"I":
            columns = self._columns[reader.number("I")]
            reader.take(1)
            yield _put(columns, reader.row(columns))
        elif kind == b"U":
            columns = self._columns[reader.number("I")]
            if reader.take(1) != b"N":
                yield _delete(columns, reader.row(columns))
                reader.take(1)
            yield _put(columns, reader.row(columns))
        elif kind == b"D":
            columns = self._columns[reader.number("I")]
            reader.take(1)
            yield _delete(columns, reader.row(columns))

    def _note_columns(self, reader: "_Reader") -> None:
        table = reader.number("I")
        reader.text()
        reader.text()
        reader.take(1)
        columns = []
        for _ in range(reader.number("H")):
            is_key = reader.number("B") == 1
            columns.append((reader.text(), is_key))
            reader.take(8)
        self._columns[table] = columns


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, code: str) -> int:
        value: int = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))[0]
        return value

    def text(self) -> str:
        return self.take(self._data.index(b"\0", self._at) + 1 - self._at)[:-1].decode()

    def row(self, columns: list[tuple[str, bool]]) -> Row:
        row: Row = {}
        for name, _ in columns[: self.number("H")]:
            match self.take(1):
                case b"t":
                    row[name] = self.take(self.number("I")).decode()
                case b"n":
                    row[name] = None
                case other:
                    raise ValueError(f"column {name} has no value here: {other!r}")
        return row


def _put(columns: list[tuple[str, bool]], row: Row) -> RowChange:
    return RowChange(_key(columns, row), json.dumps(row).encode())


def _delete(columns: list[tuple[str, bool]], row: Row) -> RowChange:
    return RowChange(_key(columns, row), None)


def _key(columns: list[tuple[str, bool]], row: Row) -> bytes:
    return json.dumps({name: row[name] for name, is_key in columns if is_key}).encode()
