"""Cuts and the least-distance problem over their intersection.

A cut is a halfspace ``<g, d> <= h`` that contains every feasible displacement d. The
nearest displacement that satisfies all cuts,

    ``min (1/2)|d|^2  subject to  <g_i, d> <= h_i``,

is found in the dual, ``min (1/2) z'Pz + h'z`` over ``z >= 0`` with P the Gram matrix of
the normals: ``d = -sum_i z_i g_i``. Parameter-size work is one inner product per cut
when a cut arrives, and one combination per solution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from oneproj.arrays import Array
from oneproj.projection.convex.active_set import settled_minimiser
from oneproj.projection.convex.cut_table import CutTable
from oneproj.projection.convex.prediction import Prediction
from oneproj.projection.vectors.packed import AbstractPacked
from oneproj.projection.vectors.piles import AbstractPile, pile_of
from oneproj.simplex_qp import EPSILON, QpSolution, solve_nonnegative_qp

SURE, UNITS = 1e-6, 1e3
"""Cuts contradict each other if what they add up to is beyond this share of its terms,
and beyond this many rounding units of the gradients and of where they were taken.

Their normals cancel to the root of the rounding, so less proves only that the feasible
points are far away compared to the cuts.
"""

ROUNDED = 4.0
"""By so many of these units a cut is loosened for the bound on the distance."""

BLURRED = 1e-6
"""The share of a solution's square that rounding may have."""

STALE = 20
"""Solutions in a row in which a cut did not bind, to leave it behind with its origin.
With 20, hinge risks take a third of the gradients of a cold start; more cuts cost more
time than the gradients that they save."""


