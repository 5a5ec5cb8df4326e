"""Bounds on the largest values over data, met by bounds on the examples that matter.

``largest(fn, data) <= b`` holds if and only if every example is at most b, and of all
examples few bind. So the point is projected onto the bounds of the largest examples at
the start. Where the answer violates others, these are added, and the start is projected
again, until none is violated: the answer, its multipliers and what is proven of its
distance are then those of the problem with all examples. A mean over the ``count``
largest is the largest of the means over as many examples, and treated alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from oneproj.problem.functions import Largest
from oneproj.problem.terms import AbstractTerm, Combination, Constraint, Weighted
from oneproj.projection.tolerances import TOLERANCES
from oneproj.results import Projection
from oneproj.vectors.arithmetic import Vector, assign, snapshot

Project = Callable[[Vector, Mapping[str, AbstractTerm], int], Projection]
"""Projects parameters in place onto constraints, with a limit of gradients."""


def has_largest(constraints: Mapping[str, AbstractTerm]) -> bool:
    """Whether a constraint bounds the largest values over data from above."""
    return any(_largest_of(constraint) for constraint in constraints.values())


def _largest_of(constraint: AbstractTerm) -> tuple[Largest, float, float] | None:
    """The largest values that a constraint bounds from above, a factor and a constant.

    The constraint bounds their product with the factor plus the constant. None for
    other constraints.
    """
    if not isinstance(constraint, Constraint):
        return None
    term, factor, constant = constraint.term, 1.0, 0.0
    if isinstance(term, Combination) and len(term.terms) == 1:
        constant = term.constant
        factor, term = term.terms[0]
    if isinstance(term, Largest) and constraint.sense * factor > 0:
        return term, factor, constant
    return None


def parts_of(
    constraint: AbstractTerm, most: int = TOLERANCES.parts
) -> dict[tuple[int, ...], Constraint]:
    """Bounds on the examples that were the largest when a constraint was evaluated.

    The first has the constraint's value and gradient, and none is above it anywhere.

    Args:
        constraint: Of any kind.
        most: How many bounds to return, at most.

    Returns:
        The bounds by the rows of their examples; none for a constraint that does not
        bound the largest values over data from above.

    Example:
        >>> import torch, oneproj
        >>> x = torch.tensor([1.0, 3.0, 2.0])
        >>> w = torch.ones(1, requires_grad=True)
        >>> cap = oneproj.largest(lambda x: w * x, data=x) <= 2.5
        >>> cap.value(), {row: c.value() for row, c in parts_of(cap).items()}
        (0.5, {(1,): 0.5, (2,): -0.5, (0,): -1.5})
    """
    found = _largest_of(constraint)
    if found is None or not isinstance(constraint, Constraint):
        return {}
    term, factor, constant = found
    return {
        rows: Constraint(
            Combination((Weighted(factor, part),), constant),
            constraint.bound,
            sense=constraint.sense,
        )
        for rows, part in term.parts(most).items()
    }


def project_largest(
    parameters: Vector,
    constraints: Mapping[str, AbstractTerm],
    project: Project,
    max_evaluations: int,
) -> Projection:
    """Project in place, with bounds on single examples for those on the largest.

    Args:
        parameters: What moves.
        constraints: Those on largest values, and any others.
        project: For the bounds on examples, and for ``constraints`` themselves where
            those rounds end without a feasible point.
        max_evaluations: Gradients of all rounds together; without a feasible point by
            then, ``constraints`` themselves may take as many again.

    Returns:
        What was found, in terms of ``constraints``. Its gradients are those of all
        rounds, and one for every pass that looks for violated examples.
    """
    before = residuals = _residuals(constraints)
    if max(before.values()) <= 0:
        return project(parameters, constraints, max_evaluations)
    start, parts = snapshot(parameters), _Parts(constraints)
    gradients, history = 1, []
    for k in range(TOLERANCES.part_rounds):
        parts.add(residuals, most=TOLERANCES.parts << k)
        assign(parameters, start)
        left = max(1, max_evaluations - gradients)
        found = project(parameters, parts.constraints, left)
        residuals = _residuals(constraints)
        history += [(gradients + n, worst, far) for n, worst, far in found.history]
        gradients += found.gradients + 1
        missed = max(residuals.values()) > 0
        if not (missed and found.status.ok) or gradients >= max_evaluations:
            break
    if missed:  # too many examples take turns to be the largest, or too few can be met
        assign(parameters, start)
        found = project(parameters, constraints, max_evaluations)
        residuals = dict(found.residuals)
        history += [(gradients + n, worst, far) for n, worst, far in found.history]
        gradients += found.gradients
    return replace(
        found,
        residuals=residuals,
        residuals_before=before,
        multipliers=parts.totals(found.multipliers),
        gradients=gradients,
        history=tuple(history),
    )


def _residuals(constraints: Mapping[str, AbstractTerm]) -> dict[str, float]:
    return {name: constraint.value() for name, constraint in constraints.items()}


class _Parts:
    """Bounds on examples so far, and the bound on the largest that each is part of."""

    def __init__(self, constraints: Mapping[str, AbstractTerm]) -> None:
        """Begin with the constraints that are not on largest values."""
        self._bounds = {n: c for n, c in constraints.items() if _largest_of(c)}
        self.constraints = {
            name: c for name, c in constraints.items() if name not in self._bounds
        }
        self._owners = {name: name for name in constraints}

    def add(self, residuals: Mapping[str, float], most: int) -> None:
        """Add bounds of ``most`` of the largest examples where one is violated."""
        violated = [(n, c) for n, c in self._bounds.items() if residuals[n] > 0]
        for name, bound in violated:
            for rows, part in parts_of(bound, most).items():
                label = f"{name}, rows {', '.join(map(str, rows))}"
                self.constraints.setdefault(label, part.named(label))
                self._owners[label] = name

    def totals(self, multipliers: Mapping[str, float]) -> dict[str, float]:
        """Return the multipliers of the constraints, each the sum of its parts'."""
        found = dict.fromkeys(self._owners.values(), 0.0)
        for label, multiplier in multipliers.items():
            found[self._owners[label]] += multiplier
        return found
