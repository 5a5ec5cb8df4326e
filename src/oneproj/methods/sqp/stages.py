"""SciPy's SLSQP in the problem's own units, begun again from where it stopped.

SLSQP compares changes of the objective, violations and steps with one number, ``ftol``,
and begins with ``B = I``. Both have a meaning only if the terms change by about 1 where
the parameters change by 1. So SciPy is shown, for the units u and v_j of a stage::

    f / u    and    c_j / v_j + margin_j <= 0    as functions of    x_k / scale_k

where the scales are those of ``coordinates``, and a unit is the norm of the term's
gradient by them at the stage's first point, and no smaller than what the rounding of
its value can resolve. The path is then the same whatever the units in which the terms
were written, or the features that they are about.

A first point may mislead: far away gradients are huge, elsewhere they are zero. And
kinks end line searches where there is more to gain. So a stage is followed by another
from where it stopped, in the units of that point and with a new ``B``, until one gains
nothing. At a solution of a smooth problem that takes no evaluation. A stage that fails
where the next one gains nothing did not stop early.

A gradient that is nearly zero, as that of a rate whose sigmoids are saturated, sends
the first step to where nothing can be seen. A stage that gets that far is made again
with bounds on how far it may go; the next one goes on from there.

Where a violated start nearly minimises f, the size of its gradient says nothing: in
that unit a first step can lead so far away that float32 never finds back. So an end
that is infeasible, or higher than such a start, is compared with a feasible point near
the start, which SciPy finds without an objective. If that is better, stages begin anew
from there.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from oneproj.arrays import Array, Mask
from oneproj.methods.sqp.memory import Ask, Lost, Memory, Point

MOST_STAGES = 6
NOTEWORTHY, REPAIRABLE = 0.5, 0.4
"""The tolerance to the first power is a gain that is worth another stage, or a
violation that is. One up to the second, where no stage could do better, is no early
stop: line searches end so near to the kinks of a set, and the last projection repairs
it."""
FAR, REACH = 3e1, 1e1
"""Of the scale of a parameter, or of its size at the first point if that is more: how
far away a stage has gone astray, unless the objective is lower there or constraints are
straight, and how far it may go then. Bounds that are always there would cost more than
the rest if parameters are many."""
STRAIGHT = 1e-3
"""The share of a violation by which its linearisation is wrong at most, if it holds."""
FEWER = 0.9
"""Of the violation: less is a gain."""
ROUNDINGS = 4.0
"""Units in the last place of a value that the tolerance must not be below."""
CONVERGED, LIMIT_REACHED = 0, 9
"""SciPy's statuses for success, and for the iteration limit, which is the user's."""
LOST = -1
"""Ours, for a stage that came to where nothing is finite; SciPy's are not negative."""


class _Astray(Exception):  # noqa: N818 - it begins a stage again, it is no error
    """A stage is so far away that its steps mean nothing."""


class Ending(NamedTuple):
    """Where SciPy stopped, how it says so, and whether there is reason to doubt it."""

    x: Array
    message: str
    settled: bool


class Units(NamedTuple):
    """What counts as 1 in the objective, and in each constraint."""

    f: float
    c: Array


