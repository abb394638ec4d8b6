"""Files of a pass that nobody will use: those of attempts that failed, or came second."""

from siltstone.cleaner.plan import CleaningPlan
from siltstone.cleaner.result import PassResult
from siltstone.log import filenames
from siltstone.log.filesystem import FileSystem


class Leftovers:
    """Deletes what attempts left behind, and remembers where it has to look again.

    Spark kills an attempt that is not needed, but does not wait until it is dead: it may write for
    another moment. What is missed here, the next open of the log deletes.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._again: list[tuple[CleaningPlan, PassResult | None]] = []

    def sweep(self, plan: CleaningPlan, result: PassResult | None = None) -> None:
        """Delete the files of a pass, but for those that its result names."""
        self._delete(plan, result)
        self._again.append((plan, result))

    def sweep_again(self) -> None:
        """Look once more where something was deleted before; no task may be at work there."""
        again, self._again = self._again, []
        for plan, result in again:
            self._delete(plan, result)

    def _delete(self, plan: CleaningPlan, result: PassResult | None) -> None:
        used = set() if result is None else set(output_names(result))
        try:
            names = self._fs.list_names(plan.directory)
        except FileNotFoundError:
            return  # The partition was deleted meanwhile.
        for name in names:
            # An id is random enough: it is in no other name by chance.
            if filenames.is_pass_file(name) and plan.pass_id in name and name not in used:
                self._fs.unlink(plan.directory / name)


def output_names(result: PassResult) -> list[str]:
    """Name the files that a result speaks of."""
    return [
        file.name for group in result.groups for output in group.outputs for file in output.files
    ]
