"""Facts 8.B: what the checkpoint of the cleaner says, and what is made of it."""

import pytest

from siltstone.cleaner.checkpoints import CleanerCheckpoints
from siltstone.errors import CorruptBatchError, CorruptCheckpointError
from siltstone.ids import TopicPartition
from tests.support.cleaning import Cleaner, MakeCompactedLog
from tests.support.make_log import PARTITION, HastyDisk


class TestCheckpoints:
    # B14, B28
    def test_a_pass_notes_where_it_ended_and_leaves_other_entries_alone(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 | a=2")
        other = TopicPartition("other", 0)
        cleaner.checkpoints(log).put(other, 7)

        cleaner.clean(log)

        assert cleaner.checkpoints(log).read() == {PARTITION: 1, other: 7}
        assert (log.directory.parent / "cleaner-offset-checkpoint").read_text() == (
            "0\n2\norders 3 1\nother 0 7\n"
        )

    def test_a_checkpoint_that_makes_no_sense_is_an_error(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 |")
        (log.directory.parent / "cleaner-offset-checkpoint").write_text("1\n0\n")

        with pytest.raises(CorruptCheckpointError, match="expected version 0, found 1"):
            cleaner.assess(log)

    def test_there_is_no_checkpoint_before_the_first_pass(self, make_log: MakeCompactedLog) -> None:
        log = make_log()

        assert CleanerCheckpoints(HastyDisk(), log.directory.parent).read() == {}

    # B1
    def test_a_damaged_log_says_which_file_is_to_blame(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a~ b=1 |")
        cleaner.clean(log)
        path = log.path("0.log")
        path.write_bytes(b"\xff" * path.stat().st_size)

        with pytest.raises(CorruptBatchError, match=r"orders-3/0+\.log is corrupt at position 0"):
            cleaner.assess(log)

    # B30: the verdict says that the checkpoint is to be corrected, selected or not
    def test_an_invalid_checkpoint_is_reported_of_a_log_with_nothing_to_clean(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1")
        cleaner.set_checkpoint(log, 100)

        found = cleaner.assess(log)

        assert (found.checkpoint_was_reset, found.first_dirty_offset) == (True, 0)
        assert not found.is_eligible

    # B17: a truncated log that grows again below its old end is dirty where it has changed
    def test_a_log_that_was_truncated_below_its_checkpoint_is_cleaned_from_its_start(
        self, make_log: MakeCompactedLog, cleaner: Cleaner
    ) -> None:
        log = make_log("a=1 b=1 | c=1 d=1 |")
        cleaner.clean(log)
        log.real.truncate_to(2)
        log.append("a=2 |")

        found = cleaner.assess(log)

        # The cut has lowered the checkpoint to its segment: nothing is left to reset.
        assert (found.first_dirty_offset, found.checkpoint_was_reset) == (0, False)
        cleaner.clean(log)
        assert log.contents() == "1:b=1 2:a=2 |"
