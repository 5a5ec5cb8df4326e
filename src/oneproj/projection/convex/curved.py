"""Where to look next at convex constraints that curve: a step with their curvature.

Full-memory quasi-Newton, in coordinates of the gradients seen. Every point of the
search is the start plus a combination of gradients, so a dense matrix in an orthonormal
basis of these is one on all parameters: 0 elsewhere. Each constraint has a matrix C_j
of its own, the symmetric rank-one update (SR1) of 0, which keeps every secant of a
quadratic function, and a step solves

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

from oneproj.projection.convex.basis import Basis, padded
from oneproj.vectors.arithmetic import Array
from oneproj.vectors.qp import solve_nonnegative_qp
from oneproj.vectors.space import AbstractPacked


@dataclass(frozen=True)
class Settings:
    """Numbers of the step; all are shares or factors, without a unit."""

    sr1_skip: float = 1e-8
    """An update whose denominator is below this share of its factors is skipped
    (Nocedal and Wright, Numerical Optimization, eq. 6.26)."""
    rounds: int = 4
    """Quadratic programs for the multipliers of one step, at most. Not tuned."""
    settled: float = 1e-3
    """Relative change of the multipliers below which they have settled."""
    growth: float = 10.0
    """The multipliers of a step may exceed those before by this factor: where a model
    has no feasible point they would grow without end."""
    least_curvature: float = 0.1
    """Of the Lagrangian, whose distance has 1: negative curvature is not trusted."""
    penalty: float = 1.5
    """Weight of the violation over the multipliers, in the merit of a look."""
    decrease: float = 1e-4
    """Share of the predicted decrease of the merit that makes a look the next centre
    (Nocedal and Wright, eq. 3.4)."""
    shorter: float = 0.4
    """A step from the same centre is at most this share of one that failed."""
    longer: float = 2.5
    """The next may be longer by this factor after a step that was cut short."""
    halvings: int = 8
    """Of the share of a step, until it is short enough."""
    memory: float = 0.9
    """The share that a past prediction error keeps at every look."""
    trusted: float = 0.6
    """Curvature is used while its error is at most this share of what it predicts.
    With 0.7 a hinge risk takes 74 gradients in place of 64 and a log-sum-exp 117 in
    place of 106; other smooth constraints take as many (benchmarks/projection_suite).
    """
    rows: int = 60
    """Cuts in the step's quadratic program beyond those with a weight."""


SETTINGS = Settings()


@dataclass
class _Look:
    """Values and gradients at a point, in coordinates."""

    y: Array
    values: Mapping[str, float]
    gradients: dict[str, Array]


@dataclass
class _Cut:
    """``c(v) >= level + <normal, v>``."""

    name: str
    normal: Array
    level: float
    idle: int = 0
    """Steps since it had a weight."""