class Bundle:
    """The cuts that are kept, at most ``capacity`` of them.

    Example:
        >>> from oneproj.projection.vectors.packed import Short
        >>> bundle, d = Bundle(capacity=10), Short(np.zeros(1), eps=2**-52)
        >>> bundle.add("a", 2.0, Short(np.array([2.0]), d.eps), d)     # 2 + 2 d <= 0
        >>> bundle.solve({"a": 0.0}), bundle.displacement(d).numbers
        (True, array([-1.]))
        >>> bundle.multipliers()
        {'a': 0.5}
    """

    def __init__(self, capacity: int) -> None:
        """Start without cuts."""
        self._capacity = capacity
        self._cuts = CutTable()
        self._normals: AbstractPile[Any] | None = None
        self._tight: Array = np.zeros(0)
        self._sure = SURE
        self._excludes_all = False
        self.contradicts = False
        """Whether the cuts, at the last solution, prove that no point is feasible."""

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

    def forget(self) -> None:
        """Drop the older half of the cuts."""
        for i in reversed(range(self._cuts.count // 2)):
            self._remove(i)

    def reserve(self, count: int) -> None:
        """Make room for new cuts: drop the idle; if none is, mix two into one."""
        while self._cuts.count > max(1, self._capacity - count):
            longest = int(np.argmax(self._cuts.idle))
            if self._cuts.idle[longest] > 0:
                self._remove(longest)
            else:
                self._mix()

    def solve(self, margins: Mapping[str, float]) -> bool:
        """Solve over the cuts, each tightened by its constraint's margin.

        Returns:
            Whether some displacement satisfies all tightened cuts, and rounding does
            not decide which. If none does, and if that is beyond rounding,
            ``contradicts``: no point is feasible by the margins.
        """
        if self._excludes_all:
            self.contradicts = True
            return False
        cuts, tight = self._cuts, self._tightened(margins)
        self._tight = tight
        quick = self._quick_minimiser(tight)
        found = self._minimiser(tight) if quick is None else QpSolution(quick)
        cuts.z[:] = found.z
        cuts.idle[:] += 1.0
        cuts.idle[found.z > 0] = 0.0
        ray = found.ray
        if ray is None:
            return quick is not None or not self._is_noise(found.z)
        unsure = self._sure * (np.abs(tight) @ ray) + cuts.blur @ ray
        self.contradicts = bool(-tight @ ray > unsure)
        return False

    def displacement(self, like: AbstractPacked) -> AbstractPacked:
        """``d = -sum_i z_i g_i``, packed ``like`` another."""
        if self._normals is None or not self._cuts.count:
            return like.times(0.0)
        return self._combined(self._normals, -self._cuts.z)

    def step(self, center: AbstractPacked, curvature: float) -> AbstractPacked:
        """The nearest point if the constraints curve: a displacement to look at.

        Minimises ``|d|^2 + curvature |d - center|^2`` over the cuts as they were
        tightened for the last solution, that is, the distance from ``share * center``;
        without curvature that is the solution. The displacement is the next center.

        Args:
            center: Where the last cuts were taken.
            curvature: Of the multipliers' sum of constraints.
        """
        cuts, share = self._cuts, curvature / (1.0 + curvature)
        if self._normals is None or not cuts.count:
            return center.times(share)
        z, levels = cuts.z, share * cuts.level
        if share > 0:
            z = self._best(self._tight - levels)
        cuts.level[:] = levels - cuts.gram.dot(z)
        there = self._combined(self._normals, -z)
        if share > 0:
            there.add(center, share)
        return there

    def predictions(
        self, values: Mapping[str, float], at: AbstractPacked | None = None
    ) -> list[Prediction]:
        """What cuts of single constraints say there, or at the center, beyond values.

        At the center that is known, but for what cancels if multipliers are large.
        """
        cuts = self._cuts
        if self._normals is None or not cuts.count:
            return []
        levels = cuts.level if at is None else self._normals.products(at) / cuts.length
        limits = np.array([*(values[name] for name in cuts.names), math.inf])
        more = (levels - cuts.offset) * cuts.length > limits[cuts.owner]
        return [
            Prediction.of(cuts.names[j], levels[i], cuts.offset[i], cuts.length[i])
            for i, j in zip(np.flatnonzero(more), cuts.owner[more], strict=True)
        ]

    def multipliers(self) -> dict[str, float]:
        """mu_j, the weight of each constraint's gradients in ``-d``."""
        total = self._cuts.worth.dot(self._cuts.z)
        return dict(zip(self._cuts.names, total.tolist(), strict=True))

    def length(self) -> float:
        """``|d|``, from the Gram matrix."""
        z = self._cuts.z
        return math.sqrt(max(0.0, float(z.dot(self._cuts.gram).dot(z))))

    def lower_bound(self) -> float:
        """A distance below which no feasible point lies, by weak duality.

        Proven for convex constraints by the untightened cuts: every z >= 0 gives one.
        Each is loosened by what rounding may have done to it, and z is best for those.
        """
        h = self._cuts.offset + ROUNDED / UNITS * self._cuts.blur
        z = self._best(h)
        value = -float(0.5 * z @ self._cuts.gram @ z + h @ z)
        return math.sqrt(max(0.0, 2.0 * value))

    def _is_noise(self, z: Array) -> bool:
        """Whether so much cancels in ``sum_i z_i g_i`` that rounding decides."""
        total: float = sum(z.tolist())
        return EPSILON * total**2 > BLURRED * self.length() ** 2

    def _tightened(self, margins: Mapping[str, float]) -> Array:
        cuts, wanted = self._cuts, [margins[name] for name in self._cuts.names]
        return np.subtract(cuts.offset, np.dot(wanted, cuts.worth))

    def _best(self, offsets: Array) -> Array:
        quick = self._quick_minimiser(offsets)
        return self._minimiser(offsets).z if quick is None else quick

    def _quick_minimiser(self, offsets: Array) -> Array | None:
        # What bound at the last solution, and what that solution violates.
        gram, z = self._cuts.gram, self._cuts.z
        active = (z > 0) | (offsets + gram.dot(z) < 0)
        return settled_minimiser(gram, -offsets, active)

    def _minimiser(self, offsets: Array) -> QpSolution:
        return solve_nonnegative_qp(self._cuts.gram, offsets, self._cuts.z)

    def _append(
        self,
        normal: AbstractPacked,
        level: float,
        offset: float,
        weights: Mapping[str, float],
        z: float,
        *,
        blur: float,
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
            self._excludes_all |= offset < 0
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

        The mean of two cuts is a cut, and with these weights the present solution
        stays optimal: only what the two said apart is forgotten.
        """
        if self._normals is None:
            return
        cuts = self._cuts
        z = np.where(np.arange(cuts.count) < 2, cuts.z, 0.0)  # noqa: PLR2004
        mixed = self._combined(self._normals, z)
        weights = dict(zip(cuts.names, cuts.worth.dot(z).tolist(), strict=True))
        level, offset = float(z @ cuts.level), float(z @ cuts.offset)
        length = mixed.norm()  # short where the normals cancel: what is left is blurred
        blur = float(z @ cuts.blur) / length if length > 0 else 0.0
        self._remove(1)
        self._remove(0)
        self._append(mixed, level, offset, weights, 1.0, blur=blur)

    def _combined(self, normals: AbstractPile[Any], weights: Array) -> AbstractPacked:
        """A sum of unit normals."""
        found: AbstractPacked = normals.combination(weights / self._cuts.length)
        return found
