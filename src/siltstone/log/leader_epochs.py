"""Which leader wrote which part of a log.

Every leader of a partition gets a new epoch, and stamps it on the batches it appends. An entry
says from which offset on an epoch wrote; it ends where the next one starts. Followers and
consumers ask for the end of an epoch to find out where their history left the leader's.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """An epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the offset after the last one that was written in it."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochs:
    """The epochs of one log, oldest first; both epochs and start offsets rise strictly.

    Keeps nothing on disk: whoever changes it writes `entries` to the checkpoint. After `assign`
    that must happen before the batches are acknowledged. A truncation may be written late, for
    a log that is loaded truncates again.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def latest(self) -> EpochEntry | None:
        """Return the newest entry; None if no batch with an epoch was appended."""
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` wrote `start_offset`, and say whether that changed anything.

        Entries that contradict it go: whoever appends at an offset has truncated what was there.
        """
        if self._entries:
            latest = self._entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return False
        assert min(epoch, start_offset) >= 0, (epoch, start_offset)
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest epoch up to the requested one, and where it ends.

        `UNDEFINED_END` says that there is no answer, because the epoch is none or is newer than
        all that this log has seen.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_END
        latest = self.latest()
        if latest is not None and epoch == latest.epoch:
            return EpochEnd(epoch, log_end_offset)

        higher = self._count_up_to(epoch)
        if higher == len(self._entries):
            return UNDEFINED_END
        end_offset = self._entries[higher].start_offset
        if higher == 0:
            # Its records are gone from the log, so there is nothing to compare: the asker may
            # go on from the first offset whose epoch is known.
            return EpochEnd(epoch, end_offset)
        return EpochEnd(self._entries[higher - 1].epoch, end_offset)

    def find_epoch_at(self, offset: int) -> int | None:
        """Return the epoch that wrote an offset; None if the offset is before the first entry."""
        count = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[count - 1].epoch if count else None

    def find_previous_epoch(self, epoch: int) -> int | None:
        """Return the largest epoch below `epoch`; None if there is none."""
        count = self._count_up_to(epoch - 1)
        return self._entries[count - 1].epoch if count else None

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what was before a log's new start offset, and say whether anything changed.

        The epoch that wrote the start offset itself stays, and begins there now.
        """
        count = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if count == 0 or (count == 1 and self._entries[0].start_offset == start_offset):
            return False
        self._entries[:count] = [EpochEntry(self._entries[count - 1].epoch, start_offset)]
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that wrote nothing before `end_offset`, and say whether there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != before

    def clear(self) -> bool:
        """Forget everything, and say whether there was anything."""
        had_entries = bool(self._entries)
        self._entries.clear()
        return had_entries

    def _count_up_to(self, epoch: int) -> int:
        return bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
