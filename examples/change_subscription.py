"""Database change subscription: a cache and a search index kept in step with a PostgreSQL table.

Every insert, update and delete of the table `products` becomes a record with the row's primary key
as key, out of the server's own write-ahead log. Whoever subscribes gets the state first and the
changes after it, however late it comes: compaction keeps the last value of each row.

    python examples/change_subscription.py DIRECTORY postgresql://HOST/DATABASE
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psycopg

import siltstone
from examples.postgres_changes import ChangeFeed
from examples.topic_writer import TopicWriter
from siltstone.table.decoding import decode_json
from siltstone.table.table import Change


class Subscriber:
    """A cache by id, and an index from each word of a name to the ids that have it."""

    def __init__(self) -> None:
        self.cache: dict[str, str] = {}
        self.index: defaultdict[str, set[str]] = defaultdict(set)
        self.positions: dict[int, int] = {}

    def catch_up(self, directory: Path) -> None:
        """Take in the state, and later what has changed since."""
        table = siltstone.open(directory).table(
            "products", decode_key=decode_json, decode_value=decode_json
        )
        for change in table.follow(self.positions, waits=False):
            self.apply(change)
            self.positions[change.partition] = change.offset + 1

    def apply(self, change: Change) -> None:
        """Take in one change; a value of None means that the row is gone."""
        key = change.key["id"]
        for word in self.cache.pop(key, "").split():
            self.index[word].discard(key)
        if change.value is not None:
            self.cache[key] = change.value["name"]
            for word in change.value["name"].split():
                self.index[word].add(key)

    def find(self, word: str) -> Mapping[str, str]:
        """Return the products with a word in their name."""
        return {key: self.cache[key] for key in sorted(self.index[word])}


def relay(feed: ChangeFeed, writer: TopicWriter) -> None:
    """Move what has changed into the topic."""
    for change in feed.read():
        writer.put(change.key, change.row)


def main(directory: Path, database: str) -> Subscriber:
    """Change a table, compact the topic, and let one subscriber follow and another come late."""
    subscriber, latecomer = Subscriber(), Subscriber()
    with (
        psycopg.connect(database, autocommit=True) as connection,
        TopicWriter(directory, "products", cleanup_policy="compact") as writer,
    ):
        connection.execute("CREATE TABLE products (id INT PRIMARY KEY, name TEXT)")
        feed = ChangeFeed(connection, "products")
        connection.execute("INSERT INTO products VALUES (1, 'red lamp'), (2, 'blue lamp')")
        connection.execute("UPDATE products SET name = 'green lamp' WHERE id = 1")
        relay(feed, writer)
        subscriber.catch_up(directory)

        connection.execute("DELETE FROM products WHERE id = 2")
        connection.execute("INSERT INTO products VALUES (3, 'green chair')")
        connection.execute("UPDATE products SET id = 4 WHERE id = 3")
        relay(feed, writer)
        writer.compact()
        subscriber.catch_up(directory)
        latecomer.catch_up(directory)
    assert latecomer.cache == subscriber.cache
    return subscriber


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.write(json.dumps({"cache": found.cache, "green": found.find("green")}))