class _End(NamedTuple):
    reached: Point
    status: int
    message: str
    settled: bool = False  # which one stage does not know


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
        scales: What counts as 1 in each parameter.

    Example:
        >>> from oneproj.methods.sqp.memory import Seen
        >>> start, none = np.array([3.0]), np.zeros(0)
        >>> def ask(question):  # a parabola in a large unit
        ...     if question.differentiate:
        ...         return Seen(2e-12 * question.x, np.zeros((0, 1)))
        ...     return Seen(1e-12 * question.x @ question.x, none)
        >>> one = np.ones(1)
        >>> stages = Stages(start, none, none > 0, 1e-9, 2e-16, steps=50, scales=one)
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
    scales: Array

    def __call__(self, ask: Ask) -> Ending:
        """Run stages until one gains nothing, from near the start if that is better.

        Raises:
            NonFiniteError: There are no finite values at the start, or none beyond it.
        """
        memory = Memory(ask)
        try:
            start = memory.point(self.x)
        except Lost:
            raise memory.error from None  # type: ignore[misc]  # lost by an error
        end = self._descend(memory, start)
        if end.status == LOST and end.reached is start:
            raise memory.error  # type: ignore[misc]  # lost by an error
        if self._is_doubtful(start, end):
            end = self._begin_anew(memory, start, end)
        return Ending(end.reached.x, end.message, end.settled)

    def _descend(self, memory: Memory, start: Point) -> _End:
        here, message, status = start, "", LOST
        for k in range(MOST_STAGES):
            units, refused = self._units(here), len(memory.refused)
            stage = self._run(memory, here, units)
            around = len(memory.refused) > refused  # the next stage avoids that point
            if stage.status == LOST and stage.reached is start and not around:
                break
            if k > 0 and not (around or self._gains(here, stage.reached, units)):
                settled = here is not start or status == CONVERGED
                limit = math.pow(self.tolerance, REPAIRABLE)
                settled &= _violation(here, units) <= limit
                here = self._best(stage.reached, here, units)
                return _End(here, status, message, settled)
            here, status, message, _ = stage
            if status == LIMIT_REACHED:
                break
        return _End(here, status, message, status in (CONVERGED, LIMIT_REACHED))

    def _is_doubtful(self, start: Point, end: _End) -> bool:
        """Whether a violated start led to a point that is infeasible, or higher."""
        if self._meets(start, self._units(start)) or end.status == LIMIT_REACHED:
            return False
        point = end.reached
        lower = point.value.f <= start.value.f
        return not (lower and self._meets(point, self._units(point)))

    def _begin_anew(self, memory: Memory, start: Point, end: _End) -> _End:
        """Descend from a feasible point near the start, if it is better than the end.

        In the largest of units the objective is zero.
        """
        memory.held = end.reached.x
        nowhere = self._units(start)._replace(f=sys.float_info.max)
        near = self._run(memory, start, nowhere).reached
        memory.held = None
        if not self._is_better(near, end.reached):
            return end
        anew = self._descend(memory, near)
        return anew if self._is_better(anew.reached, end.reached) else end

    def _is_better(self, new: Point, old: Point) -> bool:
        met = self._meets(old, self._units(old))
        lower = bool(new.value.f < old.value.f) or not met
        return lower and self._meets(new, self._units(new))

    def _run(self, memory: Memory, here: Point, units: Units) -> _End:
        """One stage; if it gets lost, it reached the last point it knew."""
        size = max(1.0, float(np.max(np.abs(here.x / self.scales), initial=0.0)))
        try:
            try:
                return self._call(memory, here, units, FAR * size)
            except _Astray:
                bound = REACH * size
                return self._call(memory, here, units, math.inf, bound)
        except Lost:
            message = "The next point has no finite values"
            return _End(memory.look_again(), LOST, message)

    def _call(
        self,
        memory: Memory,
        here: Point,
        units: Units,
        far: float,
        bound: float | None = None,
    ) -> _End:
        """One call of SciPy, from here, with bounds if there is one.

        Raises:
            _Astray: An iterate is so far away.
            Lost: There are no finite values where it wants to go.
        """
        memory.last = here  # so that it is not asked about again
        origin, scales = here.x, self.scales
        most = STRAIGHT * _violation(here, units)

        def astray(point: Point) -> bool:
            # What is linear may be far away, and a step leads there.
            predicted = here.value.c + here.slope.c @ (point.x - origin)
            error = np.abs(point.value.c - predicted) / units.c
            risen = point.value.f > here.value.f
            return bool(risen and np.max(error, initial=0.0) > most)

        def objective(u: Array, *, differentiate: bool = False) -> Any:  # noqa: ANN401 - a number or a vector
            x = origin + scales * u
            if differentiate:
                point = memory.point(x)
                if np.max(np.abs(u), initial=0.0) > far and astray(point):
                    raise _Astray
                return point.slope.f * scales / units.f
            return memory.value(x).f / units.f

        def room(u: Array) -> Array:
            return -(memory.value(origin + scales * u).c / units.c + self.margins)

        def room_slopes(u: Array) -> Array:
            slopes = memory.point(origin + scales * u).slope.c * scales
            return -slopes / units.c[:, np.newaxis]

        found = minimize(
            objective,
            np.zeros_like(origin),
            jac=lambda u: objective(u, differentiate=True),
            bounds=None if bound is None else [(-bound, bound)] * len(origin),
            constraints={"type": "ineq", "fun": room, "jac": room_slopes}
            if len(self.margins)
            else (),
            method="SLSQP",
            options={"ftol": self.tolerance, "maxiter": self.steps},
        )
        reached = memory.point(origin + scales * found.x)
        same = np.array_equal(reached.x, here.x)
        return _End(here if same else reached, found.status, found.message)

    def _units(self, point: Point) -> Units:
        least = ROUNDINGS * self.rounding / self.tolerance
        f = max(np.linalg.norm(point.slope.f * self.scales), least * abs(point.value.f))
        c = np.linalg.norm(point.slope.c * self.scales, axis=1)
        c = np.maximum(c, least * np.abs(point.value.c))
        c[self.distances | (c == 0)] = 1.0
        return Units(float(f) or 1.0, c)

    def _gains(self, old: Point, new: Point, units: Units) -> bool:
        """Whether it was worth going from one point to another."""
        if not self._meets(old, units):
            return _violation(new, units) < FEWER * _violation(old, units)
        gain = (old.value.f - new.value.f) / units.f
        return self._meets(new, units) and bool(gain > self._noteworthy)

    def _best(self, new: Point, old: Point, units: Units) -> Point:
        allowed = max(_violation(old, units), self.tolerance)
        lower = bool(new.value.f < old.value.f)
        return new if lower and _violation(new, units) <= allowed else old

    def _meets(self, point: Point, units: Units) -> bool:
        return _violation(point, units) <= self._noteworthy

    @property
    def _noteworthy(self) -> float:
        return math.pow(self.tolerance, NOTEWORTHY)


def _violation(point: Point, units: Units) -> float:
    return float(np.max(point.value.c / units.c, initial=0.0))
