"""SciPy's SLSQP in the problem's own units, begun again from where it stopped.

SLSQP compares changes of the objective, violations and steps with one number, ``ftol``,
and begins with ``B = I``. Both have a meaning only if the terms change by about 1 where
the parameters change by 1. So SciPy is shown, for the units u and v_j of a stage::

    f / u    and    c_j / v_j + margin_j <= 0

where a unit is the norm of the term's gradient at the stage's first point, and no
smaller than what the rounding of its value can resolve. The path is then the same
whatever the units in which the terms were written.

A first point may mislead: far away gradients are huge, elsewhere they are zero. And
kinks end line searches where there is more to gain. So a stage is followed by another
from where it stopped, in the units of that point and with a new ``B``, until one gains
nothing. At a solution of a smooth problem that takes no evaluation. A stage that fails
where the next one gains nothing did not stop early.

SciPy's line search tries a tenth of the step where the objective is infinite. So that
is what it is told where a term has no finite value, or has a value but no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import minimize

from oneproj.errors import NonFiniteError
from oneproj.simplex_qp import Array, Mask

MOST_STAGES = 6
NOTEWORTHY = 0.5
"""The tolerance to this power is a gain that is worth another stage, or a violation
that is: what is less, the projection at the end repairs."""
FEWER = 0.9
"""Of the violation: less is a gain."""
ROUNDINGS = 4.0
"""Units in the last place of a value that the tolerance must not be below."""
CONVERGED, LIMIT_REACHED = 0, 9
"""SciPy's statuses for success, and for the iteration limit, which is the user's."""
LOST = -1
"""Ours, for a stage that came to where nothing is finite; SciPy's are not negative."""


class Question(NamedTuple):
    """What SciPy wants to know at a point: the values, or the gradients."""

    x: Array
    differentiate: bool


class Seen(NamedTuple):
    """The values, or the gradients, of the objective and of what is to be <= 0."""

    f: Any
    """A number, or a vector."""
    c: Array


Reply: TypeAlias = Seen | NonFiniteError
Ask: TypeAlias = Callable[[Question], Reply]


class Ending(NamedTuple):
    """Where SciPy stopped, how it says so, and whether there is reason to doubt it."""

    x: Array
    message: str
    settled: bool


class Units(NamedTuple):
    """What counts as 1 in the objective, and in each constraint."""

    f: float
    c: Array


@dataclass(frozen=True)
class _Point:
    x: Array
    value: Seen
    slope: Seen


class _Lost(Exception):  # noqa: N818 - it ends SciPy's loop, it is no error of its own
    """SciPy wants to go on from a point without finite values or gradients."""


class _Stage(NamedTuple):
    reached: _Point
    status: int
    message: str


class _Memory:
    """Every value and gradient, asked for once per point."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._trial: tuple[bytes, Seen] | None = None
        self.error: NonFiniteError | None = None
        self.refused: set[bytes] = set()
        """Points with a value and no gradient: not to be tried again."""
        self.last: _Point | None = None
        """The last point whose gradients were known: SciPy's iterate."""

    def value(self, x: Array) -> Seen:
        """Infinite where there is none; at the start, that is the end."""
        if self.last is not None and np.array_equal(x, self.last.x):
            return self.last.value
        key = x.tobytes()
        nowhere = Seen(np.inf, np.zeros(0) if self.last is None else self.last.value.c)
        if key in self.refused:
            return nowhere
        if self._trial is None or self._trial[0] != key:
            answer = self._ask(Question(x.copy(), differentiate=False))
            if isinstance(answer, NonFiniteError):
                self.error, answer = answer, nowhere
            self._trial = key, answer
        return self._trial[1]

    def point(self, x: Array) -> _Point:
        """All about a point, which becomes the last."""
        if self.last is None or not np.array_equal(x, self.last.x):
            value = self.value(x)
            if not np.isfinite(value.f):
                raise _Lost
            slope = self._ask(Question(x.copy(), differentiate=True))
            if isinstance(slope, NonFiniteError):
                self.error = slope
                self.refused.add(x.tobytes())
                raise _Lost
            self.last = _Point(x.copy(), value, slope)
        return self.last

    def look_again(self) -> _Point:
        """The last point, if its values are still finite; a term may break for good."""
        last, self.last, self._trial = self.last, None, None
        try:
            self.point(last.x)  # type: ignore[union-attr]  # the start at least
        except _Lost:
            raise self.error from None  # type: ignore[misc]  # lost by an error
        self.last = last
        return last  # type: ignore[return-value]


