"""A crash at any step of a swap: the old log or the new one, never a mix (I21)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from siltstone.log import filenames
from siltstone.log.segment import Segment
from siltstone.log.swap import swap_in
from siltstone.records.batch import BatchHeader, read_batch, read_header
from siltstone.records.builder import build_batch
from siltstone.records.control import ControlType
from siltstone.records.record import Record
from tests.support.clock import START_MS
from tests.support.crash_runs import (
    Aftermath,
    LogStory,
    Scene,
    Story,
    crash_everywhere,
)
from tests.support.crashable_disk import CrashableDisk
from tests.support.log_checks import (
    PARTITION,
    Checkpoint,
    History,
    check_names,
    open_log,
    recover,
    small_config,
    stored_batches,
)

# Four segments and an active one. Each has five batches: of two records, of an idempotent producer,
# of a transaction, the marker that ends it, and one more record.
SEGMENT_COUNT = 4
OFFSETS_PER_SEGMENT = 6


@dataclass(frozen=True)
class Shape:
    """Which segments are replaced, where the new ones begin, and which offsets survive in them."""

    replaced: range
    bases: tuple[int, ...]
    discarded: frozenset[int]
    comes_back_from: int | None = None  # the first old segment that no new batch reaches


def _shape(
    replaced: range,
    bases: Sequence[int],
    discarded: Sequence[int],
    comes_back_from: int | None = None,
) -> Shape:
    return Shape(replaced, tuple(bases), frozenset(discarded), comes_back_from)


SHAPES = {
    "one for one": _shape(range(1, 2), [6], [6, 11]),
    "the first for itself": _shape(range(1), [0], [5]),
    "three into one": _shape(range(3), [0], [5, 6, 11, 12]),
    "three into two": _shape(range(3), [0, 9], [5, 6, 12]),
    "two into four": _shape(range(1, 3), [6, 8, 12, 15], [11]),
    "all into one": _shape(range(4), [0], [5, 6, 11, 12, 18]),
    "the last records are gone": _shape(range(3), [0], [11, 17]),
    "a whole segment is gone": _shape(range(1, 3), [6], [6, *range(12, 18)], comes_back_from=12),
    "nothing is left": _shape(range(2, 3), [12], range(12, 18)),
}


class Swap(LogStory):
    """Cleaned segments take the places of the ones they were made from."""

    config = small_config(segment_bytes=10_000)

    def __init__(self, shape: Shape, *, by_other_process: bool = False) -> None:
        self.shape = shape
        self.by_other_process = by_other_process
        self.new: list[Segment] = []

    def prepare(self, scene: Scene) -> None:
        for number in range(SEGMENT_COUNT + 1):
            if number:
                scene.log.roll()
            writer = scene.writer
            writer.append(2)
            writer.append(1, producer_id=1)
            writer.append(1, producer_id=2, is_transactional=True)
            writer.end(2, ControlType.ABORT if number % 2 else ControlType.COMMIT)
            writer.append(1)
        self.write_cleaned(scene)

    def write_cleaned(self, scene: Scene) -> None:
        """Write what a pass would write, up to the moment before the swap."""
        shape = self.shape
        first = shape.replaced.start * OFFSETS_PER_SEGMENT
        ends = [*shape.bases[1:], shape.replaced.stop * OFFSETS_PER_SEGMENT]
        aborted = [txn for s in scene.log.segments for txn in s.transaction_index.entries]
        assert shape.bases[0] == first
        self.new = []
        for base_offset, end_offset in zip(shape.bases, ends, strict=True):
            segment = Segment.create(
                scene.disk,
                scene.directory,
                base_offset,
                scene.config,
                START_MS,
                suffix=filenames.CLEANED,
            )
            for data in self.survivors(scene.history.between(base_offset, end_offset)):
                segment.append([data], [read_header(data)])
            for txn in aborted:
                if base_offset <= txn.last_offset < end_offset:
                    segment.transaction_index.append(txn)
            segment.become_inactive()
            if self.by_other_process:
                segment = scene.log.open_cleaned_segment(base_offset, segment.size_bytes)
            self.new.append(segment)

    def survivors(self, batches: Sequence[bytes]) -> list[bytes]:
        """Leave out what the shape discards; a batch of which something is left keeps its span."""
        kept = []
        for batch in map(read_batch, batches):
            records = [r for r in batch.iter_records() if r.offset not in self.shape.discarded]
            if len(records) == batch.header.record_count:
                kept.append(bytes(batch.data))
            elif records:
                kept.append(_thinned(batch.header, records))
        return kept

    def act(self, scene: Scene) -> None:
        old = [list(scene.log.segments)[number] for number in self.shape.replaced]
        swap_in(scene.disk, scene.directory, self.new, old)

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        checkpoint = scene.leave()
        shape = self.shape
        start, end = (n * OFFSETS_PER_SEGMENT for n in (shape.replaced.start, shape.replaced.stop))
        whole = scene.history
        before, after = whole.between(0, start), whole.between(end, whole.next_offset)
        swapped = self.survivors(whole.between(start, end))
        outcomes = [[*before, *swapped, *after]]
        if not is_complete:
            outcomes.append(list(whole.batches))
            if shape.comes_back_from is not None:
                # Facts 1.7: harmless, the pass is repeated.
                again = whole.between(shape.comes_back_from, end)
                outcomes.append([*before, *swapped, *again, *after])

        found = stored_batches(
            open_log(
                scene.disk,
                scene.directory,
                scene.config,
                scene.clock,
                checkpoint,
                writable=False,
            )
        )

        assert found in outcomes, [read_header(data).base_offset for data in found]
        scene.recover(checkpoint, History(found, whole.acknowledged_end_offset))


def _thinned(header: BatchHeader, records: Sequence[Record]) -> bytes:
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.leader_epoch,
    )


@pytest.mark.parametrize("aftermath", Aftermath)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_after_a_crash_at_any_step_of_a_swap_the_log_is_the_old_or_the_new_one(
    tmp_path: Path, shape: Shape, aftermath: Aftermath
) -> None:
    assert crash_everywhere(tmp_path, Swap(shape), aftermath) > 10


@pytest.mark.parametrize("aftermath", [Aftermath.FLUSHED_ONLY, Aftermath.AT_RANDOM])
def test_segments_that_another_process_has_written_are_flushed_before_they_count(
    tmp_path: Path, aftermath: Aftermath
) -> None:
    story = Swap(SHAPES["three into two"], by_other_process=True)

    assert crash_everywhere(tmp_path, story, aftermath) > 10


class Split(Story[Scene]):
    """A segment of old, with offsets that its indexes cannot express, is split at its opening."""

    config = small_config()
    offsets = (0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**33, 2**33 + 7)

    def make(self, root: Path) -> Scene:
        directory = root / str(PARTITION)
        directory.mkdir(parents=True)
        batches = [
            build_batch([Record(offset, START_MS + offset, b"k", b"v")], leader_epoch=0)
            for offset in self.offsets
        ]
        filenames.log_path(directory, 0).write_bytes(b"".join(batches))
        (directory / filenames.LEADER_EPOCHS).write_text("0\n1\n0 0\n")
        history = History(batches, acknowledged_end_offset=self.offsets[-1] + 1)
        return Scene(CrashableDisk(root), directory, self.config, history=history)

    def act(self, scene: Scene) -> None:
        scene.reopen()

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        # Only an owner may open it before it is split, and only a second time finds no leftovers.
        scene.reopen()
        assert stored_batches(scene.log) == scene.history.batches
        assert scene.log.segments.base_offsets == (0, 2**31, 2**33)
        checkpoint = Checkpoint()
        scene.leave()

        log = recover(
            scene.disk, scene.directory, scene.config, scene.clock, scene.history, checkpoint
        )

        check_names(log)


@pytest.mark.parametrize("aftermath", Aftermath)
def test_a_crash_at_any_step_of_a_split_loses_nothing(tmp_path: Path, aftermath: Aftermath) -> None:
    assert crash_everywhere(tmp_path, Split(), aftermath) > 10
