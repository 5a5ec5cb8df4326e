"""Where to evaluate convex constraints that curve next: a step with their curvature.

Full-memory quasi-Newton in the coordinates of the bundle's basis. Every point of the
search is the start plus a combination of gradients, so a dense matrix in an orthonormal
basis of these is one on all parameters. Each constraint has a matrix C_j of its own:
the symmetric rank-one update (SR1), which keeps every secant of a quadratic function,
of the curvature along the first step times the identity. A step solves

    ``min |v|^2 / 2  s.t.  c_j + <g_j, v - y> + (v - y)'C_j(v - y) / 2 <= -margin_j``

and all cuts, by a few quadratic programs with the curvature in the Lagrangian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from oneproj.projection.bundle import Bundle, padded
from oneproj.projection.tolerances import TOLERANCES
from oneproj.vectors.arithmetic import Array
from oneproj.vectors.qp import solve_nonnegative_qp


@dataclass
class Center:
    """Values and gradients at a point, in coordinates."""

    y: Array
    values: Mapping[str, float]
    gradients: dict[str, Array]


class CurvatureModel:
    """Learns how constraints curve, and proposes where to evaluate them.

    Args:
        dense: Whether to keep a matrix for each constraint. If not, only the curvature
            along the last step is known.
    """

    def __init__(self, *, dense: bool = True) -> None:
        """Know nothing."""
        self._dense = dense
        self._matrices: dict[str, Array] = {}
        self._first: dict[str, float] = {}
        """The curvature along the first step, that of directions not seen yet."""
        self._scales: dict[str, float] = {}
        self._center: Center | None = None
        self._count = 0
        self._weights: dict[str, float] = {}
        self._error = self._bent = 0.0
        self._recent: list[float] = []

    @property
    def is_trusted(self) -> bool:
        """Whether the curvature predicted the latest values.

        At the kinks of a maximum it does not, and the nearest point of the cuts is the
        better next point.
        """
        return self._is_long and self._error <= TOLERANCES.trusted * self._bent

    @property
    def _is_long(self) -> bool:
        return self._dense and self._count > TOLERANCES.long_search

    @property
    def along_step(self) -> float:
        """The Lagrangian's curvature along the last step; 0 unless the last two agree.

        Across a kink the next estimate is far larger or zero. A long search has better
        than that, but for models whose matrices are not kept.
        """
        if self._is_long:
            return 0.0
        recent = self._recent[-2:]
        agreed = bool(recent) and max(recent) <= TOLERANCES.agree * min(recent)
        return recent[-1] if agreed else 0.0

    def update(
        self, point: Center, moved: float, multipliers: Mapping[str, float]
    ) -> None:
        """Learn from the values and gradients at a point.

        Args:
            point: In the present basis.
            moved: The length of the step there, also of its part outside of the basis.
            multipliers: Of the cuts' solution; they say which constraints matter.
        """
        self._count += 1
        self._grow(len(point.y))
        for name, g in point.gradients.items():
            self._scales.setdefault(name, _norm(g) or 1.0)
        last, self._center = self._center, point
        if last is None:
            return
        self._judge(last, point, moved, multipliers)
        for name, g in point.gradients.items() if self._dense else ():
            if name in last.gradients:
                self._learn(name, point.y - last.y, g - last.gradients[name])

    def points(self) -> list[Array]:
        """Return the points whose coordinates must stay in the basis."""
        return [] if self._center is None else [self._center.y]

    def rotate(self, columns: Array) -> None:
        """Follow the basis to what these columns span."""
        self._grow(len(columns))
        turn = columns.T
        self._matrices = {n: turn @ C @ columns for n, C in self._matrices.items()}
        if self._center is not None:
            at = self._center
            rotated = {name: turn @ g for name, g in at.gradients.items()}
            self._center = Center(turn @ at.y, at.values, rotated)

    def step(self, bundle: Bundle, margins: Mapping[str, float]) -> Array | None:
        """Propose coordinates to evaluate; None if the model has no answer."""
        center = self._center
        if center is None or not center.gradients or not self._matrices:
            return None
        self._grow(len(bundle.basis))
        rows = np.argsort(bundle.idle, kind="stable")[: TOLERANCES.rows]
        cuts = (
            bundle.normals[rows],
            bundle.tightened(margins)[rows],
            bundle.weights[rows],
        )
        weights, bends = dict(self._weights), dict.fromkeys(center.gradients, 0.0)
        found: Array | None = None
        start: Array | None = None
        for _ in range(TOLERANCES.rounds):
            own = _center_rows(center, margins, bends)
            normals, offsets = np.vstack([own[0], cuts[0]]), np.append(own[1], cuts[1])
            total = self._lagrangian(weights, len(center.y))
            planned = _plan(normals, offsets, center.y, total, start)
            if planned is None:
                break
            found, z = planned
            start = z
            far = max(sum(self._weights.values()), _norm(center.y), _norm(found))
            z, m = np.minimum(z, TOLERANCES.growth * far), len(bends)
            new = dict(zip(bundle.names, (z[m:] @ cuts[2]).tolist(), strict=True))
            for name, weight in zip(bends, z[:m].tolist(), strict=True):
                length = _norm(center.gradients[name]) or 1.0
                new[name] = new.get(name, 0.0) + weight / length
            new = {n: weight * self._scales.get(n, 1.0) for n, weight in new.items()}
            change = sum(abs(new[n] - weights.get(n, 0.0)) for n in new)
            weights, bends = new, self._bends(center, found - center.y)
            if change <= TOLERANCES.settled * sum(new.values()):
                break
        if found is None:
            return None
        self._weights = weights
        return found

    def _grow(self, size: int) -> None:
        """Add coordinates that the basis got meanwhile."""
        for name, C in self._matrices.items():
            grown = padded(C, (size, size))
            grown[range(len(C), size), range(len(C), size)] = self._first[name]
            self._matrices[name] = grown
        if self._center is not None:
            at = self._center
            longer = {name: padded(g, (size,)) for name, g in at.gradients.items()}
            self._center = Center(padded(at.y, (size,)), at.values, longer)

    def _learn(self, name: str, step: Array, change: Array) -> None:
        """Make a constraint's matrix agree with what its gradient did along a step."""
        square = float(step @ step)
        if not 0.0 < square < math.inf or not np.isfinite(change).all():
            return
        if name not in self._matrices:
            self._first[name] = max(0.0, float(step @ change) / square)
            self._matrices[name] = self._first[name] * np.eye(len(step))
        matrix = self._matrices[name]
        left = change - matrix @ step
        along = float(left @ step)
        if abs(along) > TOLERANCES.sr1_skip * _norm(left) * _norm(step):
            matrix += np.outer(left, left / along)

    def _judge(
        self,
        last: Center,
        point: Center,
        moved: float,
        multipliers: Mapping[str, float],
    ) -> None:
        """Compare values with what gradients and curvature at the last point say."""
        step, error, bent, excess = point.y - last.y, 0.0, 0.0, 0.0
        bends = self._bends(last, step)
        for name, g in last.gradients.items():
            weight = multipliers.get(name, 0.0)
            above = point.values[name] - last.values[name] - float(g @ step)
            excess += weight * above
            if name in self._matrices:
                error += weight * abs(above - bends[name])
                bent += weight * max(abs(above), abs(bends[name]))
        if error + bent > 0:
            size, kept = error + bent, TOLERANCES.memory
            self._error = kept * self._error + error / size
            self._bent = kept * self._bent + bent / size
        if moved > 0:
            self._recent.append(max(0.0, 2.0 * excess / (moved * moved)))

    def _bends(self, center: Center, step: Array) -> dict[str, float]:
        """Return what curvature adds along a step: at most half the linear change."""
        found = dict.fromkeys(center.gradients, 0.0)
        for name in found.keys() & self._matrices.keys():
            most = 0.5 * abs(float(center.gradients[name] @ step))
            bend = 0.5 * float(step @ self._matrices[name] @ step)
            found[name] = min(max(bend, -most), most)
        return found

    def _lagrangian(self, weights: Mapping[str, float], size: int) -> Array:
        total = np.zeros((size, size))
        for name, matrix in self._matrices.items():
            if weights.get(name, 0.0) > 0:
                total += weights[name] / self._scales[name] * matrix
        return total