@dataclass(frozen=True)
class Stages:
    """Minimise f subject to ``c <= -margin``; a solver for ``dialogue``.

    Args:
        x: The start.
        margins: Of each constraint, in its unit.
        distances: Which constraints are signed distances, whose unit is 1.
        tolerance: SciPy's, in the units.
        rounding: The rounding unit of the terms.
        steps: The most iterations of a stage.

    Example:
        >>> start, none = np.array([3.0]), np.zeros(0)
        >>> def ask(question):  # a parabola in a large unit
        ...     if question.differentiate:
        ...         return Seen(2e-12 * question.x, np.zeros((0, 1)))
        ...     return Seen(1e-12 * question.x @ question.x, none)
        >>> stages = Stages(start, none, none > 0, 1e-9, 2e-16, steps=50)
        >>> ending = stages(ask)
        >>> abs(ending.x.item()) < 1e-6, ending.settled
        (True, True)
    """

    x: Array
    margins: Array
    distances: Mask
    tolerance: float
    rounding: float
    steps: int

    def __call__(self, ask: Ask) -> Ending:
        """Run stages until one gains nothing.

        Raises:
            NonFiniteError: There are no finite values at the start, or none beyond it.
        """
        memory = _Memory(ask)
        try:
            start = here = memory.point(self.x)
        except _Lost:
            raise memory.error from None  # type: ignore[misc]  # lost by an error
        message, status = "", LOST
        for k in range(MOST_STAGES):
            units, refused = self._units(here), len(memory.refused)
            stage = self._run(memory, here, units)
            around = len(memory.refused) > refused  # the next stage avoids that point
            if stage.status == LOST and stage.reached is start and not around:
                break
            if k > 0 and not (around or self._gains(here, stage.reached, units)):
                settled = here is not start or status == CONVERGED
                settled &= self._meets(here, units)
                here = self._best(stage.reached, here, units)
                return Ending(here.x, message, settled)
            here, status, message = stage
            if status == LIMIT_REACHED:
                break
        if status == LOST and here is start:
            raise memory.error  # type: ignore[misc]  # lost by an error
        return Ending(here.x, message, status in (CONVERGED, LIMIT_REACHED))

    def _run(self, memory: _Memory, here: _Point, units: Units) -> _Stage:
        """One call of SciPy; if it gets lost, it reached the last point it knew."""
        memory.last = here  # so that it is not asked about again

        def objective(x: Array, *, differentiate: bool = False) -> Any:  # noqa: ANN401 - a number or a vector
            seen = memory.point(x).slope if differentiate else memory.value(x)
            return seen.f / units.f

        def room(x: Array) -> Array:
            return -(memory.value(x).c / units.c + self.margins)

        def room_slopes(x: Array) -> Array:
            return -memory.point(x).slope.c / units.c[:, np.newaxis]

        try:
            found = minimize(
                objective,
                here.x,
                jac=lambda x: objective(x, differentiate=True),
                constraints={"type": "ineq", "fun": room, "jac": room_slopes}
                if len(self.margins)
                else (),
                method="SLSQP",
                options={"ftol": self.tolerance, "maxiter": self.steps},
            )
            reached = memory.point(found.x)
        except _Lost:
            message = "The next point has no finite values"
            return _Stage(memory.look_again(), LOST, message)
        same = np.array_equal(reached.x, here.x)
        return _Stage(here if same else reached, found.status, found.message)

    def _units(self, point: _Point) -> Units:
        least = ROUNDINGS * self.rounding / self.tolerance
        f = max(np.linalg.norm(point.slope.f), least * abs(point.value.f))
        c = np.linalg.norm(point.slope.c, axis=1)
        c = np.maximum(c, least * np.abs(point.value.c))
        c[self.distances | (c == 0)] = 1.0
        return Units(float(f) or 1.0, c)

    def _gains(self, old: _Point, new: _Point, units: Units) -> bool:
        """Whether it was worth going from one point to another."""
        if not self._meets(old, units):
            return _violation(new, units) < FEWER * _violation(old, units)
        gain = (old.value.f - new.value.f) / units.f
        return self._meets(new, units) and bool(gain > self._noteworthy)

    def _best(self, new: _Point, old: _Point, units: Units) -> _Point:
        allowed = max(_violation(old, units), self.tolerance)
        lower = bool(new.value.f < old.value.f)
        return new if lower and _violation(new, units) <= allowed else old

    def _meets(self, point: _Point, units: Units) -> bool:
        return _violation(point, units) <= self._noteworthy

    @property
    def _noteworthy(self) -> float:
        return math.pow(self.tolerance, NOTEWORTHY)


def _violation(point: _Point, units: Units) -> float:
    return float(np.max(point.value.c / units.c, initial=0.0))