class Curved:
    """Learns how constraints curve, and proposes where to look.

    Args:
        limit: Vectors of the basis, at most; beyond it proposes nothing any more.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> def packed(*numbers):
        ...     return Short(np.array(numbers), 2**-52)
        >>> curved = Curved(limit=10)  # of |x|^2 <= 1 seen from (3, 0)
        >>> curved.see({"a": 8.0}, {"a": packed(6.0, 0.0)}, packed(0.0, 0.0), {})
        >>> first = curved.step({"a": 0.0}); first.numbers.tolist()
        [-1.3333333333333333, 0.0]
        >>> gradient = packed(2 * 5 / 3, 0.0)
        >>> curved.see({"a": 25 / 9 - 1}, {"a": gradient}, first, {"a": 1.0})
        >>> [round(x, 1) for x in curved.step({"a": 0.0}).numbers.tolist()]
        [-2.0, 0.0]
    """

    def __init__(self, limit: int) -> None:
        """Know nothing."""
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._basis = Basis()
        self._matrices: dict[str, Array] = {}
        self._scales: dict[str, float] = {}
        self._cuts: list[_Cut] = []
        self._center: _Look | None = None
        self._weights: dict[str, float] = {}
        self._radius, self._share, self._planned = math.inf, 1.0, 0.0
        self._error = self._bent = 0.0

    @property
    def is_trusted(self) -> bool:
        """Whether curvature has predicted the values seen of late.

        Across the kinks of a maximum or a hinge it does not, and the nearest point of
        the cuts is the better place to look.
        """
        return self._error <= SETTINGS.trusted * self._bent

    def see(
        self,
        values: Mapping[str, float],
        gradients: Mapping[str, AbstractPacked],
        at: AbstractPacked,
        multipliers: Mapping[str, float],
    ) -> None:
        """Take a look at a displacement into account.

        Args:
            values: Of all constraints.
            gradients: Of those that may bind.
            at: The displacement.
            multipliers: Of the cuts' solution; they say which constraints matter.
        """
        if len(self._basis) + len(gradients) + 1 > self._limit:
            self._limit = 0
            self._reset()
            return
        look = self._coordinates(values, gradients, at)
        if self._center is None:
            self._center = look
        else:
            self._judge(look, multipliers)
            for name, g in look.gradients.items():
                if name in self._center.gradients:
                    change = g - self._center.gradients[name]
                    self._learn(name, look.y - self._center.y, change)
            self._move_center(look)
        for name, g in look.gradients.items():
            self._cuts.append(_Cut(name, g, values[name] - float(g @ look.y)))
        self._cuts.sort(key=lambda cut: cut.idle)
        del self._cuts[SETTINGS.rows + len(values) :]

    def step(self, margins: Mapping[str, float]) -> AbstractPacked | None:
        """Propose a displacement to look at; None if the model has no answer."""
        center = self._center
        if center is None or not center.gradients:
            return None
        weights, bends = dict(self._weights), dict.fromkeys(center.gradients, 0.0)
        found: Array | None = None
        for _ in range(SETTINGS.rounds):
            normals, offsets, names = self._rows(margins, bends)
            planned = self._within_radius(normals, offsets, self._lagrangian(weights))
            if planned is None:
                break
            found, z = planned
            for cut, weight in zip(self._cuts, z[len(bends) :], strict=True):
                cut.idle = 0 if weight > 0 else cut.idle + 1
            most = SETTINGS.growth * max(
                sum(weights.values()), _norm(center.y), _norm(found)
            )
            new = dict.fromkeys(self._scales, 0.0)
            for name, weight in zip(names, z.tolist(), strict=True):
                new[name] = min(new[name] + weight, most)
            change = sum(abs(new[n] - weights.get(n, 0.0)) for n in new)
            weights, bends = new, self._bends(found - center.y)
            if change <= SETTINGS.settled * sum(new.values()):
                break
        if found is None:
            return None
        self._weights = weights
        violation = self._violation(center.values)
        gain = 0.5 * (float(center.y @ center.y) - float(found @ found))
        self._planned = abs(gain + self._penalty() * self._share * violation)
        return self._basis.vector(found)

    def _coordinates(
        self,
        values: Mapping[str, float],
        gradients: Mapping[str, AbstractPacked],
        at: AbstractPacked,
    ) -> _Look:
        """A look in coordinates; all that is kept gets those that are new."""
        found = {name: self._basis.coordinates(g) for name, g in gradients.items()}
        y = self._basis.coordinates(at)
        k = len(self._basis)
        for name, g in found.items():
            self._scales.setdefault(name, _norm(g) or 1.0)
        for cut in self._cuts:
            cut.normal = padded(cut.normal, k)
        self._matrices = {
            name: padded(padded(c, k).T, k).T for name, c in self._matrices.items()
        }
        if self._center is not None:
            self._center.y = padded(self._center.y, k)
            kept = self._center.gradients
            self._center.gradients = {name: padded(g, k) for name, g in kept.items()}
        return _Look(padded(y, k), values, {n: padded(g, k) for n, g in found.items()})

    def _learn(self, name: str, step: Array, change: Array) -> None:
        """Make a constraint's matrix agree with what its gradient did along a step."""
        k = len(step)
        matrix = self._matrices.setdefault(name, np.zeros((k, k)))
        left = change - matrix @ step
        along = float(left @ step)
        if abs(along) > SETTINGS.sr1_skip * _norm(left) * _norm(step):
            matrix += np.outer(left, left / along)

    def _judge(self, look: _Look, multipliers: Mapping[str, float]) -> None:
        """Compare how far values are above their slopes with what curvature says."""
        center = self._center
        if center is None:
            return
        step, error, bent = look.y - center.y, 0.0, 0.0
        bends = self._bends(step)
        for name, g in center.gradients.items():
            weight = multipliers.get(name, 0.0)
            above = look.values[name] - center.values[name] - float(g @ step)
            error += weight * abs(above - bends[name])
            bent += weight * max(abs(above), abs(bends[name]))
        size = error + bent
        if size > 0:
            self._error = SETTINGS.memory * self._error + error / size
            self._bent = SETTINGS.memory * self._bent + bent / size

    def _move_center(self, look: _Look) -> None:
        """Go on from a look that lowers the merit, or stay for a shorter step."""
        center = self._center
        if center is None:
            return
        penalty, length = self._penalty(), _norm(look.y - center.y)
        before, after = (
            0.5 * float(at.y @ at.y) + penalty * self._violation(at.values)
            for at in (center, look)
        )
        if before - after < SETTINGS.decrease * self._planned:
            self._radius = SETTINGS.shorter * length
            return
        if self._share < 1.0:
            self._radius = SETTINGS.longer * length
        self._center = look

    def _penalty(self) -> float:
        far = 0.0 if self._center is None else _norm(self._center.y)
        return SETTINGS.penalty * max(sum(self._weights.values()), far)

    def _violation(self, values: Mapping[str, float]) -> float:
        """The worst violation, in units of the distance."""
        over = (values[name] / scale for name, scale in self._scales.items())
        return max(0.0, *over) if self._scales else 0.0

    def _bends(self, step: Array) -> dict[str, float]:
        """What curvature adds along a step, at most half of what the slope does."""
        found = {}
        for name, g in ({} if self._center is None else self._center.gradients).items():
            most = 0.5 * abs(float(g @ step))
            bend = 0.0
            if name in self._matrices:
                bend = 0.5 * float(step @ self._matrices[name] @ step)
            found[name] = min(max(bend, -most), most)
        return found

    def _lagrangian(self, weights: Mapping[str, float]) -> Array:
        k = len(self._basis)
        total = np.zeros((k, k))
        for name, matrix in self._matrices.items():
            if weights.get(name, 0.0) > 0:
                total += weights[name] / self._scales[name] * matrix
        return total

    def _rows(
        self, margins: Mapping[str, float], bends: Mapping[str, float]
    ) -> tuple[Array, Array, list[str]]:
        """``normals @ v <= offsets``: the centre's, with curvature, and all cuts."""
        center, normals, offsets, names = self._center, [], [], []
        for name, g in ({} if center is None else center.gradients).items():
            value = 0.0 if center is None else center.values[name]
            level = value - (0.0 if center is None else float(g @ center.y))
            names.append(name)
            normals.append(g / self._scales[name])
            aim = level + margins[name] + bends[name]
            offsets.append(-aim / self._scales[name])
        for cut in self._cuts:
            names.append(cut.name)
            normals.append(cut.normal / self._scales[cut.name])
            offsets.append(-(cut.level + margins[cut.name]) / self._scales[cut.name])
        return np.array(normals), np.array(offsets), names

    def _within_radius(
        self, normals: Array, offsets: Array, curvature: Array
    ) -> tuple[Array, Array] | None:
        """The solution, or one that asks for a share of what is wanted and is near."""
        y = np.zeros(0) if self._center is None else self._center.y
        self._share = 1.0
        planned = _plan(normals, offsets, y, curvature, 1.0)
        if planned is not None and _norm(planned[0] - y) <= self._radius:
            return planned
        best, low, high = None, 0.0, 1.0
        for _ in range(SETTINGS.halvings):
            share = 0.5 * (low + high)
            planned = _plan(normals, offsets, y, curvature, share)
            if planned is None or _norm(planned[0] - y) > self._radius:
                high = share
                continue
            best, low = planned, share
        self._share = low
        return best


