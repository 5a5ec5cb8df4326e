"""The constraints as a projector sees them: one point at a time, counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.margins import (
    DEEPEST,
    MARGIN_POWER,
    Margin,
    coarsest,
    opposed,
)
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Vector, assign, dot, norm, snapshot
from oneproj.vectors.space import (
    AbstractMove,
    AbstractPacked,
    AbstractSpace,
    Arrived,
    Packed,
    space_around,
)

Watch = Callable[[int, float], None]
"""Called with (gradients so far, worst residual)."""
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)

FEW = 2
"""Functions up to which all constraints are differentiated at the first evaluation: a
projection is seldom asked for where they hold."""


ROUGHLY = 4.0
"""In margins: a violation of this size may be rounding, which margins are made for."""


class Evaluation(NamedTuple):
    """All constraints at one point, with the gradients of those that may bind."""

    values: dict[str, float]
    gradients: dict[str, list[Tensor]]
    worst: float
    """The largest residual; feasible means <= 0."""


class Evaluator:
    """Evaluates constraints at the point that the parameters hold.

    A constraint that was never violated is evaluated without its gradient: of a
    hundred constraints of which three matter, three are differentiated.
    """

    def __init__(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        *,
        differentiate_all: bool,
        suspects: Collection[str] | None = (),
        before: Evaluator | None = None,
    ) -> None:
        """Evaluate once; the parameters hold the start.

        Args:
            parameters: What moves.
            constraints: Name to constraint.
            differentiate_all: At every evaluation, also what was never violated.
            suspects: The constraints to treat as violated before; None if all of a few
                are to be suspected until the first evaluation.
            before: Of an earlier search, whose counts and history go on.
        """
        self.parameters = parameters
        self.constraints = constraints
        # The same memory, for writing to: nothing done to it is differentiated.
        self._storage = [parameter.detach() for parameter in parameters]
        self.origin = snapshot(parameters)
        self._space: AbstractSpace | None = None
        self.evaluations: int = 0 if before is None else before.evaluations
        self.extra_passes: int = 0 if before is None else before.extra_passes
        """Passes beyond the evaluations; they use up no budget."""
        self.history: list[tuple[int, float, float]] = (
            [] if before is None else before.history
        )
        """For every visited point: evaluations so far, worst residual, distance."""
        self._farthest = min(torch.finfo(p.dtype).max for p in parameters)
        functions = [
            c for c in constraints.values() if not isinstance(c, SetConstraint)
        ]
        guess = suspects is None and len(functions) <= FEW
        known = constraints if differentiate_all or guess else suspects or ()
        self._suspects = set(known)
        self.first = self.evaluate()
        if guess and not differentiate_all:
            self._suspects = {name for name, c in self.first.values.items() if c > 0}
        self.eps = coarsest(parameters, constraints)
        """The unit that values are rounded to, where they are 1."""
        self.share: float = self.eps**MARGIN_POWER
        self._margins = {
            name: Margin(constraints[name], self.eps, value)
            for name, value in self.first.values.items()
        }
        self.margins: dict[str, float] = {}
        """How far inside each to aim; renewed by every move."""
        self._renew_margins(self.first)
        self.best = self.first
        """The evaluation at the nearest feasible point, or the least infeasible one."""
        self._best_move: AbstractMove | None = None
        self._best_point: list[Tensor] | None = self.origin
        self._here: Evaluation | None = self.first
        """The evaluation where the parameters are; None if that is unknown."""

    @property
    def best_point(self) -> list[Tensor]:
        """The best point so far; made on demand from the move to it."""
        if self._best_point is None:
            self._best_point = [torch.empty_like(tensor) for tensor in self.origin]
            self._go_to_best(self._best_point)
        return self._best_point

    @property
    def best_distance(self) -> float:
        """The distance of the best point from the start."""
        return 0.0 if self._best_move is None else self._best_move.length

    @property
    def space(self) -> AbstractSpace:
        """The points around the start; made on demand."""
        if self._space is None:
            self._space = space_around(self.origin)
        return self._space

    def rounding(self, name: str, value: float, gradient_norm: float) -> float:
        """A unit of rounding in a constraint's value and, through it, in the start.

        Args:
            name: The constraint's.
            value: Its residual.
            gradient_norm: Of its gradient.
        """
        size = self.constraints[name].scale() + abs(value)
        return self.eps * (size + gradient_norm * self._far_out)

    def is_rounding(self, evaluation: Evaluation) -> bool:
        """Whether nothing is violated by more than rounding, as margins allow for it.

        In a precision where the margin is below the rounding of the values, such as
        bfloat16, that rounding counts.
        """
        if self.is_within_margins(evaluation):
            return True
        norms = {name: norm(g) for name, g in evaluation.gradients.items()}
        return all(
            c <= max(self.margins[n], self.rounding(n, c, norms.get(n, 0.0)))
            for n, c in evaluation.values.items()
        )

    def is_within_margins(self, evaluation: Evaluation) -> bool:
        """Whether nothing is violated by more than a few margins."""
        return all(c <= ROUGHLY * self.margins[n] for n, c in evaluation.values.items())

    @cached_property
    def _far_out(self) -> float:
        return self.space.size_of_origin()

    def displacement(self) -> AbstractPacked:
        """Where the parameters are, seen from the start."""
        return self.space.displacement(self._storage)

    def moved(self) -> float:
        """Return to the best point, and measure how far the parameters moved."""
        self.return_to_best()
        return self.space.length(self._storage)

    def return_to_best(self) -> None:
        """Make the parameters hold the best point."""
        if self._here is not self.best:
            self._go_to_best(self._storage)
            self._here = self.best

    def return_to_start(self) -> None:
        """Make the parameters hold the start."""
        if self._here is not self.first:
            assign(self._storage, self.origin)
            self._here = self.first

    def lend(self) -> None:
        """Return to the start, from where something else moves the parameters."""
        self.return_to_start()
        self._here = None

    def keep_best(self) -> None:
        """Form the best point, so that what its move is made of can be forgotten."""
        self._best_move = Arrived(self.best_point, self.best_distance)

    def set_best(
        self, evaluation: Evaluation, move: AbstractMove | AbstractPacked
    ) -> None:
        """Make the point after a move the best one."""
        way = Packed(move) if isinstance(move, AbstractPacked) else move
        self.best, self._best_move, self._best_point = evaluation, way, None

    def noise(self, names: Collection[str]) -> dict[str, float]:
        """How far values near the best point are off what its gradients say.

        So near, a margin's share away, a smooth function is linear but for rounding. It
        is not differentiated there; both points together count as one evaluation.
        """
        self.return_to_best()
        along = {n: dot(self.best.gradients[n], self._storage) for n in names}
        self.evaluations += 1
        off = dict.fromkeys(names, 0.0)
        for share in (self.share, -self.share):
            self._go_to_best(self._storage)
            torch._foreach_mul_(self._storage, 1.0 + share)
            values = self.values_here(names)
            if values is None:  # at the edge of where it is defined
                off = dict.fromkeys(names, 0.0)
                break
            for name, change_along in along.items():
                change = values[name] - self.best.values[name]
                off[name] = max(off[name], abs(change - share * change_along))
        self.return_to_best()
        return off

    def evaluate(self, only: str | None = None) -> Evaluation:
        """Evaluate where the parameters are; one evaluation, however many there are.

        The gradient of a function that is violated for the first time takes a second
        pass, which is counted in ``extra_passes``.

        Args:
            only: The constraint whose gradient is wanted; None for all that may bind.
        """
        self.evaluations += 1
        values, gradients, worst, again = {}, {}, math.inf, False
        try:
            for name, constraint in self.constraints.items():
                if name not in self._suspects or only not in (None, name):
                    values[name] = constraint.value()
                    if values[name] <= 0 or only is not None:
                        continue
                    self._suspects.add(name)
                    again |= not isinstance(constraint, SetConstraint)
                found = constraint.value_and_gradient(self.parameters)
                values[name], gradients[name] = found
            worst = max(values.values(), default=-math.inf)
        finally:
            self.extra_passes += again
            self._record(worst)
        return Evaluation(values, gradients, worst)

    def values_here(self, names: Collection[str]) -> dict[str, float] | None:
        """Return values where the parameters are; None if one is not finite.

        No gradients are taken. The caller counts it, and moves the parameters.
        """
        self._here, values, worst = None, None, math.inf
        # At the edge of where a constraint is defined there is no value.
        with suppress(NonFiniteError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            values = {name: self.constraints[name].value() for name in names}
            worst = max(values.values(), default=-math.inf)
        self._record(worst)
        return values

    def _record(self, worst: float) -> None:
        """Append the point that the parameters hold to the history, and report it."""
        count, last = self.evaluations + self.extra_passes, self.history[-1:]
        self.history.append((count, worst, self.space.length(self._storage)))
        watch = _WATCH.get()
        if watch is not None and not (last and last[0][0] == count):
            watch(count, worst)

    def move(self, move: AbstractMove | AbstractPacked | Vector) -> Evaluation:
        """Go to ``x_0 + displacement`` and evaluate; remember the best point.

        Raises:
            NonFiniteError: The point, a value or a gradient is not finite, or a
                decomposition in a constraint fails.
        """
        if isinstance(move, AbstractPacked):
            move = Packed(move)
        elif not isinstance(move, AbstractMove):
            move = Packed(self.space.pack(move))
        if not move.length < self._farthest:
            quantity = "a point that the projection would try"
            raise NonFiniteError(quantity)
        self._here = None
        move.apply(self.space, self._storage)
        try:
            self._here = evaluation = self.evaluate()
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            # It says that the numbers are too extreme, as NaN does.
            quantity = "a constraint where the projection tried a point"
            raise NonFiniteError(quantity) from error
        for name, margin in self._margins.items():
            gradient = evaluation.gradients.get(name)
            margin.renew(evaluation.values[name], gradient, self._storage, move.length)
        self._renew_margins(evaluation)
        if self._is_better(evaluation, move.length):
            self.set_best(evaluation, move)
        return evaluation

    def _renew_margins(self, evaluation: Evaluation) -> None:
        """Take the margins; of both sides of a band, what leaves room between them."""
        self.margins = {name: margin.width for name, margin in self._margins.items()}
        for side, other in opposed(evaluation.gradients):
            c = evaluation.values[side]
            width = -(c + evaluation.values[other])
            if width < -self.share * abs(c):
                continue  # no band: they contradict each other by more than rounding
            for name in (side, other):
                most = DEEPEST * max(0.5 * width, 0.0)
                self.margins[name] = min(self.margins[name], most)

    def point_after(self, move: AbstractMove) -> list[Tensor]:
        """The start plus a displacement, in float64."""
        point = [torch.empty_like(x, dtype=torch.float64) for x in self.origin]
        move.apply(self.space, point)
        return point

    def move_to(self, point: Vector) -> Evaluation:
        """Go to a point, kept and not copied, and evaluate, as ``move`` does."""
        return self.move(Arrived(point, self.space.length(point)))

    def try_point(self, point: Vector) -> bool:
        """Evaluate at a point, without gradients, and keep it if it is feasible.

        A point that is not feasible, or has no finite value, leaves the evaluator and
        the parameters as they were.

        Example:
            >>> from oneproj.problem.functions import function
            >>> w = torch.tensor([2.0], requires_grad=True)
            >>> cap = {"w": function(w.sum) <= 1.0}
            >>> evaluator = Evaluator([w], cap, differentiate_all=True)
            >>> evaluator.try_point([torch.tensor([0.5])]), evaluator.moved()
            (True, 1.5)
        """
        self.extra_passes += 1
        assign(self._storage, point)
        values = self.values_here(self.constraints)
        worst = math.inf if values is None else max(values.values())
        if values is not None and worst <= 0:
            far = self.space.length(point)
            self.set_best(Evaluation(values, {}, worst), Arrived(point, far))
        self.return_to_best()
        return worst <= 0

    @contextmanager
    def second_search(self) -> Iterator[Evaluator]:
        """Yield an evaluator of the same problem at the start; its counts go on.

        An error or an interruption leaves this one with the better of the best points.
        """
        self._here = None
        assign(self._storage, self.origin)
        again = Evaluator(
            self.parameters, self.constraints, differentiate_all=True, before=self
        )
        try:
            yield again
        except BaseException:
            if self._is_better(again.best, again.best_distance):
                self.set_best(
                    again.best, Arrived(again.best_point, again.best_distance)
                )
            raise

    def _go_to_best(self, point: Vector) -> None:
        if self._best_move is None:
            assign(point, self.origin)
        else:
            self._best_move.apply(self.space, point)

    def _is_better(self, evaluation: Evaluation, length: float) -> bool:
        """Feasible points are ranked by distance, others by their worst residual.

        Of feasible points that a margin cannot tell apart, the later one saw more.
        """
        if evaluation.worst > 0 or self.best.worst > 0:
            return evaluation.worst < self.best.worst
        return length <= self.best_distance * (1.0 + self.share)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Tell ``watch`` about every evaluation of every evaluator while the block runs.

    Example:
        >>> from oneproj.problem.functions import function
        >>> w, told = torch.tensor([2.0], requires_grad=True), []
        >>> with watching(lambda count, worst: told.append((count, worst))):
        ...     cap = {"w": function(w.sum) <= 1.0}
        ...     evaluator = Evaluator([w], cap, differentiate_all=True)
        >>> told
        [(1, 1.0)]
    """
    with _watched_by(watch):
        yield


def unwatched() -> AbstractContextManager[None]:
    """Tell nobody about evaluations while the block runs: they are on samples."""
    return _watched_by(None)


@contextmanager
def _watched_by(watch: Watch | None) -> Iterator[None]:
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)
