"""The cuts that a projection keeps, and how they come, change and go."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from oneproj.projection.convex.cut_table import CutTable
from oneproj.projection.convex.weak_duality import summed
from oneproj.schema import check_names
from oneproj.vectors.arithmetic import Array, Vector, rounding_unit
from oneproj.vectors.space import AbstractPacked
from oneproj.vectors.storage import (
    AbstractPile,
    pile_of,
    pile_of_state,
)

SURE, UNITS = 1e-6, 1e3
"""Cuts contradict each other if what they add up to is beyond this share of its terms,
and beyond this many rounding units of the gradients and of where they were taken.

Their normals cancel to the root of the rounding, so less proves only that the feasible
points are far away compared to the cuts.
"""

STALE = 20
"""Solutions in a row in which a cut did not bind, to leave it behind with its origin.
With 20, hinge risks take a third of the gradients of a cold start; more cuts cost more
time than the gradients that they save."""


class KeptCuts:
    """Halfspaces ``<g, d> <= h``, at most ``capacity`` of them.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> kept, d = KeptCuts(capacity=10), Short(np.zeros(1), eps=2**-52)
        >>> kept.add("a", 2.0, Short(np.array([2.0]), d.eps), d)     # 2 + 2 d <= 0
        >>> kept._cuts.offset.tolist()
        [-1.0]
    """

    def __init__(self, capacity: int) -> None:
        """Start without cuts."""
        self.capacity = capacity
        self._cuts = CutTable()
        self._normals: AbstractPile[Any] | None = None
        self._sure = SURE
        self.excludes_all = False
        """Whether a flat linearisation, by itself, excludes every point."""

    def add(
        self,
        name: str,
        value: float,
        gradient: AbstractPacked,
        at: AbstractPacked,
        center: AbstractPacked | None = None,
        *,
        far: float | None = None,
        rounding: float = 0.0,
    ) -> None:
        """Add ``value + <gradient, d - at> <= 0``; a center other than ``at`` is given.

        The center is the displacement from which the next step is made; ``far`` is the
        length of ``at``, where that is known; ``rounding`` is one unit of that of the
        value.
        """
        self.reserve(1)
        here = gradient.dot(at)
        level = here if center is None else gradient.dot(center)
        blur = UNITS * gradient.eps * (at.norm() if far is None else far)
        units = UNITS * rounding
        self._append(
            gradient, level, here - value, {name: 1.0}, 0.0, blur=blur, rounding=units
        )

    def shift(self, move: AbstractPacked) -> None:
        """Measure displacements from another origin, ``move`` away from the last.

        ``<g, d + move> <= h`` is the same halfspace: what was valid stays valid. The
        cuts that have long been idle are left behind.
        """
        for i in reversed(range(self._cuts.count)):
            if self._cuts.idle[i] >= STALE:
                self._remove(i)
        if self._normals is not None:
            along = self._normals.products(move) / self._cuts.length
            self._cuts.offset[:] -= along
            self._cuts.level[:] -= along

    def state(self) -> dict[str, Any] | None:
        """The cuts as plain data; None if there is none, or one excludes all points."""
        if self._normals is None or self.excludes_all:
            return None
        return {"table": self._cuts.state(), "normals": self._normals.state()}

    def load_state(
        self, state: Mapping[str, Any], like: Vector, names: Collection[str]
    ) -> None:
        """Go on with the cuts of such a state, of constraints with these names."""
        check_names(state, "cuts", ("table", "normals"))
        self._cuts = CutTable.of_state(state["table"], names, self.capacity)
        self._normals = pile_of_state(state["normals"], like, self._cuts.count)
        self._sure = max(SURE, UNITS * rounding_unit(like))

    def forget(self) -> None:
        """Drop the older half of the cuts."""
        for i in reversed(range(self._cuts.count // 2)):
            self._remove(i)

    def reserve(self, count: int) -> None:
        """Make room for new cuts: drop the idle; if none is, mix two into one."""
        while self._cuts.count > max(1, self.capacity - count):
            longest = int(np.argmax(self._cuts.idle))
            if self._cuts.idle[longest] > 0:
                self._remove(longest)
            else:
                self._mix()

    def _append(
        self,
        normal: AbstractPacked,
        level: float,
        offset: float,
        weights: Mapping[str, float],
        z: float,
        *,
        blur: float = 0.0,
        rounding: float = 0.0,
    ) -> None:
        """Keep ``<normal, d> <= offset``, scaled to a unit normal with dual value z.

        The blur is that of points, and the rounding that of values.
        """
        self._sure = max(self._sure, UNITS * normal.eps)
        if self._normals is None:
            self._normals = pile_of(normal)
        cuts, products = self._cuts, self._normals.append(normal)
        length = math.sqrt(products[-1])
        if length == 0.0:
            # A flat linearisation excludes every point, or none.
            self._normals.remove(cuts.count)
            self.excludes_all |= offset < 0
            return
        blur += rounding / length
        facts = offset / length, level / length, length, blur, 0.0, z * length
        worth = {name: weight / length for name, weight in weights.items()}
        cuts.append(facts, worth, products[:-1] / (length * cuts.length))

    def _remove(self, i: int) -> None:
        self._cuts.remove(i)
        if self._normals is not None:
            self._normals.remove(i)

    def _mix(self) -> None:
        """Replace the two oldest cuts by their mean under z.

        With these weights the present solution stays optimal: only what the two said
        apart is forgotten.
        """
        self._add_mean(np.where(np.arange(self._cuts.count) < 2, self._cuts.z, 0.0))  # noqa: PLR2004
        self._remove(1)
        self._remove(0)

    def _add_mean(self, z: Array) -> None:
        """Add the mean of cuts under z, which is a cut.

        It is short where the normals cancel: what is left is blurred, and rounded.
        """
        cuts, normals, weight = self._cuts, self._normals, float(z.sum())
        if normals is None or not weight > 0:
            return
        share = z / weight
        mixed, offset = summed(normals, cuts, share), float(share @ cuts.offset)
        rounded = UNITS * mixed.eps * abs(offset)
        blur = share @ cuts.blur + rounded / (mixed.norm() or math.inf)
        worth = dict(zip(cuts.names, cuts.worth.dot(share).tolist(), strict=True))
        level = float(share @ cuts.level)
        self._append(mixed, level, offset, worth, weight, rounding=float(blur))
