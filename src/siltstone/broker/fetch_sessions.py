"""Fetch sessions: a client says once what it wants, and later only what has changed (KIP-227).

A session remembers the partitions, where the client is in each, and what it was told last. Its
answers leave out the partitions of which there is nothing new. Epochs number the requests of a
session, so that a lost one is noticed.
"""

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.broker.error_codes import ProtocolError
from siltstone.clock import Clock

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICTION_MS: Final = 120_000  # min.incremental.fetch.session.eviction.ms, which nobody changes
_MAX_EPOCH: Final = 2**31 - 1


@dataclass(slots=True)
class Wanted:
    """A partition that a client fetches from, and what it was last told about it."""

    topic: str  # empty: the id is not known
    topic_id: uuid.UUID | None
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    @property
    def key(self) -> tuple[object, int]:
        """What identifies the partition within a session."""
        return (self.topic_id or self.topic, self.partition)

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Say whether the client has not been told this, and note that it now is."""
        is_news = (
            high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return is_news


class FetchSession:
    """The partitions of one session, in the order in which they are to be served."""

    def __init__(self, session_id: int, now_ms: int, *, uses_ids: bool) -> None:
        self.session_id: Final = session_id
        self.uses_ids: Final = uses_ids
        self.created_ms: Final = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.wanted: dict[tuple[object, int], Wanted] = {}

    def update(self, changed: Iterable[Wanted], forgotten: Iterable[tuple[object, int]]) -> None:
        """Take in what an incremental request says."""
        for wanted in changed:
            known = self.wanted.get(wanted.key)
            if known is not None:
                wanted.told_high_watermark = known.told_high_watermark
                wanted.told_log_start_offset = known.told_log_start_offset
            self.wanted[wanted.key] = wanted
        for key in forgotten:
            self.wanted.pop(key, None)

    def serve_last(self, served: Iterable[Wanted]) -> None:
        """Put partitions that gave records behind the others, so that none is starved."""
        for wanted in served:
            if self.wanted.pop(wanted.key, None) is not None:
                self.wanted[wanted.key] = wanted


class FetchSessions:
    """All sessions; when there is no room, an idle or a smaller one may have to go."""

    def __init__(self, clock: Clock, slot_count: int) -> None:
        self._clock = clock
        self._slot_count = slot_count
        self._sessions: dict[int, FetchSession] = {}
        self._random = random.SystemRandom()

    def __len__(self) -> int:
        return len(self._sessions)

    def remove(self, session_id: int) -> None:
        """End a session, if there is one."""
        self._sessions.pop(session_id, None)

    def maybe_create(self, wanted: Iterable[Wanted], *, uses_ids: bool) -> FetchSession | None:
        """Begin a session; None if there is no room."""
        partitions = list(wanted)
        now_ms = self._clock.now_ms()
        if not partitions or not self._make_room(len(partitions), now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, _MAX_EPOCH)
        session = FetchSession(session_id, now_ms, uses_ids=uses_ids)
        session.update(partitions, ())
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int, epoch: int, *, uses_ids: bool) -> FetchSession:
        """Return the session of an incremental request, and go on to its next epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ProtocolError(
                ErrorCode.fetch_session_id_not_found, f"there is no fetch session {session_id}"
            )
        if session.epoch != epoch:
            raise ProtocolError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}",
            )
        if session.uses_ids != uses_ids:
            raise ProtocolError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} began with topic {'ids' if not uses_ids else 'names'}",
            )
        session.used_ms = self._clock.now_ms()
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slot_count:
            return True
        if not self._sessions:
            return False
        idle = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - idle.used_ms > EVICTION_MS:
            self.remove(idle.session_id)
            return True
        old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        smallest = min(old, key=lambda session: len(session.wanted), default=None)
        if smallest is not None and len(smallest.wanted) < size:
            self.remove(smallest.session_id)
            return True
        return False
