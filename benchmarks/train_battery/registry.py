"""Problems and families: a problem is a function of a seed that builds it anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from oneproj import Problem

STEPS = 500
"""Updates of a run, unless the problem says otherwise: the default of ``solve``."""

Builder: TypeAlias = Callable[[int], Problem]


@dataclass(frozen=True)
class Case:
    """One problem of the battery.

    Example:
        >>> from benchmarks.train_battery.problems import CASES
        >>> CASES["wine_class_caps"].family
        'class and group caps'
    """

    name: str
    family: str
    build: Builder
    """Makes the problem; the seed is that of its model, or of its start."""
    steps: int = STEPS

    @property
    def about(self) -> str:
        """What the problem is, in a line: the first line of the builder's docstring."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]


class Family:
    """Collects the problems of one family; ``@family.case()`` adds one.

    Example:
        >>> family = Family("caps")
        >>> @family.case(steps=100)
        ... def a_cap(seed: int) -> Problem:
        ...     "One cap."
        >>> [(case.name, case.steps, case.about) for case in family.cases]
        [('a_cap', 100, 'One cap.')]
    """

    def __init__(self, name: str) -> None:
        """A family without problems."""
        self.name = name
        self.cases: list[Case] = []

    def case(self, *, steps: int = STEPS) -> Callable[[Builder], Builder]:
        """Add the decorated function; its name is the problem's."""

        def add(build: Builder) -> Builder:
            self.cases.append(Case(build.__name__, self.name, build, steps))
            return build

        return add
