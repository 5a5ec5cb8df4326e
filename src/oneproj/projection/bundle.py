"""Cuts and the least-distance problem over their intersection.

A cut is a halfspace ``<g, d> <= h`` that contains every feasible displacement d. The
nearest displacement that satisfies all cuts,

    ``min (1/2)|d|^2  subject to  <g_i, d> <= h_i``,

is found in the dual, ``min (1/2) z'Pz + h'z`` over ``z >= 0`` with P the Gram matrix of
the normals: ``d = -sum_i z_i g_i``. Parameter-size work is one inner product per cut
when a cut arrives, and one combination per solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from oneproj.parameters import Vector, combine, dot, norm
from oneproj.simplex_qp import Array, solve_simplex_qp

SURE = 1e-6
"""Cuts contradict each other if what they add up to is beyond this share of its terms.

Their normals cancel to the root of the rounding, so less proves only that the feasible
points are far away compared to the cuts.
"""


@dataclass
class Cut:
    """A halfspace with a unit normal, from a constraint or a mixture of cuts."""

    normal: list[Tensor]
    offset: float
    weights: dict[str, float]
    """What a unit of z is worth in multipliers, by the constraint's name."""
    idle: int = 0
    """In how many solutions in a row it did not bind."""


class Bundle:
    """The cuts that are kept, at most ``capacity`` of them.

    Example:
        >>> import torch
        >>> bundle = Bundle(capacity=10)
        >>> d = [torch.zeros(1)]
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
        self._gram: Array = np.zeros((0, 0))
        self._z: Array = np.zeros(0)
        self.contradicts = False
        """Whether the cuts, at the last solution, prove that no point is feasible."""

    def add(self, name: str, value: float, gradient: Vector, at: Vector) -> None:
        """Add ``value + <gradient, d - at> <= 0``."""
        steepness = norm(gradient)
        if steepness == 0.0:
            return  # a flat linearisation excludes nothing that can be moved to
        unit = combine([1.0 / steepness], [gradient])
        offset = dot(unit, at) - value / steepness
        self.reserve(1)
        self._append(Cut(unit, offset, {name: 1.0 / steepness}), 0.0)

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
        n = len(self._cuts)
        tight = np.array(
            [
                cut.offset - sum(w * margins[name] for name, w in cut.weights.items())
                for cut in self._cuts
            ]
        )
        # The solver has a simplex; an entry of its own, without cost, fulfils it.
        P = np.zeros((n + 1, n + 1))
        P[:n, :n] = self._gram
        alone = np.arange(n + 1) == n
        start = np.append(self._z, 1.0)
        found = solve_simplex_qp(P, np.append(tight, 0.0), alone, start)
        self._z = found.z[:n]
        for cut, z in zip(self._cuts, self._z, strict=True):
            cut.idle = 0 if z > 0 else cut.idle + 1
        if found.ray is None:
            return True
        ray = found.ray[:n]
        self.contradicts = bool(-tight @ ray > SURE * (np.abs(tight) @ ray))
        return False

    def displacement(self, like: Vector) -> list[Tensor]:
        """``d = -sum_i z_i g_i``, shaped ``like`` the parameters."""
        used = np.flatnonzero(self._z)
        if not len(used):
            return combine([0.0], [like])
        return combine(
            [-float(self._z[i]) for i in used], [self._cuts[i].normal for i in used]
        )

    def multipliers(self) -> dict[str, float]:
        """mu_j, the weight of each constraint's gradients in ``-d``."""
        total: dict[str, float] = {}
        for cut, z in zip(self._cuts, self._z, strict=True):
            for name, weight in cut.weights.items():
                total[name] = total.get(name, 0.0) + float(z) * weight
        return total

    def lower_bound(self) -> float:
        """A distance below which no feasible point lies, by weak duality.

        Proven for convex constraints by the untightened cuts: every z >= 0 gives one.
        """
        z, h = self._z, np.array([cut.offset for cut in self._cuts])
        value = -float(0.5 * z @ self._gram @ z + h @ z)
        return float(np.sqrt(max(0.0, 2.0 * value)))

    def _append(self, cut: Cut, z: float) -> None:
        row = np.array([dot(cut.normal, kept.normal) for kept in self._cuts])
        self._gram = np.block([[self._gram, row[:, None]], [row[None, :], np.eye(1)]])
        self._cuts.append(cut)
        self._z = np.append(self._z, z)

    def _remove(self, i: int) -> tuple[Cut, float]:
        z = float(self._z[i])
        self._gram = np.delete(np.delete(self._gram, i, 0), i, 1)
        self._z = np.delete(self._z, i)
        return self._cuts.pop(i), z

    def _mix(self) -> None:
        """Replace the two oldest cuts by their mean under z.

        The mean of two cuts is a cut, and with these weights the present solution
        stays optimal: only what the two said apart is forgotten.
        """
        (b, z_b), (a, z_a) = self._remove(1), self._remove(0)
        mixed = combine([z_a, z_b], [a.normal, b.normal])
        length = norm(mixed)
        if length == 0.0:
            return  # opposite normals: together they say nothing
        weights = {
            name: (z_a * a.weights.get(name, 0.0) + z_b * b.weights.get(name, 0.0))
            / length
            for name in a.weights | b.weights
        }
        offset = (z_a * a.offset + z_b * b.offset) / length
        self._append(Cut(combine([1.0 / length], [mixed]), offset, weights), length)
