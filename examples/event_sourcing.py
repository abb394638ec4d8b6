"""Event sourcing: an account's balance is what its events add up to.

The topic `account-events` keeps every event (its policy is `delete`, without a limit). A state is a
replay: up to now, or up to any earlier offset.

    python examples/event_sourcing.py DIRECTORY
"""

import json
import sys
from collections import Counter
from pathlib import Path

import siltstone
from examples.topic_writer import TopicWriter
from siltstone.table.request import View, ViewRequest

EVENTS = [("anna", 100), ("ben", 50), ("anna", -30), ("ben", 25), ("anna", -20)]


def replay(directory: Path, end_offset: int | None = None) -> dict[str, int]:
    """Add up all events below an offset."""
    request = ViewRequest(view=View.LOG, end_offset=end_offset)
    events = siltstone.open(directory).table("account-events").to_arrow(request)
    balances: Counter[str] = Counter()
    for batch in events:
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            balances[key.decode()] += json.loads(value)["amount"]
    return dict(balances)


def main(directory: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Write events, and replay all of them and the first three."""
    with TopicWriter(directory, "account-events", partitions=1, retention_ms="-1") as writer:
        for account, amount in EVENTS:
            writer.put(account.encode(), json.dumps({"amount": amount}).encode())
        return replay(directory), replay(directory, end_offset=3)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
