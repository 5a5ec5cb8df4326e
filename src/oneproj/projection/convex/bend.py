"""How much convex constraints curve, as far as looks at them tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from oneproj.vectors.space import AbstractPacked

AGREE = 2.0
"""Curvatures within this factor of each other belong to a smooth constraint.

Across a kink the next estimate is far larger or zero, and a step that trusts it would
only be shorter. With 2, logistic risks take half the gradients of plain cuts and hinge
risks as many as before.
"""
STRAIGHT = 1e-3
"""A curvature, compared to that of the squared distance, which makes no difference."""

Pulls: TypeAlias = Mapping[str, AbstractPacked]
"""The gradients of a look, by the constraint's name."""


class Bend:
    """How much ``sum_j mu_j c_j`` curves along the last step, if that is consistent."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._last: tuple[Mapping[str, float], Pulls, AbstractPacked] | None = None
        self._seen: list[float] = []

    def update(
        self,
        values: Mapping[str, float],
        pulls: Pulls,
        at: AbstractPacked,
        mu: Mapping[str, float],
    ) -> None:
        """Compare a look at displacement ``at`` with what the one before predicted."""
        if self._last is not None:
            before, slopes, start = self._last
            s = at.minus(start)
            excess = sum(
                weight * (values[j] - before[j] - slopes[j].dot(s))
                for j, weight in mu.items()
                if j in slopes and weight > 0
            )
            moved = s.norm()
            if moved > 0:
                self._seen.append(max(0.0, 2.0 * excess / (moved * moved)))
        self._last = values, pulls, at

    @property
    def curvature(self) -> float:
        """The last estimate; 0 if it disagrees with the one before, or is nothing."""
        recent = self._seen[-2:]
        agreed = bool(recent) and max(recent) <= AGREE * min(recent)
        return recent[-1] if agreed and recent[-1] > STRAIGHT else 0.0
