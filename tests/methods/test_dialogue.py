"""A solver that owns its loop, answered in the caller's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from oneproj.methods.slsqp import dialogue


def solver_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "oneproj-solver"]


def ended(patience: float = 5.0) -> bool:
    """Whether no solver's thread is left, soon."""
    stop = time.monotonic() + patience
    while solver_threads() and time.monotonic() < stop:
        time.sleep(0.01)
    return not solver_threads()


def asks_forever(ask: Callable[[int], int]) -> None:
    k = 0
    while True:
        k = ask(k)


def test_answers_reach_the_solver_and_its_result_comes_back() -> None:
    def doubles(ask: Callable[[int], int]) -> list[int]:
        return [ask(k) for k in range(5)]

    talk = dialogue(doubles)
    question, result = next(talk), None
    while result is None:
        try:
            question = talk.send(2 * question)
        except StopIteration as end:
            result = end.value
    assert result == [0, 2, 4, 6, 8]
    assert ended()


def test_an_error_of_the_solver_is_raised_here() -> None:
    def fails(ask: Callable[[int], int]) -> None:
        raise ValueError(ask(7))

    talk = dialogue(fails)
    assert next(talk) == 7
    with pytest.raises(ValueError, match="8"):
        talk.send(8)
    assert ended()


@pytest.mark.parametrize("how", ["close", "lose", "throw"])
def test_the_thread_ends_with_the_dialogue(how: str) -> None:
    talk = dialogue(asks_forever)
    assert next(talk) == 0
    assert talk.send(1) == 1
    assert len(solver_threads()) == 1
    if how == "close":
        talk.close()
    elif how == "throw":
        with pytest.raises(KeyboardInterrupt):
            talk.throw(KeyboardInterrupt)
    del talk
    assert ended()