def _plan(
    normals: Array, offsets: Array, y: Array, curvature: Array, share: float
) -> tuple[Array, Array] | None:
    """Minimise ``|v|^2 + (v - y)'(curvature + ridge)(v - y)``; None without a solution.

    Rows are ``normals @ v <= offsets``, of whose violation at y a share is to go. The
    ridge is what keeps v near y: 0 for all of it, and more for less.
    """
    solve = _solver(curvature + np.eye(len(y)) / share)
    free = y - solve(y)
    turned = solve(normals.T)
    violation = np.maximum(normals @ y - offsets, 0.0)
    offsets = offsets + (1.0 - share) * violation
    gram = normals @ turned
    solved = solve_nonnegative_qp(0.5 * (gram + gram.T), offsets - normals @ free)
    if solved.ray is not None:
        return None
    return free - turned @ solved.z, solved.z


def _solver(hessian: Array) -> Callable[[Array], Array]:
    """Solves with a matrix, made positive definite where it is not."""
    try:
        return partial(cho_solve, cho_factor(hessian))
    except LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        sizes = np.maximum(np.abs(values), SETTINGS.least_curvature)

    def solve(right: Array) -> Array:
        found: Array = (vectors / sizes) @ (vectors.T @ right)
        return found

    return solve


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))
