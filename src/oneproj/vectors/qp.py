"""Small quadratic programs: over a simplex and an orthant, and for multipliers.

``min (1/2) z'Pz + w'z  subject to  z >= 0,  sum of z over the simplex = 1``.

P is the Gram matrix of a few gradients: symmetric, positive semidefinite, and singular
where gradients are equal or more numerous than dimensions. The program is the dual of a
model that consists of cuts, so any z that satisfies the constraints proves a bound, and
the minimiser proves the best one.

Why not ``scipy.optimize.nnls``: it has no form for a simplex with a linear term, and
returns no ray where there is no minimum. Without a simplex it is as accurate on vectors
of equal length and faster; ``estimate_multipliers`` uses it.

**Multipliers** say how much of each constraint's gradient balances the objective's:
``argmin_{mu >= 0} (1/2)|v + sum_j mu_j n_j|^2 + sum_j p_j mu_j``, with v the gradient
of the objective, n_j a gradient or normal of a constraint and ``p_j >= 0`` the price of
one unit of mu_j. The vectors enter through their inner products only. Without prices it
is nonnegative least squares; with prices it is a least-distance problem, which becomes
one (Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from scipy.linalg.lapack import dgesv, dposv
from scipy.optimize import nnls
from torch import Tensor

from oneproj.vectors.arithmetic import SMALL, Array, Mask, Vector, dot, norm

EPSILON = float(np.finfo(np.float64).eps)
FLAT = 64.0 * EPSILON
"""A curvature below this fraction of the terms it is made of is rounding: zero."""
SLOPE_NOISE = 8.0 * EPSILON
"""A slope above minus this fraction of the terms it is made of is rounding: zero."""
GUESSED_ROWS = 24
"""Rows up to which the support of a solution is guessed: more are often dependent, and
an ellipsoid with 500 parameters once ended 0.16 % too far (suite)."""
GUESSES = 6
"""Supports that are tried before the active-set method, which always ends."""
PATIENCE = 3
"""Entries whose release changes the value by rounding only, before the search ends."""


Column: TypeAlias = Mapping[int, Tensor]
"""The tensors of a vector that are not zero, by their position in it."""

REFINEMENTS = 3
"""Newton steps on the positive entries; two reach the rounding of the vectors."""
REFINE_BELOW = 1e-2
"""Share of |v| below which a residual is refined: above it inner products suffice."""


@dataclass(frozen=True)
class QpSolution:
    """The minimiser z, or the point reached and a ray along which there is none."""

    z: Array
    ray: Array | None = None


def solve_simplex_qp(
    P: Array, w: Array, simplex: Mask, start: Array | None = None
) -> QpSolution:
    """Minimise ``(1/2) z'Pz + w'z`` over z >= 0 with ``sum(z[simplex]) = 1``.

    An active-set method in the manner of Lawson and Hanson: z minimises over the free
    entries; the fixed entry with the steepest descent is freed; where the way to the
    next minimiser meets a bound, that entry is fixed. A direction without curvature is
    followed to the bound it meets, so equal or dependent rows need no special case:
    the free rows stay affinely independent and their system stays solvable.

    Args:
        P: Symmetric positive semidefinite.
        w: The linear term.
        simplex: Which entries sum to 1, at least one; the others are only >= 0.
        start: An earlier solution, with zeros appended for new entries.

    Returns:
        The minimiser. If the value is unbounded below, the point reached and the ray:
        ``P ray = 0``, ``w'ray < 0``, ``ray >= 0``, zero on the simplex.

    Example:
        >>> both, first = np.array([True, True]), np.array([True, False])
        >>> solve_simplex_qp(np.eye(2), np.zeros(2), both).z.tolist()
        [0.5, 0.5]
        >>> solve_simplex_qp(np.eye(2), np.array([0.0, -3.0]), first).z.tolist()
        [1.0, 3.0]
    """
    program = _ActiveSet(P, w, simplex, start)
    unchanged: set[int] = set()
    # A round frees one entry. Runs take a few times the size; the cap ends cycles.
    for _ in range(50 + 10 * len(w)):
        entering = program.steepest(unchanged)
        if entering is None or len(unchanged) > PATIENCE:
            break
        z, free, value = program.z.copy(), list(program.free), program.value()
        ray = program.release(entering)
        if ray is not None:
            return QpSolution(program.z, ray)
        change = program.value() - value
        if change > 0:
            # Only rounding can raise the value: undo, and leave this entry alone.
            program.z, program.free = z, free
            unchanged.add(entering)
        elif change < 0:
            unchanged.clear()
    return QpSolution(program.z)


def solve_nonnegative_qp(P: Array, w: Array, start: Array | None = None) -> QpSolution:
    """Minimise ``(1/2) z'Pz + w'z`` over z >= 0, as ``solve_simplex_qp`` does.

    Example:
        >>> solve_nonnegative_qp(np.eye(2), np.array([1.0, -3.0])).z.tolist()
        [0.0, 3.0]
    """
    z = _guess_support(P, w, start)
    if z is not None:
        return QpSolution(z)
    n = len(w)
    # The solver needs a simplex: one more entry, without cost, is all of it.
    padded = np.zeros((n + 1, n + 1))
    padded[:n, :n] = P
    begin = None if start is None else np.append(start, 1.0)
    found = solve_simplex_qp(padded, np.append(w, 0.0), np.arange(n + 1) == n, begin)
    return QpSolution(found.z[:-1], None if found.ray is None else found.ray[:-1])


def _guess_support(P: Array, w: Array, start: Array | None) -> Array | None:
    """Solve for the entries believed positive, and correct the belief a few times.

    None if that does not end at a minimiser, as with dependent rows. Where it does it
    takes a quarter of the time of the active-set method.
    """
    n = len(w)
    if n == 0:
        return w
    if n > GUESSED_ROWS:
        return None
    positive = w < 0 if start is None else (start > 0) | (P.dot(start) + w < 0)
    sizes = np.abs(P)
    weight = np.abs(w)
    for _ in range(GUESSES):
        z, F = np.zeros(n), positive.nonzero()[0]
        if len(F) == 1:
            i = int(F[0])
            if not P[i, i] > 0:
                return None
            z[i] = -w[i] / P[i, i]
        elif len(F):
            _, z[F], failed = dposv(P[F[:, None], F], -w[F])
            if failed:
                return None
        slope, noise = P.dot(z) + w, FLAT * (sizes.dot(np.abs(z)) + weight)
        belief = np.where(positive, z > 0, slope < -noise)
        if (belief == positive).all():
            solved: Array = np.abs(slope[F]) <= noise[F]
            return z if solved.all() else None
        positive = belief
    return None


class _ActiveSet:
    """The point z and its free entries, over which z is the minimiser."""

    def __init__(self, P: Array, w: Array, simplex: Mask, start: Array | None) -> None:
        self.P, self.w, self.simplex = P, w, simplex
        self._sizes, self._weight = np.abs(P), np.abs(w)
        self.z = np.zeros(len(w))
        if start is None:
            vertices = np.where(simplex, 0.5 * np.diag(P) + w, np.inf)
            self.free = [int(np.argmin(vertices))]
            self.z[self.free] = 1.0  # the only entry of the simplex that is free
        else:
            self.z[:] = start
            self.free = np.flatnonzero(self.z).tolist()
            self._settle()

    def value(self) -> float:
        return float(0.5 * self.z @ self.P @ self.z + self.w @ self.z)

    def steepest(self, skip: set[int]) -> int | None:
        """The fixed entry whose increase lowers the value fastest, beyond rounding."""
        slope, noise = self._slopes()
        slope[[*self.free, *skip]] = 0.0
        falling = slope < -SLOPE_NOISE * noise
        if not falling.any():
            return None
        return int(np.argmin(np.where(falling, slope, 0.0)))

    def release(self, j: int) -> Array | None:
        """Free entry j and minimise again; returns a ray if there is no minimum."""
        # d moves the free entries so that they stay optimal while entry j grows.
        d = np.zeros_like(self.z)
        d[self.free] = self._solve(-self.P[self.free, j], -float(self.simplex[j]))
        d[j] = 1.0
        curvature = float(d @ self.P @ d)
        along = np.abs(d)
        size = float(along @ self._sizes @ along)
        step = np.inf
        if curvature > FLAT * size:
            step = -float(self._slopes()[0][j]) / curvature
        reach, blocking = _reach(self.z, d)
        if step == reach == np.inf:
            return d
        self.z += min(step, reach) * d
        self.free.append(j)
        if reach < step:
            self._fix(blocking)
            self._settle()
        self._tidy()
        return None

    def _slopes(self) -> tuple[Array, Array]:
        """The slope of every entry along the simplex, and the size of its terms."""
        slope = self.P @ self.z + self.w
        noise = self._sizes @ self.z + self._weight
        share = np.where(self.simplex, self.z, 0.0)
        slope -= (share @ slope) * self.simplex
        noise += (share @ noise) * self.simplex
        return slope, noise

    def _settle(self) -> None:
        """Go to the minimiser over the free entries, fixing those that hit zero."""
        while True:
            d = np.zeros_like(self.z)
            d[self.free] = self._solve(-(self.P @ self.z + self.w)[self.free], 0.0)
            reach, blocking = _reach(self.z, d)
            self.z += min(1.0, reach) * d
            if reach >= 1.0:
                self._tidy()
                return
            self._fix(blocking)

    def _fix(self, i: int) -> None:
        self.free.remove(i)
        self.z[i] = 0.0

    def _tidy(self) -> None:
        self.z[self.simplex] /= self.z[self.simplex].sum()

    def _solve(self, right: Array, total: float) -> Array:
        F = np.array(self.free, dtype=np.intp)
        return _solve_bordered(self.P[F[:, None], F], self.simplex[F], right, total)


def _reach(z: Array, d: Array) -> tuple[float, int]:
    """The longest step along d that keeps z >= 0, and the entry that ends it."""
    steps = np.full(len(d), np.inf)
    down = d < 0
    steps[down] = z[down] / -d[down]
    blocking = int(np.argmin(steps))
    return float(steps[blocking]), blocking


def _solve_bordered(P: Array, simplex: Mask, right: Array, total: float) -> Array:
    """Solve ``P u + tau e = right`` with ``e.u = total``, e = 1 on the simplex."""
    n = len(right)
    if n == 0:
        return right
    # The multiplier is measured in units of P, which keeps the system in scale.
    unit = float(np.abs(P).max()) or 1.0
    system, known = np.zeros((n + 1, n + 1)), np.empty(n + 1)
    system[:n, :n] = P
    system[:n, n] = system[n, :n] = unit * simplex
    known[:n], known[n] = right, unit * total
    # LAPACK directly: at this size NumPy's checks take longer than the solution.
    _, _, solution, singular = dgesv(system, known)
    if singular:
        solution = np.linalg.lstsq(system, known, rcond=None)[0]
    u: Array = solution[:n]
    return u


@torch.no_grad()
def gram(vectors: Sequence[Vector]) -> Array:
    """Return all inner products, formed and added up in float64.

    Example:
        >>> gram([[torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 0.0])]]).tolist()
        [[5.0, 3.0], [3.0, 9.0]]
    """
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device="cpu")
    for pieces in zip(*(_pieces(vector) for vector in vectors), strict=True):
        rows = torch.stack([piece.double() for piece in pieces])
        total += (rows @ rows.T).cpu()
    G: Array = total.numpy()
    return G


def _pieces(vector: Vector) -> list[Tensor]:
    """Return the same numbers in a few flat tensors of at most ``SMALL`` entries."""
    flat = [part.reshape(-1) for part in vector]
    large = [part for part in flat if part.numel() > SMALL]
    small = [part for part in flat if part.numel() <= SMALL]
    blocks = [block for part in large for block in torch.split(part, SMALL)]
    devices = dict.fromkeys(part.device for part in small)
    joined = [torch.cat([t for t in small if t.device == on]) for on in devices]
    return joined + blocks


def estimate_multipliers(G: Array, prices: Array | None = None) -> Array:
    """Return the multipliers, given the inner products of v, n_1, ..., n_m.

    The vectors are scaled to length 1, so that their units do not matter. Vectors that
    are zero get the multiplier 0, and so do all where a product is NaN or overflows:
    whoever takes the next value names the cause.

    Args:
        G: The Gram matrix, v first.
        prices: p_1, ..., p_m >= 0; None for zeros.

    Example:
        >>> rows = torch.tensor([[-2.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> G = gram([[row] for row in rows])
        >>> estimate_multipliers(G).round(9).tolist()
        [2.0, 1.0]
        >>> estimate_multipliers(G, np.array([0.0, 0.25])).round(9).tolist()
        [2.0, 0.75]
    """
    lengths, m = np.sqrt(np.diag(G)), len(G) - 1
    costs = np.zeros(m) if prices is None else prices
    if m == 0 or lengths[0] == 0 or not np.isfinite(G).all():
        return np.zeros(m)
    unit = np.where(lengths > 0, lengths, 1.0)
    if m == 1:  # the common case, exact and fast
        flat = G[1, 1] == 0
        return np.zeros(1) if flat else np.maximum(-(G[0, 1:] + costs) / G[1, 1], 0.0)
    cosines = G / unit / unit[:, None]
    values, basis = np.linalg.eigh(cosines)
    # Eigenvalues below rounding are zeros: their roots would make up a direction.
    rank = values > len(G) * np.finfo(float).eps * values[-1]
    coordinates = basis * np.sqrt(np.where(rank, values, 0.0))  # one row per vector
    # In units of |v|: -sum_j mu_j n_j is the shortest u with <n_j, u> <= h_j.
    h = cosines[0, 1:] + costs / (unit[0] * unit[1:])
    system = -np.vstack([coordinates[1:].T, h])
    x, _ = nnls(system, np.append(np.zeros(len(G)), 1.0))
    mu: Array = x / (1.0 + h @ x) * unit[0] / unit[1:]
    return mu


@dataclass(frozen=True)
class Balance:
    """Multipliers with the vector that they leave.

    Attributes:
        multipliers: mu_1, ..., mu_m.
        vector: ``v + sum_j mu_j n_j``.
        norm: The length of this vector.
    """

    multipliers: Array
    vector: list[Tensor]
    norm: float


class GrowingCone:
    """The program above for normals that become known one after the other.

    The residual is computed from the vectors themselves, and so are a few corrections
    of the multipliers: inner products lose what is smaller than the square root of
    their rounding.

    Example:
        >>> cone = GrowingCone([torch.tensor([-2.0, -1.0])])
        >>> cone.add({0: torch.tensor([1.0, 0.0])})
        >>> cone.add({0: torch.tensor([0.0, 1.0])}, price=0.25)
        >>> cone.solve().multipliers.round(9).tolist()
        [2.0, 0.75]
    """

    def __init__(self, v: Vector) -> None:
        """Start with v alone."""
        self._columns: list[Column] = []
        self._prices, self._gram = np.zeros(0), np.zeros((0, 0))
        self.add(dict(enumerate(v)))

    def add(self, column: Column, price: float = 0.0) -> None:
        """Add a normal with its price."""
        self._columns.append(column)
        row = [_product(column, other) for other in self._columns]
        self._prices = np.append(self._prices, price)
        self._gram = np.pad(self._gram, (0, 1))
        self._gram[-1, :] = self._gram[:, -1] = row

    def solve(self) -> Balance:
        """Return the multipliers of the normals so far."""
        lengths = np.sqrt(np.diag(self._gram))
        unit = np.where(lengths > 0, lengths, 1.0)
        unit = unit[0] / unit
        P, prices = self._gram * np.outer(unit, unit), self._prices * unit
        mu = estimate_multipliers(self._gram, self._prices[1:])
        z = np.append(1.0, mu) / unit
        best, value = self._combine(z * unit)
        for _ in range(REFINEMENTS if best.norm < REFINE_BELOW * lengths[0] else 0):
            residual, F = dict(enumerate(best.vector)), 1 + np.flatnonzero(z[1:])
            found = [unit[k] * _product(self._columns[k], residual) for k in F]
            refined = z.copy()
            step = np.linalg.lstsq(P[np.ix_(F, F)], prices[F] + found, rcond=None)[0]
            refined[F] = np.maximum(refined[F] - step, 0.0)
            better, lower = self._combine(refined * unit)
            if lower >= value:
                break
            z, best, value = refined, better, lower
        return best

    def _combine(self, weights: Array) -> tuple[Balance, float]:
        """Return the combination of these weights, and the value of the program."""
        vector = [weights[0] * part.detach() for part in self._columns[0].values()]
        for k in np.flatnonzero(weights)[1:]:
            places, tensors = zip(*self._columns[k].items(), strict=True)
            total = [vector[i] for i in places]
            given = [tensor.detach() for tensor in tensors]
            torch._foreach_add_(total, given, alpha=float(weights[k]))
        length = norm(vector)
        value = 0.5 * length**2 + float(weights @ self._prices)
        return Balance(weights[1:], vector, length), value


def _product(a: Column, b: Column) -> float:
    common = [i for i in a if i in b]
    return dot([a[i] for i in common], [b[i] for i in common])
