"""What the classic protocol knows of one member, and what it tells members."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode


class ClientOrigin(NamedTuple):
    """Who speaks: for those who look at a group."""

    client_id: str
    host: str


class ProtocolOffer(NamedTuple):
    """An assignor that a member can use, and what the assignor has to know of the member."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """What a member learns when a generation begins; the leader also learns who is in it."""

    error_code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    """What a member is to read in this generation."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]


@dataclass(slots=True)
class Member:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    origin: ClientOrigin
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[ProtocolOffer, ...]
    assignment: bytes = b""
    is_new: bool = False  # has not been answered yet, and so cannot send heartbeats
    deadline_ms: int = 0  # when it counts as dead, unless it waits for us
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer of ours, and so cannot be expected to be heard of."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return what it said for an assignor."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer its join, if it waits for that."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            self.is_new = False
            reply(answer)

    def answer_sync(self, answer: SyncAnswer) -> None:
        """Answer its sync, if it waits for that."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(answer)
