"""Journaling for high availability: a processor's state survives the processor.

It counts words and writes each new count to a compacted changelog before it goes on, together with
the place in its input: so the two can never disagree. When it dies, a fresh process restores both.

    python examples/failover.py DIRECTORY
"""

import json
import subprocess
import sys
from pathlib import Path

import siltstone
from examples.topic_writer import TopicWriter

TEXT = "to be or not to be that is the question to be asked"


def process(directory: Path, crash_after: int | None = None) -> dict[str, int]:
    """Count the words that are not counted yet; die on the way if told to."""
    with TopicWriter(directory, "word-counts", partitions=1, cleanup_policy="compact") as journal:
        state: dict[bytes, bytes] = {}
        siltstone.open(directory).table("word-counts").restore_into(state)
        restored = {key.decode(): json.loads(value) for key, value in state.items()}
        counts = {word: entry["count"] for word, entry in restored.items()}
        start = max((entry["position"] + 1 for entry in restored.values()), default=0)
        for position, word in list(enumerate(TEXT.split()))[start:]:
            if position == crash_after:
                raise SystemExit(3)
            counts[word] = counts.get(word, 0) + 1
            entry = {"count": counts[word], "position": position}
            journal.put(word.encode(), json.dumps(entry).encode())
        return counts


def main(directory: Path) -> dict[str, int]:
    """Let one process die half-way, and another one finish its work."""
    command = [sys.executable, "-m", "examples.failover", str(directory), "7"]
    died = subprocess.run(command, check=False)
    assert died.returncode == 3
    return process(directory)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    result = process(where, int(sys.argv[2])) if len(sys.argv) > 2 else main(where)
    sys.stdout.write(json.dumps(result))
