"""`silt serve` with an engine that runs the cleaner's kernels in the broker: no JVM to wait for."""

import sys
from collections.abc import Iterator, Sequence

from siltstone.broker.engine_process import Work
from siltstone.cleaner.local import LocalEngine
from siltstone.cleaner.outcome import PassOutcome
from siltstone.cli import serve
from siltstone.cli.main import main
from siltstone.errors import SiltstoneError


class HereAndNow:
    """Runs plans where it stands; takes the command of the process that it replaces."""

    def __init__(self, command: Sequence[str]) -> None:
        del command

    def run_all(self, work: Work) -> Iterator[PassOutcome]:
        for plan in work.plans:
            try:
                yield PassOutcome(plan, LocalEngine().run(plan))
            except SiltstoneError as error:
                yield PassOutcome(plan, error=error)

    def close(self) -> None:
        pass


if __name__ == "__main__":
    vars(serve)["EngineProcess"] = HereAndNow
    sys.argv[0] = "silt"
    main()
