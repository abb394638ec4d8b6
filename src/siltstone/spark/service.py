"""The Spark engine as a process that takes plans from a pipe: `python -m siltstone.spark.service`.

It ends when its standard input does.
"""

import os
import sys
import threading
from functools import partial
from typing import IO, Final

from siltstone.broker.engine_process import Work, read_message, write_message
from siltstone.cleaner.outcome import PassOutcome
from siltstone.errors import EngineError, SiltstoneError
from siltstone.spark.engine import SparkEngine
from siltstone.spark.session import DEFAULT_MASTER, Session

_NICENESS: Final = 10


def main() -> None:
    """Run plans until nobody sends any."""
    master = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_MASTER
    # On a machine that is busy the broker comes first: who produces waits for it, nobody for this.
    os.nice(_NICENESS)
    # Whatever Spark prints must not get between the outcomes.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    session = Session(master, {})
    try:
        while True:
            work = read_message(sys.stdin.buffer)
            assert isinstance(work, Work)
            _run(session, work, answers)
    except (EOFError, BrokenPipeError):
        pass
    finally:
        # A context that does not stop must not outlive the broker.
        threading.Timer(5.0, os._exit, (1,)).start()
        session.close()
        os._exit(0)


def _run(session: Session, work: Work, answers: IO[bytes]) -> None:
    engine = SparkEngine(session=session, io_bytes_per_second=work.io_bytes_per_second)
    left = {plan.pass_id: plan for plan in work.plans}
    try:
        on_progress = partial(write_message, answers) if work.is_watched else None
        for outcome in engine.run_all(work.plans, on_progress):
            del left[outcome.plan.pass_id]
            write_message(answers, outcome)
    except SiltstoneError as error:
        for plan in left.values():
            write_message(answers, PassOutcome(plan, error=error))
    except (OSError, RuntimeError) as error:
        for plan in left.values():
            write_message(answers, PassOutcome(plan, error=EngineError(f"Spark failed: {error}")))


if __name__ == "__main__":
    main()
