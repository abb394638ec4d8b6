"""One partition on one disk: segments, indexes, producer state, recovery, log directories."""