def _center_rows(
    center: Center, margins: Mapping[str, float], bends: Mapping[str, float]
) -> tuple[Array, Array]:
    """Return ``normals @ v <= offsets`` of the centre, with curvature."""
    normals, offsets = [], []
    for name, g in center.gradients.items():
        length = _norm(g) or 1.0
        level = center.values[name] - float(g @ center.y)
        normals.append(g / length)
        offsets.append(-(level + margins[name] + bends[name]) / length)
    return np.array(normals), np.array(offsets)


def _plan(
    normals: Array, offsets: Array, y: Array, curvature: Array, start: Array | None
) -> tuple[Array, Array] | None:
    """Minimise ``|v|^2 + (v - y)'curvature (v - y)`` under ``normals @ v <= offsets``.

    Returns:
        The solution and its multipliers; None if there is no solution.
    """
    if not np.isfinite(curvature).all():
        return None
    solve = _solver(curvature + np.eye(len(y)))
    free = y - solve(y)
    turned = solve(normals.T)
    gram = normals @ turned
    gram, offsets = 0.5 * (gram + gram.T), offsets - normals @ free
    solved = solve_nonnegative_qp(gram, offsets, start)
    if solved.ray is not None:
        return None
    return free - turned @ solved.z, solved.z


def _solver(hessian: Array) -> Callable[[Array], Array]:
    """Return what solves with a matrix, made positive definite where it is not."""
    try:
        return partial(cho_solve, cho_factor(hessian))
    except LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        sizes = np.maximum(np.abs(values), TOLERANCES.least_curvature)

    def solve(right: Array) -> Array:
        found: Array = (vectors / sizes) @ (vectors.T @ right)
        return found

    return solve


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
