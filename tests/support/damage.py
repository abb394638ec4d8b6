"""Damage to seed into a sound log, each with the numbers of the invariants that it breaks."""

from collections.abc import Callable
from dataclasses import dataclass

from siltstone.cleaner.rebuild import rebuild_batch
from siltstone.records.batch import Batch, read_batch
from siltstone.records.builder import build_batch
from siltstone.records.layout import (
    DELETE_HORIZON_BIT,
)
from tests.support.edited_logs import EditedLog

Damage = Callable[[EditedLog, EditedLog], None]  # to the log, with its copy from before at hand


@dataclass(frozen=True)
class Mutation:
    name: str
    damage: Damage
    alone: str = ""  # the invariants that are found broken, and no others; none: it cannot be told
    against: str | None = None  # those, maybe with consequences of theirs; None: as alone
    warnings: str = ""  # alone, and maybe others

    def __str__(self) -> str:
        return self.name


MUTATIONS: list[Mutation] = []


def mutation(
    alone: str = "", against: str | None = None, warnings: str = ""
) -> Callable[[Damage], Damage]:
    """Enter a mutation; its function's name says what is done."""

    def enter(damage: Damage) -> Damage:
        name = damage.__name__.strip("_").replace("_", " ")
        MUTATIONS.append(Mutation(name, damage, alone, against, warnings))
        return damage

    return enter


# Helpers


def put_back(log: EditedLog, before: EditedLog, offset: int) -> None:
    """Bring a record of the copy back, into its batch if that is there."""
    old = before.batch(offset)
    kept = []
    for base_offset in log.base_offsets():
        for batch in map(read_batch, log.batches(base_offset)):
            if batch.header.base_offset == old.header.base_offset:
                kept = list(batch.iter_records())
    back = [r for r in old.iter_records() if r.offset == offset or r in kept]
    if kept:
        log.edit(offset, lambda _: back)
    else:
        header = old.header
        log.insert(
            build_batch(
                back,
                base_offset=header.base_offset,
                last_offset_delta=header.last_offset_delta,
                codec=header.codec,
                leader_epoch=header.leader_epoch,
            )
        )


def with_horizon(batch: Batch, horizon_ms: int | None) -> bytes:
    header = batch.header._replace(attributes=batch.header.attributes & ~DELETE_HORIZON_BIT)
    return rebuild_batch(header, list(batch.iter_records()), horizon_ms)
