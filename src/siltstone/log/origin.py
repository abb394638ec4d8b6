"""Where an append comes from, which decides how much of it is checked."""

from enum import Enum, auto


class AppendOrigin(Enum):
    """Who hands batches to a log."""

    CLIENT = auto()
    """A produce request: everything is checked."""

    COORDINATOR = auto()
    """Our own offset commits and markers: they carry epochs, but no sequences."""

    REPLICATION = auto()
    """Copied from the leader, or read back from disk: was checked when it was first appended."""
