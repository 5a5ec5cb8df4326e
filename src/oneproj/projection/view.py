"""The constraints as a projector sees them: one point at a time, counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.parameters import Vector, assign, combine, difference, norm, snapshot
from oneproj.projection.sets import SetConstraint
from oneproj.terms import AbstractTerm, Constraint

Watch = Callable[[int, float], None]
"""Is told the looks so far and the worst residual."""
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)

MARGIN_POWER = 0.75
"""The margin is eps^0.75 of a constraint's scale: far above the rounding of its value,
which another batch size or thread count may change, and far below what matters."""

DEEPEST = 0.25
"""The share of a set's depth that a margin may take."""


@dataclass(frozen=True)
class Look:
    """All constraints at one point, with the gradients of those that may bind."""

    values: dict[str, float]
    gradients: dict[str, list[Tensor]]

    @property
    def worst(self) -> float:
        """The largest residual; feasible means <= 0."""
        return max(self.values.values(), default=-torch.inf)


class View:
    """Evaluates constraints at the point that the parameters hold.

    A constraint that was never violated is looked at without its gradient: of a
    hundred constraints of which three matter, three are differentiated.
    """

    def __init__(
        self,
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        *,
        differentiate_all: bool,
        suspects: Collection[str] = (),
    ) -> None:
        """Take the first look; the parameters hold the start.

        Args:
            parameters: What moves.
            constraints: Name to constraint.
            differentiate_all: At every look, also what was never violated.
            suspects: The constraints to treat as violated before.
        """
        self.parameters = parameters
        self.constraints = constraints
        self.origin = snapshot(parameters)
        self.evaluations = 0
        self._suspects = set(constraints if differentiate_all else suspects)
        self.first = self.look()
        eps = max(torch.finfo(p.dtype).eps for p in parameters)
        self.share: float = eps**MARGIN_POWER
        self.margins = {
            name: _reachable(constraints[name], self.share, value)
            for name, value in self.first.values.items()
        }
        self.best = self.first
        """What was seen at the nearest feasible point, or the least infeasible one."""
        self._best_move: Vector | None = None
        self._best_point: list[Tensor] | None = self.origin

    @property
    def best_point(self) -> list[Tensor]:
        """Where that was; made on demand from the displacement."""
        if self._best_point is None and self._best_move is not None:
            self._best_point = combine([1.0, 1.0], [self.origin, self._best_move])
        return self._best_point or self.origin

    @best_point.setter
    def best_point(self, point: list[Tensor]) -> None:
        self._best_point, self._best_move = point, difference(point, self.origin)

    @property
    def best_distance(self) -> float:
        """Its distance from the start."""
        return 0.0 if self._best_move is None else norm(self._best_move)

    def look(self) -> Look:
        """Evaluate where the parameters are; one evaluation, however many there are."""
        self.evaluations += 1
        values, gradients = {}, {}
        for name, constraint in self.constraints.items():
            if name not in self._suspects:
                values[name] = constraint.value()
                if values[name] <= 0:
                    continue
                self._suspects.add(name)
            found = constraint.value_and_gradient(self.parameters)
            values[name], gradients[name] = found
        seen, watch = Look(values, gradients), _WATCH.get()
        if watch is not None:
            watch(self.evaluations, seen.worst)
        return seen

    def move(self, displacement: Vector) -> Look:
        """Go to ``x_0 + displacement`` and look; remember the best point.

        The displacement is kept, not copied: a large model has no vectors to spare.
        """
        assign(self.parameters, self.origin)
        with torch.no_grad():
            torch._foreach_add_(list(self.parameters), list(displacement))
        seen = self.look()
        if self._is_better(seen, displacement):
            self.best, self._best_move, self._best_point = seen, displacement, None
        return seen

    def _is_better(self, seen: Look, displacement: Vector) -> bool:
        """Feasible points are ranked by distance, others by their worst residual.

        Of feasible points that a margin cannot tell apart, the later one saw more.
        """
        if seen.worst > 0 or self.best.worst > 0:
            return seen.worst < self.best.worst
        return norm(displacement) <= self.best_distance * (1.0 + self.share)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Tell ``watch`` about every look of every view while the block runs.

    Example:
        >>> from oneproj.terms import function
        >>> w, told = torch.tensor([2.0], requires_grad=True), []
        >>> with watching(lambda looks, worst: told.append((looks, worst))):
        ...     view = View([w], {"w": function(w.sum) <= 1.0}, differentiate_all=True)
        >>> told
        [(1, 1.0)]
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def _reachable(constraint: AbstractTerm, share: float, value: float) -> float:
    """The margin: a share of the constraint's scale, and no more than it has room."""
    bound = abs(constraint.bound) if isinstance(constraint, Constraint) else 0.0
    margin = share * (bound + abs(value))
    if isinstance(constraint, SetConstraint):
        margin = min(margin, DEEPEST * constraint.members.depth(constraint.tensor))
    return margin
