"""The nearest point of a region that satisfies some cuts, by its dual.

``min (1/2)|d|^2  subject to  x_0 + d in S  and  <g_i, d> <= h_i``

for a product S of closed-form sets. Given multipliers z >= 0 of the cuts, the d that
minimises the Lagrangian takes one projection, ``x_0 + d = P_S(y)`` with
``y = x_0 - sum_i z_i g_i``, and that leaves the dual

    ``D(z) = (1/2)|d|^2 + z'D'(z),   D'(z)_i = <g_i, d> - h_i``,

which is concave, smooth, and of few numbers: one per cut. Any z gives a lower bound.
P_S(y) being nearest, ``<y - P_S(y), x - P_S(y)> <= 0`` for all x in S, and if x also
satisfies the cuts this says, with the Schwarz inequality,

    ``|x - x_0| >= |d| + z'D'(z) / |d|``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from oneproj.projection.convex.ascent import Height, ascend
from oneproj.projection.convex.bundle import ROUNDED
from oneproj.projection.convex.refutation import Prediction
from oneproj.projection.convex.region_cuts import Cut, bordered
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import Array, Vector, combine, dot, norm
from oneproj.vectors.qp import EPSILON
from oneproj.vectors.space import is_short

FAR = 1e6
"""If no common point is nearer than this many times the farthest of the cuts and sets,
the dual has no maximum, or rounding decides which."""
BEYOND, NEAR = 1e12, 1e2
"""Where multipliers of the first many times that lead, in units of it, is within the
second if the region ends there."""
PART = 0.1
"""The part of its margin by which a solution may miss a cut."""
ROUNDING = 16.0
"""The rounding units of a point by which it may miss it, whatever the margin."""


class RegionDual:
    """The cuts, at most ``capacity`` of them, and the multipliers of the last solution.

    Example:
        >>> from oneproj.sets.balls import Ball
        >>> w = torch.zeros(2, dtype=torch.float64)
        >>> region = Region([w], {"size": Ball(1.0).on(w)})
        >>> dual = RegionDual(region, [torch.tensor([3.0, 4.0])], capacity=10)
        >>> first = [torch.tensor([1.0, 0.0])]
        >>> dual.add("first", 3.0, first, [torch.zeros(2)])    # 3 + d_1 <= 0
        True
        >>> dual.solve({"first": 0.0}), round(dual.lower_bound(), 4)
        (True, 4.2426)
        >>> {name: round(mu, 6) for name, mu in dual.multipliers().items()}
        {'first': 3.0, 'size': 3.0}
    """

    def __init__(self, region: Region, origin: Vector, capacity: int) -> None:
        """Start without cuts."""
        self._region, self._capacity = region, capacity
        wide = is_short(origin)
        self._origin = [x.double() for x in origin] if wide else list(origin)
        self._cuts: list[Cut] = []
        self._rows = {
            name: origin[i].new_zeros((0, origin[i].numel()), dtype=torch.float64)
            for name, i in region.places.items()
        }
        self._gram: Array = np.zeros((0, 0))
        self._free = self._gram  # of the tensors that have no set
        self._z: Array = np.zeros(0)
        self._size = norm(origin)

    def add(self, name: str, value: float, gradient: Vector, at: Vector) -> bool:
        """Add ``value + <gradient, d - at> <= 0``; False if no d satisfies that."""
        length = norm(gradient)
        if length == 0.0:
            return value <= 0
        while len(self._cuts) >= self._capacity:
            self._mix()
        eps = max(torch.finfo(t.dtype).eps for t in gradient)
        offset = (dot(gradient, at) - value) / length
        blur = ROUNDED * eps * (self._size + norm(at) + abs(value) / length)
        self._append(Cut(gradient, offset, {name: 1.0}, blur), length)
        return True

    def solve(self, margins: Mapping[str, float]) -> bool:
        """Solve over the cuts, each tightened by its constraint's margin.

        Returns:
            Whether some point of the region satisfies all tightened cuts.
        """
        slack = self._slack(margins)
        self._z, found = self._maximise(self._offsets() - slack, slack, self._origin)
        return found

    def excludes_all(self) -> bool:
        """Whether the last multipliers prove that no point of the region is feasible.

        They lower ``sum_i z_i <g_i, d>`` over the region. Where that ends above what
        the cuts ask for, they exclude it all; where the region has no end, as in a
        wedge, they only say that the common points are far away.
        """
        offsets = self._offsets()
        z = self._z * (BEYOND / max(float(self._z.sum()), EPSILON))
        unit = self._farthest(offsets, self._origin)
        return self._height(z * unit, offsets, self._origin).length <= NEAR * unit

    def target(self) -> list[Tensor]:
        """y, whose nearest point of the region is the solution."""
        return self._target(self._z, self._origin)

    def step(
        self, margins: Mapping[str, float], center: Vector, curvature: float
    ) -> list[Tensor]:
        """As ``target``, of the nearest point if the constraints curve.

        It minimises ``|d|^2 + curvature |d - center|^2``, that is, the distance from
        ``share * center``.
        """
        share = curvature / (1.0 + curvature)
        levels = [share * dot(cut.normal, center) for cut in self._cuts]
        origin, slack = (
            combine([1.0, share], [self._origin, center]),
            self._slack(margins),
        )
        z, _ = self._maximise(self._offsets() - slack - levels, slack, origin)
        return self._target(z, origin)

    def predictions(self, at: Vector) -> list[Prediction]:
        """What the cuts of single constraints say there."""
        return [
            Prediction.of(name, dot(cut.normal, at), cut.offset, 1.0 / worth)
            for cut in self._cuts
            if len(cut.weights) == 1
            for name, worth in cut.weights.items()
        ]

    def multipliers(self) -> dict[str, float]:
        """mu_j of each constraint; of a set, the length of its part of ``y - P(y)``."""
        total: dict[str, float] = {}
        for cut, z in zip(self._cuts, self._z, strict=True):
            for name, weight in cut.weights.items():
                total[name] = total.get(name, 0.0) + float(z) * weight
        return total | {name: norm([n]) for name, n in self.normals().items()}

    def normals(self) -> dict[str, Tensor]:
        """``y - P(y)`` where there are sets: normals of them at the solution."""
        y = self.target()
        parts = self._region.parts(y)
        return {name: y[i] - parts[name] for name, i in self._region.places.items()}

    def lower_bound(self) -> float:
        """A distance below which no point of the region satisfies the cuts.

        Every z >= 0 proves one. The cuts are not tightened but loosened, by what
        rounding may have done to them.
        """
        offsets = self._offsets() + [cut.blur for cut in self._cuts]
        z, _ = self._maximise(offsets, np.zeros(len(offsets)), self._origin)
        tried = (z, self._z, np.zeros(len(z)))
        return max(0.0, *(self._height(w, offsets, self._origin).proof for w in tried))

    def lagrangian_bound(self) -> float:
        """As ``lower_bound``, by the last multipliers alone, and of any closed sets.

        P(y) minimises the Lagrangian over the region whether or not that is convex, so
        that ``(1/2)|d|^2 >= D(z)``. What it falls short of the distance by is the
        duality gap, which sets that are not convex may have.
        """
        offsets = self._offsets() + [cut.blur for cut in self._cuts]
        value = self._height(self._z, offsets, self._origin).value
        return math.sqrt(max(0.0, 2.0 * value))

    def _offsets(self) -> Array:
        return np.array([cut.offset for cut in self._cuts])

    def _slack(self, margins: Mapping[str, float]) -> Array:
        cuts = self._cuts
        return np.array(
            [sum(margins[n] * w for n, w in cut.weights.items()) for cut in cuts]
        )

    def _target(self, z: Array, origin: Vector) -> list[Tensor]:
        normals = [cut.normal for cut in self._cuts]
        return combine([1.0, *(-weight for weight in z.tolist())], [origin, *normals])

    def _maximise(
        self, offsets: Array, slack: Array, origin: Vector
    ) -> tuple[Array, bool]:
        """The best z for these offsets, and whether D has a maximum."""
        if not len(offsets):
            return offsets, True
        farthest = self._farthest(offsets, origin)
        rounding = ROUNDING * EPSILON * (self._size + farthest)
        z = ascend(
            lambda z: self._height(z, offsets, origin),
            self._gram,
            self._z,
            enough=np.maximum(PART * slack, rounding),
            far=FAR * farthest,
            unit=farthest + EPSILON**0.25 * self._size,
        )
        return z, self._height(z, offsets, origin).proof <= FAR * farthest

    def _farthest(self, offsets: Array, origin: Vector) -> float:
        """The distance of the farthest of the cuts and sets."""
        outside = self._height(np.zeros(len(offsets)), offsets, origin).proof
        return max(outside, float(np.abs(offsets).max()))

    def _height(self, z: Array, offsets: Array, origin: Vector) -> Height:
        pull = self._free.dot(z)
        square, slope = float(z @ pull), -pull - offsets
        for name, d in self._moves(z, origin).items():
            square += float(d @ d)
            slope += (self._rows[name] @ d).cpu().numpy()
        length, gain = math.sqrt(max(0.0, square)), float(z @ slope)
        # Every unit normal may be off by its rounding, which counts where they cancel.
        width = length + EPSILON * float(z.sum())
        proof = (length**2 + gain) / width if length > 0 else 0.0
        return Height(0.5 * square + gain, slope, proof, length)

    def _moves(self, z: Array, origin: Vector) -> dict[str, Tensor]:
        """Where there are sets, d at y = x_0 - sum_i z_i g_i, flat."""
        y, places = list(origin), self._region.places
        for name, i in places.items():
            weights = torch.from_numpy(z).to(self._rows[name])
            y[i] = origin[i] - (weights @ self._rows[name]).view_as(origin[i])
        parts = self._region.parts(y)
        return {name: (parts[name] - origin[i]).flatten() for name, i in places.items()}

    def _append(self, cut: Cut, length: float, z: float = 0.0) -> None:
        """Keep a cut whose normal has this length, made 1."""
        wide = is_short(self._origin)
        unit = [t.double() / length if wide else t / length for t in cut.normal]
        worth = {name: weight / length for name, weight in cut.weights.items()}
        self._z = np.append(self._z, z)
        self._cuts.append(Cut(unit, cut.offset, worth, cut.blur))
        held = set(self._region.places.values())
        free = [i for i in range(len(unit)) if i not in held]
        near = np.array(
            [
                dot([unit[i] for i in free], [c.normal[i] for i in free])
                for c in self._cuts
            ]
        )
        self._free = bordered(self._free, near)
        for name, i in self._region.places.items():
            row = unit[i].double().flatten()
            self._rows[name] = torch.cat([self._rows[name], row[None]])
            near = near + (self._rows[name] @ row).cpu().numpy()
        self._gram = bordered(self._gram, near)

    def _mix(self) -> None:
        """Drop a cut that does not bind; if all do, replace two by their mean under z.

        The mean of two cuts is a cut, and with these weights the solution stays.
        """
        idle = np.flatnonzero(self._z == 0)
        if len(idle):
            self._remove(int(idle[0]))
            return
        (a, z_a), (b, z_b) = self._remove(0), self._remove(0)
        normal = combine([z_a, z_b], [a.normal, b.normal])
        weights = {
            name: z_a * a.weights.get(name, 0.0) + z_b * b.weights.get(name, 0.0)
            for name in a.weights | b.weights
        }
        length = norm(normal)
        offset, blur = z_a * a.offset + z_b * b.offset, z_a * a.blur + z_b * b.blur
        if length > 0:
            mean = Cut(normal, offset / length, weights, blur / length)
            self._append(mean, length, length)

    def _remove(self, i: int) -> tuple[Cut, float]:
        z = float(self._z[i])
        self._gram, self._free = (
            np.delete(np.delete(P, i, 0), i, 1) for P in (self._gram, self._free)
        )
        self._z = np.delete(self._z, i)
        for name, rows in self._rows.items():
            self._rows[name] = torch.cat([rows[:i], rows[i + 1 :]])
        return self._cuts.pop(i), z
