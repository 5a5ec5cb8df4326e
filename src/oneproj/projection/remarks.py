"""What a projection says about itself in words, where its numbers are unusual."""

from __future__ import annotations

from dataclasses import replace

from oneproj.results import Projection

UNBALANCED = 0.5
"""A KKT residual above this says little for the answer. On networks, those with kinks
included, it is a tenth of that."""
LOOSE = 1.1
"""The distance's ratio to a proven bound up to which the bound vouches for it."""


def remarked(projection: Projection) -> Projection:
    """The projection, with a remark if its answer is probably not the nearest point.

    Example:
        >>> from oneproj.results import Status
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
