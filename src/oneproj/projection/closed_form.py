"""The projector for closed-form sets on separate parameters: exact, in one move."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from oneproj.parameters import Vector, combine, difference, norm, snapshot
from oneproj.projection.base import AbstractProjector
from oneproj.projection.sets import SetConstraint
from oneproj.results import Projection, Status
from oneproj.terms import AbstractTerm

MARGIN_TRIES = 40
"""The margin doubles from one rounding unit; 40 doublings cover any float dtype."""


class ClosedForm(AbstractProjector):
    """Projects onto a product of closed-form sets, each on a parameter of its own.

    The nearest point of a product is the product of the nearest points. A hair of
    margin, a few units of the dtype's rounding, makes the residual <= 0 and not only
    close to it.

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
        pulls = []  # mu_j grad c_j(x_hat), which balance x - x_hat
        for name, constraint in constraints.items():
            if before[name] > 0 and isinstance(constraint, SetConstraint):
                multipliers[name] = _project_tensor(constraint)
                _, gradient = constraint.value_and_gradient(parameters)
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
            evaluations=len(pulls),
            kkt_residual=imbalance / norm(moved) if imbalance > 0 else 0.0,
            residuals_before=before,
        )


def _project_tensor(constraint: SetConstraint) -> float:
    """Move the tensor into its set and return how far."""
    x = constraint.tensor
    outside = x.detach().clone()
    scale = max(1.0, float(outside.abs().max()))
    margin = 0.0
    for k in range(MARGIN_TRIES):
        x.copy_(constraint.members.project(outside, margin=margin))
        if constraint.value() <= 0:
            break
        margin = scale * torch.finfo(x.dtype).eps * 2.0**k
    return norm([x - outside])
