"""What counts as 1 in each parameter: for SLSQP, whose first model of f is a sphere.

The weight of a feature in the thousands and that of a ratio beside it are a thousand
times apart. In a loss that is a mean, the gradients of single examples show it: the
weight of a feature has a gradient in proportion to that feature. With ``f_i`` and
``h_i`` the value and the gradient of example i, parameter k gets the unit

    ``t / s_k``,   ``s_k^2 = mean_i h_ik^2 / (mean_i |f_i|)^2``, summed over the terms,

and t is that of a first step along the gradient to where f would be least if its
curvature was ``mean_i h_i h_i' / mean_i |f_i|``. So it is for least squares and,
nearly, for the logarithm of a probability. Whatever the units of features, targets and
terms, SLSQP then begins the same; correlations it learns by itself. Where the objective
has no examples, or says nothing about t, the units have the geometric mean 1.

In a network the gradients of a layer have the size of the weights behind it, which is
no unit: with a last layer near zero the first would go astray. Such sizes change as
soon as the parameters move, by ``CHANGE`` within a unit. Then all units are 1.

What SLSQP's stages ask for, and what they remember of the answers.

SciPy asks for values and gradients one by one, and more than once at a point; here a
term is evaluated once. SciPy's line search tries a tenth of the step where the
objective is infinite. So that is what it is told where a term has no finite value, or
has a value but no gradient.

SciPy's SLSQP in the problem's own units, begun again from where it stopped.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.vectors.arithmetic import (
    Array,
    Mask,
    Vector,
    assign,
    dimension,
    flat,
    snapshot,
    unflat,
)

EXAMPLES = 256
"""Looked at, of all terms together: the sizes of features need no more."""
CHANGE = 10.0
"""Of one size relative to another, within a unit: those of features do not change."""


def parameter_units(problem: Problem, counts: Counts) -> Array:
    """The unit of each parameter, where the parameters are; 1 where nothing tells.

    Example:
        >>> import oneproj
        >>> x = torch.tensor([[1.0, 100.0], [-1.0, 100.0], [1.0, -100.0]])
        >>> w = torch.zeros(2, requires_grad=True)
        >>> loss = oneproj.mean(lambda batch: (batch @ w - 1.0).square(), data=x)
        >>> units = parameter_units(oneproj.Problem(w, loss, {}), Counts())
        >>> round(units[0] / units[1])
        100
    """
    squares, objective = _sizes(problem, counts)
    if not squares.any():
        return np.ones_like(squares)
    usual = math.exp(np.log(squares[squares > 0]).mean() / 2)
    units: Array = 1.0 / np.where(squares > 0, np.sqrt(squares), usual)
    length = 0.0 if objective is None else _first_step(objective, units)
    units *= length if 0 < length < math.inf else usual
    return (
        units
        if _stay_in_proportion(problem, counts, units, squares)
        else np.ones_like(units)
    )


def _sizes(problem: Problem, counts: Counts) -> tuple[Array, _Look | None]:
    """The squares of all s_k, and what was seen of the objective."""
    terms = [problem.objective, *problem.constraints.values()]
    sampled = [term for term in terms if term.size is not None]
    squares, objective = np.zeros(dimension(problem.parameters)), None
    for term in sampled:
        mine = term is problem.objective
        counts.objective_gradients += mine
        counts.constraint_gradients += not mine
        try:
            with evaluating(problem.model):
                seen = _look(term, problem.parameters, EXAMPLES // len(sampled) + 1)
        except (RuntimeError, ValueError):
            continue  # a compiled graph goes backward only once, for example
        with np.errstate(all="ignore"):
            each = np.square(seen.slopes / seen.size).mean(0)
        if np.isfinite(each).all():  # what is wrong otherwise shows in full passes
            squares += each
            objective = seen if mine else objective
    return squares, objective


def _stay_in_proportion(
    problem: Problem, counts: Counts, units: Array, squares: Array
) -> bool:
    """Whether sizes keep their ratios after a move by one unit in each parameter."""
    start = snapshot(problem.parameters)
    there = unflat(flat(start) + units, start)
    try:
        assign(problem.parameters, there)
        then, _ = _sizes(problem, counts)
    finally:
        assign(problem.parameters, start)
    change = then[squares > 0] / squares[squares > 0]
    # Where nothing has a gradient, as beyond a hinge, nothing tells.
    return bool(change.max() <= CHANGE**2 * change.min())


class _Look(NamedTuple):
    values: Array
    slopes: Array
    """One row per example."""

    @property
    def size(self) -> float:
        return float(np.abs(self.values).mean())


def _first_step(seen: _Look, units: Array) -> float:
    """How far to go along the gradient; not less than noise alone would say."""
    with np.errstate(all="ignore"):  # who asks looks at what came out
        slopes = seen.slopes * units
        g = slopes.mean(0)
        noise = np.linalg.norm(slopes) / len(slopes)
        steepness, along = np.linalg.norm(g), np.square(slopes @ g).mean()
        return float(seen.size * max(steepness, noise) * (steepness**2 / along))


@torch.enable_grad()
def _look(term: AbstractTerm, parameters: Vector, most: int) -> _Look:
    """The values of some examples of a term, and their gradients."""
    size, like = term.size or 0, list(parameters)
    indices = torch.arange(0, size, math.ceil(size / most), device="cpu")
    values = term.examples(indices)
    if not values.requires_grad:
        return _Look(flat([values]), np.zeros((len(indices), dimension(like))))
    rows = []
    for value in values:
        parts = torch.autograd.grad(value, like, retain_graph=True, allow_unused=True)
        rows.append(flat([_dense(h, p) for h, p in zip(parts, like, strict=True)]))
    return _Look(flat([values]), np.stack(rows))


def _dense(part: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if part is None else part.to_dense()


class Question(NamedTuple):
    """What SciPy wants to know at a point: the values, or the gradients."""

    x: Array
    differentiate: bool
    held: Array | None = None
    """The answer if nothing more can be asked, where it is not the last iterate."""


class Seen(NamedTuple):
    """The values, or the gradients, of the objective and of what is to be <= 0."""

    f: Any
    """A number, or a vector."""
    c: Array


Reply: TypeAlias = Seen | NonFiniteError
Ask: TypeAlias = Callable[[Question], Reply]


@dataclass(frozen=True)
class Point:
    """Where it is, with the values and the gradients there."""

    x: Array
    value: Seen
    slope: Seen


class Lost(Exception):  # noqa: N818 - it ends SciPy's loop, it is no error of its own
    """SciPy wants to go on from a point without finite values or gradients."""


class Memory:
    """Every value and gradient, asked for once per point.

    Example:
        >>> asked = []
        >>> def ask(question):
        ...     asked.append(question.differentiate)
        ...     return Seen(2.0 * question.x, np.zeros((0, 1)))
        >>> memory = Memory(ask)
        >>> for _ in range(2):
        ...     point = memory.point(np.ones(1))
        >>> asked
        [False, True]
    """

    def __init__(self, ask: Ask) -> None:
        """Nothing was asked yet."""
        self._ask = ask
        self._trial: tuple[bytes, Seen] | None = None
        self.error: NonFiniteError | None = None
        self.refused: set[bytes] = set()
        """Points with a value and no gradient: not to be tried again."""
        self.last: Point | None = None
        """The last point whose gradients were known: SciPy's iterate."""
        self.held: Array | None = None
        """See ``Question``."""

    def value(self, x: Array) -> Seen:
        """The values at a point; an infinite objective where there are none."""
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

    def point(self, x: Array) -> Point:
        """The values and gradients at a point, which becomes the last one.

        Raises:
            Lost: There are none.
        """
        if self.last is None or not np.array_equal(x, self.last.x):
            value = self.value(x)
            if not np.isfinite(value.f):
                raise Lost
            slope = self._ask(Question(x.copy(), differentiate=True, held=self.held))
            if isinstance(slope, NonFiniteError):
                self.error = slope
                self.refused.add(x.tobytes())
                raise Lost
            self.last = Point(x.copy(), value, slope)
        return self.last

    def look_again(self) -> Point:
        """The last point, if its values are still finite; a term may break for good."""
        last, self.last, self._trial = self.last, None, None
        try:
            self.point(last.x)  # type: ignore[union-attr]  # the start at least
        except Lost:
            raise self.error from None  # type: ignore[misc]  # lost by an error
        self.last = last
        return last  # type: ignore[return-value]


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
        >>> from oneproj.methods.slsqp_driver import Seen
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
