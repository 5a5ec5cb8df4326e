"""What ``solve`` asks of a method: updates, and a feasible point at the end."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from oneproj.errors import InvalidProblemError
from oneproj.methods.setting import Setting
from oneproj.oracles import Sight
from oneproj.results import Projection
from oneproj.theory import Schedule


class AbstractMethod(ABC):
    """One way to solve a problem: ``update()`` again and again, then ``finish()``.

    A method owns its loop variables and nothing else: ``solve`` counts updates, keeps
    time and history, and certificates judge the result.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]
    """A frozen dataclass: what ``solve(..., **options)`` may set, with defaults."""
    follows_schedules: ClassVar[bool] = False
    """Whether it can execute a schedule: the theorems are about Algorithm 1."""
    WITHOUT_OPTIONS: ClassVar[str] = "It has none."
    """What to tell who gives an option to a method that has none."""

    @abstractmethod
    def __init__(self, setting: Setting, options: Any) -> None:  # noqa: ANN401 - each method has its own
        """Prepare the run; the parameters hold the start."""

    @abstractmethod
    def update(self) -> Sight:
        """Use one stochastic gradient of the objective; say what was seen."""

    @abstractmethod
    def finish(self) -> Projection:
        """Make the parameters hold the answer; say how it became feasible."""

    @property
    def done(self) -> bool:
        """Whether further updates would do nothing; most methods never know."""
        return False

    def describe(self) -> dict[str, Any]:
        """What the method settled itself; takes precedence in ``Solution.settings``."""
        return {}


def read_options(
    method: type[AbstractMethod],
    options: Mapping[str, Any],
    schedule: Schedule | None,
) -> Any:  # noqa: ANN401 - each method has its own
    """Build a method's options; refuses names it does not have, and any to a schedule.

    Raises:
        InvalidProblemError: An option is unknown, or the schedule sets it already.
    """
    known = [f.name for f in dataclasses.fields(method.Options)]
    for name in options:
        if name not in known:
            has = f"It has: {', '.join(known)}." if known else method.WITHOUT_OPTIONS
            message = f"The method {method.name!r} has no option {name!r}. {has}"
            raise InvalidProblemError(message)
    if schedule is not None and not method.follows_schedules:
        message = (
            f"The method {method.name!r} cannot follow a schedule: the theorems are "
            'about Algorithm 1. Use method="one-projection", or give steps.'
        )
        raise InvalidProblemError(message)
    if schedule is not None and options:
        message = (
            "A schedule is executed to the letter: it sets the steps, the penalty and "
            f"the selection, so no option may be given with it; got {sorted(options)}."
        )
        raise InvalidProblemError(message)
    return method.Options(**options)
