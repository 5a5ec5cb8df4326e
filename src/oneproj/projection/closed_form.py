"""The projector for closed-form sets on separate parameters: exact, in one move."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from oneproj.problem.terms import AbstractTerm
from oneproj.projection.base import AbstractProjector
from oneproj.results import Projection, Status
from oneproj.sets import SetConstraint
from oneproj.sets.region import nearest_member
from oneproj.vectors.arithmetic import (
    Vector,
    combine,
    difference,
    distance,
    norm,
    snapshot,
)


class ClosedForm(AbstractProjector):
    """Projects onto a product of closed-form sets, each on a parameter of its own.

    The nearest point of a product is the product of the nearest points. It is computed
    in float64 and aimed a hair inside, a few units of the dtype's rounding, so that the
    residual is <= 0 after rounding too, in whatever order the caller adds it up.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> done = ClosedForm().project([w], {"size": oneproj.sets.Ball(1.0).on(w)})
        >>> round(done.distance, 6), done.residuals["size"] <= 0
        (4.0, True)
    """

    name = "closed-form"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        """Every constraint must be a set, and no two on the same tensor."""
        seen: dict[int, str] = {}
        for name, constraint in constraints.items():
            if not isinstance(constraint, SetConstraint):
                return f"{name!r} is not a closed-form set (oneproj.sets)"
            other = seen.setdefault(id(constraint.tensor), name)
            if other != name:
                return f"{other!r} and {name!r} constrain the same tensor"
        return None

    @torch.no_grad()
    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        """Project each constrained tensor in place."""
        start = snapshot(parameters)
        before = {name: c.value() for name, c in constraints.items()}
        multipliers = dict.fromkeys(constraints, 0.0)
        pulls = []  # mu_j times a normal at x_hat, which balance x - x_hat
        for name, constraint in constraints.items():
            if before[name] > 0 and isinstance(constraint, SetConstraint):
                # From outside: at a corner only this one of the normals balances.
                _, gradient = constraint.value_and_gradient(parameters)
                multipliers[name] = _project_tensor(constraint)
                pulls.append(combine([multipliers[name]], [gradient]))
        moved = difference(parameters, start)
        imbalance = norm(combine([1.0] * (1 + len(pulls)), [moved, *pulls]))
        after = {name: c.value() for name, c in constraints.items()}
        feasible = all(residual <= 0 for residual in after.values())
        return Projection(
            status=Status.FEASIBLE if feasible else Status.INFEASIBLE,
            distance=norm(moved),
            residuals=after,
            multipliers=multipliers,
            gradients=1,
            kkt_residual=imbalance / norm(moved) if norm(moved) > 0 else 0.0,
            residuals_before=before,
        )


def _project_tensor(constraint: SetConstraint) -> float:
    """Move the tensor into its set and return how far."""
    x = constraint.tensor
    outside = snapshot([x])[0]
    x.copy_(nearest_member(constraint.members, outside, outside))
    return distance([x], [outside])
