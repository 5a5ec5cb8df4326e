"""A solver that owns its loop, answered one question at a time.

SciPy's solvers call a function whenever they like and return at the end. A method of
this library is asked for one update at a time. Between the two stands a thread that
runs the solver and nothing else: each question is handed over and answered in the
caller's thread, where Ctrl-C, exceptions and torch's modes are what they always are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class _HungUp(Exception):  # noqa: N818 - it ends the solver's thread, it is no error
    """The caller wants no more questions."""


@dataclass(frozen=True)
class _End(Generic[Result]):
    """The solver has returned, or failed."""

    result: Result | None = None
    error: BaseException | None = None


def dialogue(
    solver: Callable[[Callable[[Question], Answer]], Result],
) -> Generator[Question, Answer, Result]:
    """Run ``solver(ask)``, yielding its questions; send the answers.

    Closing the generator, or losing it, ends the thread at its next question. An error
    inside the solver is raised here.

    Args:
        solver: Calls ``ask(question)`` for an answer as often as it needs, and returns.

    Example:
        >>> def adds_up(ask):
        ...     return ask("first") + ask("second")
        >>> talk = dialogue(adds_up)
        >>> next(talk), talk.send(1)
        ('first', 'second')
        >>> try:
        ...     talk.send(2)
        ... except StopIteration as end:
        ...     end.value
        3
    """
    questions: SimpleQueue[Question | _End[Result]] = SimpleQueue()
    answers: SimpleQueue[Answer | _HungUp] = SimpleQueue()

    def ask(question: Question) -> Answer:
        questions.put(question)
        answer = answers.get()
        if isinstance(answer, _HungUp):
            raise answer
        return answer

    def work() -> None:
        try:
            questions.put(_End(solver(ask)))
        except _HungUp:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            questions.put(_End(error=error))

    Thread(target=work, name="oneproj-solver", daemon=True).start()
    try:
        while not isinstance(question := questions.get(), _End):
            answers.put((yield question))
    finally:
        answers.put(_HungUp())
    if question.error is not None:
        raise question.error
    return question.result  # type: ignore[return-value]  # None only with an error
