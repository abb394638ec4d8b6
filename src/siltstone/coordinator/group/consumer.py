"""A group of the consumer protocol, as a state machine without I/O.

The group has an epoch that rises whenever its members, their subscriptions or the partitions of
their topics change. For each epoch there is a target: who is to have what. Members come to it one
by one, by their heartbeats (`consumer_member`), while the others go on reading.

Every change is written down before it counts; `write` raises if it cannot be, and then nothing has
happened. Times in `now_ms` count from anywhere, and only go forward.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from siltstone.coordinator.group.assignors import ASSIGNORS, AssignableMember
from siltstone.coordinator.group.consumer_member import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    ConsumerMember,
    MemberState,
    reconcile,
)
from siltstone.coordinator.group.consumer_records import (
    GroupEpoch,
    Kind,
    Places,
    TargetEpoch,
    encode_current,
    encode_group,
    encode_member,
    encode_regex,
    encode_target,
    encode_target_epoch,
)
from siltstone.coordinator.group.consumer_state import (
    ConsumerState,
    Heartbeat,
    HeartbeatAnswer,
    tombstones,
    wanted_topics,
)
from siltstone.coordinator.group.topic_hash import hash_topics
from siltstone.coordinator.group.topics import TopicInfo
from siltstone.coordinator.patterns import find_topics
from siltstone.coordinator.state_topic import KeyedValue

_LOOK_AT_TOPICS_MS: Final = 1000


class ConsumerGroup(ConsumerState):
    """How a group goes on, from heartbeat to heartbeat."""

    # Heartbeats

    def handle_heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> HeartbeatAnswer:
        """Learn that a member lives, and what it wants; tell it what it has."""
        if heartbeat.epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._leave(heartbeat, now_ms)
        before, replaced = self._find_or_make(heartbeat)
        told = self._told(before, heartbeat)
        if replaced is None and told is before and self._is_settled(before, now_ms):
            member = before
        else:
            member = self._advance(before, told, replaced, heartbeat.owned, now_ms)
        self._session_deadlines[member.member_id] = now_ms + self._session_timeout_ms(member)
        return HeartbeatAnswer(
            member.member_id,
            member.epoch,
            member.assigned if heartbeat.is_full or member.assigned != before.assigned else None,
        )

    def _find_or_make(self, heartbeat: Heartbeat) -> tuple[ConsumerMember, str | None]:
        """Return the member that speaks, and the static one whose place it takes."""
        member_id, instance_id = heartbeat.member_id, heartbeat.instance_id
        member = self.members.get(member_id)
        if instance_id is not None:
            holder = self.find_static(instance_id)
            if heartbeat.epoch == JOIN_EPOCH:
                if holder is not None and holder.member_id != member_id:
                    # A classic member cannot say that it is away for a while: it is replaced.
                    if holder.epoch != AWAY_EPOCH and heartbeat.classic is None:
                        raise self._refusal(
                            ErrorCode.unreleased_instance_id,
                            f"has {holder.member_id} with instance id {instance_id} already",
                        )
                    fresh = replace(
                        holder, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH
                    )
                    return fresh, holder.member_id
            elif holder is None:
                raise self._refusal(ErrorCode.unknown_member_id, f"has no instance {instance_id}")
            elif holder.member_id != member_id:
                raise self._refusal(
                    ErrorCode.fenced_instance_id,
                    f"knows instance {instance_id} as {holder.member_id}, not as {member_id}",
                )
        if member is None:
            if heartbeat.epoch != JOIN_EPOCH:
                raise self._refusal(ErrorCode.unknown_member_id, f"has no member {member_id}.")
            if len(self.members) >= self._config().group_consumer_max_size:
                raise self._refusal(ErrorCode.group_max_size_reached, "is full")
            return ConsumerMember(member_id=member_id, instance_id=instance_id), None
        self._check_epoch(member, heartbeat)
        return member, None

    def _told(self, member: ConsumerMember, heartbeat: Heartbeat) -> ConsumerMember:
        """Return a member with what it has just told about itself; the same, if it told nothing."""
        if heartbeat.tells_nothing and member.classic is None and member.origin == heartbeat.origin:
            return member
        if heartbeat.assignor is not None:
            self.check_assignor(heartbeat.assignor)
        regex = member.regex if heartbeat.regex is None else heartbeat.regex or None
        if regex is not None and regex != member.regex:
            self._check_regex(regex)
        timeout_ms = heartbeat.rebalance_timeout_ms
        return replace(
            member,
            origin=heartbeat.origin,
            rack_id=member.rack_id if heartbeat.rack_id is None else heartbeat.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            topics=member.topics
            if heartbeat.topics is None
            else tuple(sorted(set(heartbeat.topics))),
            regex=regex,
            classic=heartbeat.classic,
            assignor=member.assignor if heartbeat.assignor is None else heartbeat.assignor,
        )

    def _is_settled(self, member: ConsumerMember, now_ms: int) -> bool:
        """Say whether there is nothing to do for a member that says that it lives, as mostly."""
        return (
            self.epoch == self.target_epoch == member.epoch
            and member.state is MemberState.STABLE
            and not self._must_look(now_ms)
        )

    # A step

    def _advance(
        self,
        before: ConsumerMember,
        told: ConsumerMember,
        replaced: str | None,
        owned: Places | None,
        now_ms: int,
    ) -> ConsumerMember:
        """Take in what a member said, renew the target if need be, and move the member on."""
        member_id = told.member_id
        is_new = member_id not in self.members
        records: list[KeyedValue] = []
        members = dict(self.members)
        target = self.target
        if replaced is not None:
            del members[replaced]
            records += tombstones(self.group_id, replaced)
            target = {**target, member_id: target.get(replaced, NOTHING)}
            target.pop(replaced, None)
            records.append(
                self._record(Kind.TARGET_MEMBER, member_id, encode_target(target[member_id]))
            )
        members[member_id] = told
        if is_new or told != before:
            records.append(self._record(Kind.MEMBER, member_id, encode_member(told.value())))
        wants_other = (is_new and replaced is None) or (told.topics, told.regex) != (
            before.topics,
            before.regex,
        )
        regexes, topics, topic_hash = self.regexes, self._known_topics, self._topic_hash
        if wants_other or self._must_look(now_ms):
            regexes = self._match(members.values(), records)
            topics = self._look(members.values(), regexes)
            topic_hash = hash_topics(topics.values())
            self._topics_seen_ms = now_ms
        epoch = self.epoch
        if wants_other or topic_hash != self._topic_hash or told.assignor != before.assignor:
            epoch += 1
            records.append(
                self._record(Kind.GROUP, None, encode_group(GroupEpoch(epoch, topic_hash)))
            )
        target_epoch, target_time_ms = self.target_epoch, self._target_time_ms
        now_of_day_ms = self._now_of_day_ms()
        if epoch > target_epoch and self._may_renew(now_of_day_ms):
            target = self._renew(members, target, topics, regexes, records)
            target_epoch, target_time_ms = epoch, now_of_day_ms
            value = encode_target_epoch(TargetEpoch(target_epoch, target_time_ms))
            records.append(self._record(Kind.TARGET, None, value))
        holders = self._holders
        moved = reconcile(
            told,
            target.get(member_id, NOTHING),
            target_epoch,
            owned,
            lambda place: holders.get(place) in (None, member_id, replaced),
        )
        if is_new or moved.current() != before.current() or replaced is not None:
            records.append(
                self._record(Kind.CURRENT_MEMBER, member_id, encode_current(moved.current()))
            )
        if records:
            self._write(records)
        members[member_id] = moved
        self.members, self.target, self.regexes = members, target, regexes
        self.epoch, self._topic_hash, self._known_topics = epoch, topic_hash, topics
        self.target_epoch, self._target_time_ms = target_epoch, target_time_ms
        if replaced is not None:
            self._drop_timers(replaced)
        self._note(moved, before, now_ms)
        return moved

    def _note(self, member: ConsumerMember, before: ConsumerMember, now_ms: int) -> None:
        """Remember who holds what, and until when partitions must be given up."""
        member_id = member.member_id
        for place in before.holds - member.holds:
            self._holders.pop(place, None)
        self._holders.update(dict.fromkeys(member.holds, member_id))
        if member.state is not MemberState.UNREVOKED:
            self._revocation_deadlines.pop(member_id, None)
        elif member.pending_revocation != before.pending_revocation:
            timeout_ms = max(member.rebalance_timeout_ms, 0)
            self._revocation_deadlines[member_id] = now_ms + timeout_ms

    def _must_look(self, now_ms: int) -> bool:
        return self._topics_seen_ms is None or now_ms - self._topics_seen_ms >= _LOOK_AT_TOPICS_MS

    def _may_renew(self, now_of_day_ms: int) -> bool:
        """Say whether the last target is old enough: many may come at a time."""
        age_ms = now_of_day_ms - self._target_time_ms
        # A clock that was set back shall not hold it up.
        return age_ms < 0 or age_ms >= self._config().group_consumer_assignment_interval_ms

    def _match(
        self, members: Iterable[ConsumerMember], records: list[KeyedValue]
    ) -> dict[str, frozenset[str]]:
        """Find the topics of all patterns; those that have changed are to be written down."""
        wanted = {member.regex for member in members if member.regex is not None}
        found: dict[str, frozenset[str]] = {}
        names = tuple(info.name for info in self._topics.all()) if wanted else ()
        for regex in wanted:
            found[regex] = find_topics(regex, names)
            if found[regex] != self.regexes.get(regex):
                value = encode_regex(found[regex], 0, self._now_of_day_ms())
                records.append(self._record(Kind.REGEX, regex, value))
        for regex in self.regexes.keys() - wanted:
            records.append(self._record(Kind.REGEX, regex, None))
        return found

    def _look(
        self, members: Iterable[ConsumerMember], regexes: Mapping[str, frozenset[str]]
    ) -> dict[str, TopicInfo]:
        names = {name for member in members for name in wanted_topics(member, regexes)}
        infos = {name: self._topics.find(name) for name in sorted(names)}
        return {name: info for name, info in infos.items() if info is not None}

    def _renew(
        self,
        members: Mapping[str, ConsumerMember],
        target: Mapping[str, Places],
        topics: Mapping[str, TopicInfo],
        regexes: Mapping[str, frozenset[str]],
        records: list[KeyedValue],
    ) -> dict[str, Places]:
        """Work out who is to have what."""
        ids = {name: info.topic_id for name, info in topics.items()}
        assignable = [
            AssignableMember(
                member.member_id,
                member.instance_id,
                frozenset(ids[n] for n in wanted_topics(member, regexes) if n in ids),
                target.get(member.member_id, NOTHING),
            )
            for member in members.values()
        ]
        counts = {info.topic_id: info.partition_count for info in topics.values()}
        assign = ASSIGNORS[self._choose_assignor(members.values())]
        renewed = assign(assignable, counts)
        for member_id, places in renewed.items():
            if places != target.get(member_id):
                records.append(self._record(Kind.TARGET_MEMBER, member_id, encode_target(places)))
        return renewed

    # Leaving

    def _leave(self, heartbeat: Heartbeat, now_ms: int) -> HeartbeatAnswer:
        member = self.members.get(heartbeat.member_id)
        if heartbeat.instance_id is not None:
            member = self.find_static(heartbeat.instance_id)
            if member is not None and member.member_id != heartbeat.member_id:
                raise self._refusal(
                    ErrorCode.fenced_instance_id, f"has replaced {heartbeat.member_id}"
                )
        if member is None:
            raise self._refusal(
                ErrorCode.unknown_member_id, f"has no member {heartbeat.member_id}."
            )
        if heartbeat.epoch == AWAY_EPOCH and member.instance_id is not None:
            away = replace(
                member, epoch=AWAY_EPOCH, state=MemberState.STABLE, pending_revocation=NOTHING
            )
            record = self._record(
                Kind.CURRENT_MEMBER, member.member_id, encode_current(away.current())
            )
            self._write([record])
            self.members[member.member_id] = away
            self._note(away, member, now_ms)
        else:
            self.remove([member.member_id])
        return HeartbeatAnswer(heartbeat.member_id, heartbeat.epoch)

    def remove(self, member_ids: Iterable[str]) -> None:
        """Let members go, and have what they had shared out anew."""
        gone = [member_id for member_id in member_ids if member_id in self.members]
        if not gone:
            return
        records = [record for m in gone for record in tombstones(self.group_id, m)]
        left = [member for member in self.members.values() if member.member_id not in gone]
        topics = self._look(left, self.regexes)
        value = GroupEpoch(self.epoch + 1, hash_topics(topics.values()))
        records.append(self._record(Kind.GROUP, None, encode_group(value)))
        self._write(records)
        (self.epoch, self._topic_hash), self._known_topics = value, topics
        for member_id in gone:
            for place in self.members.pop(member_id).holds:
                self._holders.pop(place, None)
            self.target.pop(member_id, None)
            self._drop_timers(member_id)

    def handle_time(self, now_ms: int) -> None:
        """Remove the members that were silent for too long, or did not give up what they should."""
        due = {
            member_id
            for deadlines in (self._session_deadlines, self._revocation_deadlines)
            for member_id, deadline_ms in deadlines.items()
            if deadline_ms <= now_ms
        }
        self.remove(sorted(due))

    def _drop_timers(self, member_id: str) -> None:
        self._session_deadlines.pop(member_id, None)
        self._revocation_deadlines.pop(member_id, None)
