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

import numpy as np

from oneproj.projection.convex.active_set import settled_minimiser
from oneproj.projection.convex.kept_cuts import UNITS, KeptCuts
from oneproj.projection.convex.refutation import Prediction
from oneproj.projection.convex.weak_duality import proven_distance, summed
from oneproj.vectors.arithmetic import Array
from oneproj.vectors.qp import EPSILON, QpSolution, solve_nonnegative_qp
from oneproj.vectors.space import AbstractPacked

ROUNDED = 4.0
"""By so many rounding units a cut is loosened for the bound on the distance."""

HORIZON, NOWHERE = 1e3, 1e9
"""Times the size of the parameters. Cuts that cancel have to exclude all that is within
the first, for more they cannot, and those that nearly do all that is within the second.
"""

BLURRED = 1e-6
"""The share of a solution's square that rounding may have."""


class Bundle(KeptCuts):
    """The cuts that are kept, at most ``capacity`` of them.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> bundle, d = Bundle(capacity=10), Short(np.zeros(1), eps=2**-52)
        >>> bundle.add("a", 2.0, Short(np.array([2.0]), d.eps), d)     # 2 + 2 d <= 0
        >>> bundle.solve({"a": 0.0}), bundle.displacement(d).numbers
        (True, array([-1.]))
        >>> bundle.multipliers()
        {'a': 0.5}
    """

    def __init__(self, capacity: int) -> None:
        """Start without cuts."""
        super().__init__(capacity)
        self._tight: Array = np.zeros(0)
        self.contradicts = False
        """Whether the cuts, at the last solution, contradict each other."""
        self._ray: Array | None = None
        """Weights with which they do."""
        self.leads_far = False
        """Whether that solution is by what is left of cuts that nearly cancel."""

    def solve(self, margins: Mapping[str, float], *, far: bool = True) -> bool:
        """Solve over the cuts, each tightened by its constraint's margin.

        Args:
            margins: By the constraint's name.
            far: Whether cuts that nearly cancel may lead far away; if not, they do
                cancel.

        Returns:
            Whether some displacement satisfies all tightened cuts, and rounding does
            not decide which. If none does, and if that is beyond rounding, they
            are in contradiction.
        """
        self.leads_far = False
        self._ray = None
        if self.excludes_all:
            self.contradicts = True
            return False
        self._cuts.idle[:] += 1.0
        found, settled = self._settle(margins)
        ray = found.ray
        self.contradicts = not settled and ray is not None and self._exclude(ray)
        self._ray = ray if self.contradicts else None
        if settled or not (far and self._keep_left(found)):
            return settled
        self.leads_far = self._settle(margins)[1]
        if self.leads_far:
            self.contradicts, self._ray = False, None
        else:
            self.retract()
            self._cuts.z[:] = found.z
        return self.leads_far

    def _settle(self, margins: Mapping[str, float]) -> tuple[QpSolution, bool]:
        """Solve once, and whether that is a solution that rounding does not decide."""
        self._tight = self._tightened(margins)
        found, quick = self._minimiser(self._tight)
        self._cuts.z[:] = found.z
        self._cuts.idle[found.z > 0] = 0.0
        return found, quick or (found.ray is None and not self._is_noise())

    def retract(self) -> None:
        """Take back the last cut: that of a solution that leads far."""
        self._remove(self._cuts.count - 1)
        self._tight = self._tight[:-1]
        self.leads_far = False

    def displacement(self, like: AbstractPacked) -> AbstractPacked:
        """``d = -sum_i z_i g_i``, packed ``like`` another."""
        if self._normals is None or not self._cuts.count:
            return like.times(0.0)
        return summed(self._normals, self._cuts, -self._cuts.z)

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
            z = self._minimiser(self._tight - levels)[0].z
        cuts.level[:] = levels - cuts.gram.dot(z)
        there = summed(self._normals, cuts, -z)
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
        cuts, normals = self._cuts, self._normals
        if normals is None or not cuts.count:
            return 0.0
        h = cuts.offset + ROUNDED / UNITS * cuts.blur
        found, _ = self._minimiser(h)
        tried = (found.z,) if found.ray is None else (found.z, found.ray)
        return max(proven_distance(normals, cuts, h, z) for z in tried)

    def excludes(self, size: float) -> bool:
        """Whether the contradiction proves that no point is feasible.

        The Gram matrix cannot tell normals that cancel from those that nearly do, like
        the sides of an ellipsoid with axes of very different lengths: their weighted
        sum tells. If it is more than rounding, what they prove is a distance.
        """
        normals, ray = self._normals, self._ray
        if normals is None or ray is None:
            return self.contradicts  # one that excludes every point by itself
        left, total = summed(normals, self._cuts, ray), float(ray.sum())
        if left.norm() > UNITS * left.sum_eps * total:
            return self.lower_bound() > NOWHERE * size
        gain, unit = -float(self._tight @ ray), ROUNDED * left.eps * total
        return gain > HORIZON * size * unit

    def _is_noise(self) -> bool:
        """Whether so much cancels in ``sum_i z_i g_i`` that rounding decides."""
        total: float = sum(self._cuts.z.tolist())
        return EPSILON * total**2 > BLURRED * self.length() ** 2

    def _exclude(self, ray: Array) -> bool:
        """Whether cuts that cancel exclude every point, beyond rounding."""
        unsure = self._sure * (np.abs(self._tight) @ ray) + self._cuts.blur @ ray
        return bool(-self._tight @ ray > unsure)

    def _keep_left(self, found: QpSolution) -> bool:
        """Add the mean of cuts that nearly cancel; False if it is nothing but rounding.

        Of what is left of their normals the Gram matrix has only the square.
        """
        cuts, normals, z = self._cuts, self._normals, found.z
        if normals is None or (found.ray is not None and not self.contradicts):
            return False
        weights = z if found.ray is None else found.ray
        left = summed(normals, cuts, weights)
        if left.norm() <= UNITS * left.sum_eps * float(weights.sum()):
            return False
        if found.ray is not None:
            z = -float(self._tight @ weights) / left.dot(left) * weights
        cuts.z[:] = 0.0
        self._add_mean(z)
        return True

    def _tightened(self, margins: Mapping[str, float]) -> Array:
        cuts, wanted = self._cuts, [margins[name] for name in self._cuts.names]
        return np.subtract(cuts.offset, np.dot(wanted, cuts.worth))

    def _minimiser(self, offsets: Array) -> tuple[QpSolution, bool]:
        """The dual solution, and whether it was quick; that is then beyond rounding."""
        gram, z = self._cuts.gram, self._cuts.z
        # What bound at the last solution, and what that solution violates.
        active = (z > 0) | (offsets + gram.dot(z) < 0)
        quick = settled_minimiser(gram, -offsets, active)
        if quick is not None:
            return QpSolution(quick), True
        return solve_nonnegative_qp(gram, offsets, z), False
