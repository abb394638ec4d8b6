"""One story, told as often as it can crash: at every step, and with every outcome.

    crash_everywhere(tmp_path, Appends(), Aftermath.KILLED)

A `Story` sets a scene, acts in it while the crash comes, and checks what is found afterwards.
"""

import contextlib
import gc
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from siltstone.ids import TopicPartition
from siltstone.log.config import LogConfig
from siltstone.log.log_manager import LogManager
from siltstone.log.partition_log import PartitionLog
from tests.support.clock import ManualClock
from tests.support.crashable_disk import CrashableDisk
from tests.support.crashing_disk import SimulatedCrash, Step, every_crash
from tests.support.log_checks import (
    PARTITION,
    Checkpoint,
    History,
    LogWriter,
    check_log,
    open_log,
    read_tree,
    recover,
    small_config,
)

ROUNDS: Final = int(os.environ.get("SILT_TEST_ROUNDS", "1"))
"""How many times as much chance to give to what is tried with seeds; CI takes one."""


class Aftermath(Enum):
    """What happens to unflushed changes after the crash."""

    KILLED = "only the process ended: they are all there"
    FLUSHED_ONLY = "they are lost"
    IN_ORDER = "those up to some moment are there"
    AT_RANDOM = "any of them are there"

    def seeds(self, number: int) -> list[int | None]:
        """Return what to hand to the disk for the crash of a number; None leaves it alone."""
        first = 2 * number * ROUNDS
        match self:
            case Aftermath.KILLED:
                return [None]
            case Aftermath.FLUSHED_ONLY:
                return [0]
            case Aftermath.IN_ORDER:
                return [first + 2 * turn + 1 for turn in range(ROUNDS)]
            case Aftermath.AT_RANDOM:
                return [first + 2 * turn + 2 for turn in range(ROUNDS)]


class AnyScene(Protocol):
    """A disk, and what happened on it."""

    @property
    def disk(self) -> CrashableDisk: ...

    def knowledge(self) -> Hashable:
        """Return all that a check will go by, besides what lies on the disk."""
        ...


S = TypeVar("S", bound=AnyScene)


class Story(ABC, Generic[S]):
    """What happens before, during and after a crash."""

    @abstractmethod
    def make(self, root: Path) -> S:
        """Make a scene in a directory that is not there yet; no crash comes yet."""

    @abstractmethod
    def act(self, scene: S) -> None:
        """Do what the crash interrupts."""

    @abstractmethod
    def check(self, scene: S, *, has_power_failed: bool, is_complete: bool) -> None:
        """Look at what is left; `is_complete` if the crash came after the last step."""


def count_steps(root: Path, story: Story[S]) -> list[Step]:
    """Tell a story without a crash, and return its steps."""
    scene = story.make(root)
    scene.disk.arm()
    story.act(scene)
    return scene.disk.steps


def crash_everywhere(root: Path, story: Story[S], aftermath: Aftermath) -> int:
    """Tell a story once for each crash that it can meet, and return how often that was.

    Of crashes that leave the same disk behind, and the same to be known of it, one is checked.
    """
    count = 0
    seen = set()
    steps = count_steps(root / "steps", story)
    # Without power the disk itself decides how much of a write is left.
    crashes = list(every_crash(steps, within_writes=aftermath is Aftermath.KILLED))
    for number, crash in enumerate(crashes):
        for seed in aftermath.seeds(number):
            scene = story.make(root / f"crash-{count}")
            count += 1
            scene.disk.arm(crash)
            try:
                story.act(scene)
            except SimulatedCrash:
                pass
            else:
                raise AssertionError(f"{crash} never came: the story is not always the same")
            with told(f"{crash} at {steps[crash.step]}, power loss with seed {seed}"):
                if seed is None:
                    scene.disk.restart()
                else:
                    scene.disk.lose_unflushed_writes(seed)
                is_complete = number == len(crashes) - 1
                left = tuple(read_tree(scene.disk.root).items())
                state = hash((left, scene.knowledge(), is_complete))
                if state not in seen:
                    seen.add(state)
                    story.check(scene, has_power_failed=seed is not None, is_complete=is_complete)
            shutil.rmtree(scene.disk.root)
    gc.collect()  # Files close with their last holder.
    return count


