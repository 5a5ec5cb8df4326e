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

import numpy as np
import torch
from torch import Tensor

from oneproj.parameters import Vector, combine, dot, norm
from oneproj.projection.active_set import settled_minimiser
from oneproj.projection.cut import Cut, Prediction
from oneproj.projection.stack import Stack
from oneproj.simplex_qp import Array, QpSolution, solve_simplex_qp

SURE, UNITS = 1e-6, 1e3
"""Cuts contradict each other if what they add up to is beyond this share of its terms,
and beyond this many rounding units of the gradients and of where they were taken.

Their normals cancel to the root of the rounding, so less proves only that the feasible
points are far away compared to the cuts.
"""

ROUNDED = 4.0
"""By so many of these units a cut is loosened for the bound on the distance."""

STALE = 20
"""Solutions in a row in which a cut did not bind, to leave it behind with its origin.

With 20, hinge risks take a third of the gradients of a cold start; more cuts cost more
time than the gradients that they save.
"""


class Bundle:
    """The cuts that are kept, at most ``capacity`` of them.

    Example:
        >>> bundle, d = Bundle(capacity=10), [torch.zeros(1)]
        >>> bundle.add("a", 2.0, [torch.tensor([2.0])], d)   # 2 + 2 d <= 0
        >>> bundle.solve({"a": 0.0}), bundle.displacement(d)
        (True, [tensor([-1.])])
        >>> bundle.multipliers()
        {'a': 0.5}
    """

    def __init__(self, capacity: int) -> None:
        """Start without cuts."""
        self._capacity = capacity
        self._cuts: list[Cut] = []
        self._normals = Stack()
        self._gram: Array = np.zeros((0, 0))
        self._z: Array = np.zeros(0)
        self._sure = SURE
        self._excludes_all = False
        self.contradicts = False
        """Whether the cuts, at the last solution, prove that no point is feasible."""

    def add(
        self,
        name: str,
        value: float,
        gradient: Vector,
        at: Vector,
        center: Vector | None = None,
        *,
        far: float | None = None,
    ) -> None:
        """Add ``value + <gradient, d - at> <= 0``; a center other than ``at`` is given.

        The center is the displacement from which the next step is made; ``far`` is the
        length of ``at``, where that is known.
        """
        self.reserve(1)
        here = dot(gradient, at)
        level = here if center is None else dot(gradient, center)
        blur = UNITS * _rounding(gradient) * (norm(at) if far is None else far)
        self._append(gradient, level, here - value, {name: 1.0}, 0.0, blur=blur)

    def shift(self, move: Vector) -> None:
        """Measure displacements from another origin, ``move`` away from the last.

        ``<g, d + move> <= h`` is the same halfspace: what was valid stays valid. The
        cuts that have long been idle are left behind.
        """
        for i in reversed(range(len(self._cuts))):
            if self._cuts[i].idle >= STALE:
                self._remove(i)
        for cut, product in zip(self._cuts, self._normals.products(move), strict=True):
            cut.offset -= product / cut.length
            cut.level -= product / cut.length

    def drop(self, name: str) -> None:
        """Drop the cuts of one constraint, but for mixtures."""
        for i in reversed(range(len(self._cuts))):
            if self._cuts[i].weights.keys() == {name}:
                self._remove(i)

    def forget(self) -> None:
        """Drop the older half of the cuts."""
        for i in reversed(range(len(self._cuts) // 2)):
            self._remove(i)

    def reserve(self, count: int) -> None:
        """Make room for new cuts: drop the idle; if none is, mix two into one."""
        while len(self._cuts) > max(1, self._capacity - count):
            longest = int(np.argmax([cut.idle for cut in self._cuts]))
            if self._cuts[longest].idle > 0:
                self._remove(longest)
            else:
                self._mix()

    def solve(self, margins: dict[str, float]) -> bool:
        """Solve over the cuts, each tightened by its constraint's margin.

        Returns:
            Whether some displacement satisfies all tightened cuts. If not, and if that
            is beyond rounding, ``contradicts``: no point is feasible by the margins.
        """
        if self._excludes_all:
            self.contradicts = True
            return False
        tight = self._tightened(margins)
        found = self._minimise(tight)
        self._z = found.z
        for cut, z in zip(self._cuts, self._z, strict=True):
            cut.idle = 0 if z > 0 else cut.idle + 1
        if found.ray is None:
            return True
        ray = found.ray
        blur = np.array([cut.blur for cut in self._cuts])
        unsure = self._sure * (np.abs(tight) @ ray) + blur @ ray
        self.contradicts = bool(-tight @ ray > unsure)
        return False

    def displacement(self, like: Vector) -> list[Tensor]:
        """``d = -sum_i z_i g_i``, shaped ``like`` the parameters."""
        if not self._cuts:
            return combine([0.0], [like])
        return self._normals.combination(-self._z / self._lengths())

    def step(
        self, margins: dict[str, float], center: Vector, curvature: float
    ) -> list[Tensor]:
        """The nearest point if the constraints curve: a displacement to look at.

        Minimises ``|d|^2 + curvature |d - center|^2`` over the tightened cuts, that is,
        the distance from ``share * center``; without curvature that is the solution.
        The displacement is the next center.

        Args:
            margins: By the constraint's name, as for the solution before.
            center: Where the last cuts were taken.
            curvature: Of the multipliers' sum of constraints.
        """
        share, z = curvature / (1.0 + curvature), self._z
        levels = share * np.array([cut.level for cut in self._cuts])
        if share > 0:
            z = self._minimise(self._tightened(margins) - levels).z
        for cut, level in zip(self._cuts, levels - self._gram @ z, strict=True):
            cut.level = float(level)
        if not self._cuts:
            return combine([share], [center])
        there = self._normals.combination(-z / self._lengths(), wide=True)
        if share > 0:
            torch._foreach_add_(there, list(center), alpha=share)
        return there

    def predictions(self, at: Vector | None = None) -> list[Prediction]:
        """What the cuts of single constraints say there, or at the center.

        At the center that is known, but for what cancels if multipliers are large.
        """
        levels = [cut.level for cut in self._cuts]
        if at is not None:
            levels = (self._normals.products(at) / self._lengths()).tolist()
        return [
            Prediction.of(cut.weights, level, cut.offset)
            for cut, level in zip(self._cuts, levels, strict=True)
            if len(cut.weights) == 1
        ]

    def multipliers(self) -> dict[str, float]:
        """mu_j, the weight of each constraint's gradients in ``-d``."""
        total: dict[str, float] = {}
        for cut, z in zip(self._cuts, self._z, strict=True):
            for name, weight in cut.weights.items():
                total[name] = total.get(name, 0.0) + float(z) * weight
        return total

    def length(self) -> float:
        """``|d|``, from the Gram matrix."""
        return math.sqrt(max(0.0, float(self._z @ self._gram @ self._z)))

    def lower_bound(self) -> float:
        """A distance below which no feasible point lies, by weak duality.

        Proven for convex constraints by the untightened cuts: every z >= 0 gives one.
        Each is loosened by what rounding may have done to it, and z is best for those.
        """
        h = np.array([c.offset + ROUNDED / UNITS * c.blur for c in self._cuts])
        z = self._minimise(h).z
        value = -float(0.5 * z @ self._gram @ z + h @ z)
        return float(np.sqrt(max(0.0, 2.0 * value)))

    def _tightened(self, margins: dict[str, float]) -> Array:
        cuts = self._cuts
        worth = [sum(w * margins[n] for n, w in cut.weights.items()) for cut in cuts]
        return np.array([cut.offset for cut in cuts]) - worth

    def _minimise(self, offsets: Array) -> QpSolution:
        # What bound at the last solution, and what that solution violates.
        active = (self._z > 0) | (offsets + self._gram.dot(self._z) < 0)
        quick = settled_minimiser(self._gram, -offsets, active)
        if quick is not None:
            return QpSolution(quick)
        # The solver has a simplex; an entry of its own, without cost, fulfils it.
        n = len(offsets)
        P = np.zeros((n + 1, n + 1))
        P[:n, :n] = self._gram
        start = np.append(self._z, 1.0)
        found = solve_simplex_qp(
            P, np.append(offsets, 0.0), np.arange(n + 1) == n, start
        )
        return QpSolution(found.z[:-1], None if found.ray is None else found.ray[:-1])

    def _lengths(self) -> Array:
        return np.array([cut.length for cut in self._cuts])

    def _append(
        self,
        normal: Vector,
        level: float,
        offset: float,
        weights: dict[str, float],
        z: float,
        *,
        blur: float,
    ) -> None:
        """Keep ``<normal, d> <= offset``, scaled to a unit normal with dual value z."""
        self._sure = max(self._sure, UNITS * _rounding(normal))
        products = self._normals.append(normal)
        length = math.sqrt(products[-1])
        if length == 0.0:
            # A flat linearisation excludes every point, or none.
            self._normals.remove(len(self._cuts))
            self._excludes_all |= offset < 0
            return
        n = len(self._cuts)
        gram, grown = np.ones((n + 1, n + 1)), np.empty(n + 1)
        gram[:n, :n] = self._gram
        gram[:n, n] = gram[n, :n] = products[:-1] / (length * self._lengths())
        grown[:n], grown[n] = self._z, z * length
        self._gram, self._z = gram, grown
        worth = {name: weight / length for name, weight in weights.items()}
        self._cuts.append(Cut(offset / length, level / length, length, worth, blur))

    def _remove(self, i: int) -> tuple[Cut, float]:
        z = float(self._z[i])
        self._gram = np.delete(np.delete(self._gram, i, 0), i, 1)
        self._z = np.delete(self._z, i)
        self._normals.remove(i)
        return self._cuts.pop(i), z

    def _mix(self) -> None:
        """Replace the two oldest cuts by their mean under z.

        The mean of two cuts is a cut, and with these weights the present solution
        stays optimal: only what the two said apart is forgotten.
        """
        z = np.where(np.arange(len(self._cuts)) < 2, self._z, 0.0)  # noqa: PLR2004
        mixed = self._normals.combination(z / self._lengths())
        (b, z_b), (a, z_a) = self._remove(1), self._remove(0)
        weights = {
            name: z_a * a.weights.get(name, 0.0) + z_b * b.weights.get(name, 0.0)
            for name in a.weights | b.weights
        }
        level = z_a * a.level + z_b * b.level
        offset = z_a * a.offset + z_b * b.offset
        length = norm(mixed)  # short where the normals cancel: what is left is blurred
        blur = (z_a * a.blur + z_b * b.blur) / length if length > 0 else 0.0
        self._append(mixed, level, offset, weights, 1.0, blur=blur)


def _rounding(vector: Vector) -> float:
    return max(torch.finfo(t.dtype).eps for t in vector)
