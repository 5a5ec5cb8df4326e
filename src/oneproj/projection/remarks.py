"""What a projection says about itself: numbers, and words where they are unusual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oneproj.projection.view import Look, View
from oneproj.results import Projection, Status

UNBALANCED = 0.5
"""A KKT residual above this says little for the answer. On networks, those with kinks
included, it is a tenth of that."""
LOOSE = 1.1
"""The distance's ratio to a proven bound up to which the bound vouches for it."""


def described(
    view: View,
    best: Look,
    distance: float,
    *,
    multipliers: Mapping[str, float] | None = None,
    kkt_residual: float = 0.0,
    lower_bound: float | None = None,
    empty: bool = False,
) -> Projection:
    """The point that the parameters hold, honestly.

    Args:
        view: Through which it was found.
        best: What was seen there.
        distance: From the start.
        multipliers: By name; 0 for those that are left out.
        kkt_residual: How far they are from balancing the displacement, relative to it.
        lower_bound: A distance below which no feasible point lies, if that is proven.
        empty: Whether it is proven that there is no feasible point.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> cap = {"cap": oneproj.function(w.sum) <= 1.0}
        >>> view = View([w], cap, differentiate_all=True)
        >>> described(view, view.best, 0.0).status.name
        'INFEASIBLE'
    """
    weights = multipliers or {}
    status = Status.FEASIBLE if best.worst <= 0 else Status.INFEASIBLE
    projection = Projection(
        status=Status.EMPTY if empty else status,
        distance=distance,
        residuals=best.values,
        multipliers={name: weights.get(name, 0.0) for name in view.constraints},
        evaluations=view.evaluations,
        kkt_residual=kkt_residual,
        residuals_before=view.first.values,
        lower_bound=lower_bound,
    )
    return remarked(projection)


def remarked(projection: Projection) -> Projection:
    """The projection, with a remark if its answer is probably not the nearest point.

    Example:
        >>> far = Projection(Status.FEASIBLE, 3.0, {}, {}, 9, kkt_residual=0.8)
        >>> remarked(far).remark[:60]
        'A nearer feasible point probably exists: the KKT residual is'
    """
    bound = projection.lower_bound
    vouched = bound is not None and projection.distance <= LOOSE * bound
    if not projection.status.ok or vouched or projection.kkt_residual <= UNBALANCED:
        return projection
    remark = (
        f"A nearer feasible point probably exists: the KKT residual is "
        f"{projection.kkt_residual:.2g}, and 0 at a nearest point, but for kinks such "
        "as that of a maximum or an absolute value. The answer is feasible all the "
        "same. To come nearer, compare the distance with that of another projector "
        '("augmented-lagrangian"), smooth the kinks, declare curvature="convex" where '
        "that is true, or use a set of oneproj.sets."
    )
    return replace(projection, remark=remark)