@contextlib.contextmanager
def told(where: str) -> Iterator[None]:
    """Add to a failure where it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise


# Stories about one partition


@dataclass
class Scene:
    """A disk with one partition on it, and all that is known of it."""

    disk: CrashableDisk
    directory: Path
    config: LogConfig
    clock: ManualClock = field(default_factory=ManualClock)
    history: History = field(default_factory=History)
    _log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        if self._log is None:
            self.reopen()
        assert self._log is not None
        return self._log

    @property
    def writer(self) -> LogWriter:
        return LogWriter(self.log, self.clock, self.history)

    def reopen(self, checkpoint: Checkpoint | None = None, *, was_clean: bool = False) -> None:
        """Open the log anew."""
        self._log = open_log(
            self.disk, self.directory, self.config, self.clock, checkpoint, was_clean=was_clean
        )

    def knowledge(self) -> Hashable:
        checkpoint = None if self._log is None else Checkpoint.of(self._log)
        return checkpoint, len(self.history.batches), self.history.acknowledged_end_offset

    def leave(self) -> Checkpoint:
        """Forget the log without closing it; return what could have been written down about it."""
        checkpoint = Checkpoint() if self._log is None else Checkpoint.of(self._log)
        self._log = None
        return checkpoint

    def recover(self, checkpoint: Checkpoint, history: History | None = None) -> PartitionLog:
        """Open the log after a crash in every way there is, with all checks."""
        return recover(
            self.disk,
            self.directory,
            self.config,
            self.clock,
            self.history if history is None else history,
            checkpoint,
        )


class LogStory(Story[Scene]):
    """A story about one partition, that must lose nothing it has acknowledged."""

    config = small_config()
    flushes_each_append = True

    def make(self, root: Path) -> Scene:
        directory = root / str(PARTITION)
        directory.mkdir(parents=True)
        scene = Scene(CrashableDisk(root), directory, self.config)
        self.prepare(scene)
        return scene

    def prepare(self, scene: Scene) -> None:
        """Do what comes before the crash."""

    def check(self, scene: Scene, *, has_power_failed: bool, is_complete: bool) -> None:
        # The owner may have written down how far it was a moment before the crash.
        checkpoint = scene.leave()
        if has_power_failed and not self.flushes_each_append:
            scene.history.acknowledged_end_offset = checkpoint.recovery_point
        scene.recover(checkpoint)


# Stories about log directories


@dataclass
class ManagerScene:
    """Two log directories on one disk, and what was appended to the partitions in them."""

    disk: CrashableDisk
    clock: ManualClock = field(default_factory=ManualClock)
    histories: dict[TopicPartition, History] = field(default_factory=dict)
    _manager: LogManager | None = None

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.disk.root / "a", self.disk.root / "b"

    @property
    def manager(self) -> LogManager:
        if self._manager is None:
            self._manager = LogManager(self.paths, fs=self.disk, clock=self.clock)
        return self._manager

    def append(self, topic: str, partition: int, count: int = 1) -> None:
        """Append a batch to a partition."""
        name = TopicPartition(topic, partition)
        history = self.histories.setdefault(name, History())
        LogWriter(self.manager.get_log(name), self.clock, history).append(count)

    def leave(self) -> None:
        """Let go of the directories as a process does that ends."""
        if self._manager is not None:
            for directory in self._manager.directories:
                directory.take_offline("the process has ended")
            self._manager.close()
        self._manager = None

    def check_topic(self, topic: str) -> None:
        """Check all logs of a topic that something was appended to."""
        for name, history in self.histories.items():
            if name.topic == topic:
                check_log(self.manager.get_log(name), history)

    def knowledge(self) -> Hashable:
        return tuple(
            (name, history.acknowledged_end_offset, len(history.batches))
            for name, history in sorted(self.histories.items())
        )


class ManagerStory(Story[ManagerScene]):
    """A story about log directories; each starts with topic `kept`, of which nothing is lost."""

    settings: ClassVar = {
        "flush.messages": "1",
        "segment.index.bytes": "240",
        "index.interval.bytes": "150",
        "file.delete.delay.ms": "0",
    }

    def make(self, root: Path) -> ManagerScene:
        root.mkdir(parents=True)
        scene = ManagerScene(CrashableDisk(root))
        self.prepare(scene)
        return scene

    def prepare(self, scene: ManagerScene) -> None:
        """Do what comes before the crash."""
        scene.manager.create_topic("kept", 2, self.settings)
        for partition in range(2):
            scene.append("kept", partition, 2)
            scene.append("kept", partition)

    def check(self, scene: ManagerScene, *, has_power_failed: bool, is_complete: bool) -> None:
        scene.leave()
        self.check_opened(scene, is_complete=is_complete)
        scene.check_topic("kept")
        scene.manager.close()
        scene.leave()
        scene.check_topic("kept")
        scene.leave()

    def check_opened(self, scene: ManagerScene, *, is_complete: bool) -> None:
        """Look at what is left of whatever the crash interrupted."""
