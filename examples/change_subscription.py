"""Database change subscription: a cache and a search index kept in step with a table.

Every insert, update and delete of the table `products` becomes a record with the row's id as key: a
trigger notes it in an outbox, in the same transaction as the change itself, and a relay moves the
outbox into the compacted topic. Whoever subscribes gets the state first and the changes after it,
however late it comes: compaction keeps the last value of each row.

    python examples/change_subscription.py DIRECTORY
"""

import json
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path

import siltstone
from examples.topic_writer import TopicWriter
from siltstone.table.decoding import decode_json, decode_text
from siltstone.table.table import Change

SCHEMA = """
CREATE TABLE products (id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE outbox (number INTEGER PRIMARY KEY, id TEXT, row TEXT);
CREATE TRIGGER inserted AFTER INSERT ON products
  BEGIN INSERT INTO outbox (id, row) VALUES (new.id, json_object('name', new.name)); END;
CREATE TRIGGER updated AFTER UPDATE ON products
  BEGIN INSERT INTO outbox (id, row) VALUES (new.id, json_object('name', new.name)); END;
CREATE TRIGGER deleted AFTER DELETE ON products
  BEGIN INSERT INTO outbox (id, row) VALUES (old.id, NULL); END;
"""


def relay(database: sqlite3.Connection, writer: TopicWriter) -> None:
    """Move the outbox into the topic; a change is forgotten once the topic has it."""
    rows = database.execute("SELECT number, id, row FROM outbox ORDER BY number").fetchall()
    for number, key, row in rows:
        writer.put(key.encode(), None if row is None else row.encode())
        database.execute("DELETE FROM outbox WHERE number = ?", (number,))
    database.commit()


class Subscriber:
    """A cache by id, and an index from each word of a name to the ids that have it."""

    def __init__(self) -> None:
        self.cache: dict[str, dict[str, str]] = {}
        self.index: defaultdict[str, set[str]] = defaultdict(set)

    def apply(self, change: Change) -> None:
        """Take in one change; a value of None means that the row is gone."""
        for word in self.cache.pop(change.key, {}).get("name", "").split():
            self.index[word].discard(change.key)
        if change.value is not None:
            self.cache[change.key] = change.value
            for word in change.value["name"].split():
                self.index[word].add(change.key)


def main(directory: Path) -> Subscriber:
    """Change a table, and let a subscriber follow."""
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    subscriber = Subscriber()
    with TopicWriter(directory, "products", cleanup_policy="compact") as writer:
        database.execute("INSERT INTO products VALUES ('1', 'red lamp'), ('2', 'blue lamp')")
        database.execute("UPDATE products SET name = 'green lamp' WHERE id = '1'")
        relay(database, writer)
        table = siltstone.open(directory).table(
            "products", decode_key=decode_text, decode_value=decode_json
        )
        for change in table.follow(waits=False):
            subscriber.apply(change)
        ends = {bounds.partition.partition: bounds.end_offset for bounds in table.bounds()}

        database.execute("DELETE FROM products WHERE id = '2'")
        database.execute("INSERT INTO products VALUES ('3', 'green chair')")
        relay(database, writer)
        for change in table.follow(ends, waits=False):
            subscriber.apply(change)
    return subscriber


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    sys.stdout.write(json.dumps({"cache": found.cache, "green": sorted(found.index["green"])}))
