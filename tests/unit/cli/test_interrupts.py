"""Ctrl-C, held back while a log is being changed."""

import os
import signal

import pytest

from siltstone.cli.interrupts import interrupts_deferred


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def change(steps: list[str], error: Exception | None = None) -> None:
    with interrupts_deferred():
        press_ctrl_c()
        steps.append("finished")
        if error is not None:
            raise error


def test_the_block_is_finished_first() -> None:
    steps: list[str] = []

    with pytest.raises(KeyboardInterrupt):
        change(steps)

    assert steps == ["finished"]


def test_an_error_does_not_make_it_forgotten() -> None:
    error = ValueError("the block failed")

    with pytest.raises(KeyboardInterrupt) as raised:
        change([], error)

    assert raised.value.__context__ is error


def test_afterwards_it_acts_at_once_again() -> None:
    with interrupts_deferred():
        pass

    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
