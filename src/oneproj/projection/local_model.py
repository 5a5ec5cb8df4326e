"""The model of a local step: linear constraints, and the curvature seen so far.

BFGS for ``I + sum_j mu_j hess c_j``, the Hessian of the projection problem's
Lagrangian. A pair keeps the change of every constraint's gradient along a move, so
that old moves count for the present multipliers, not for those of their time. All
pairs are applied at once, by the compact form of Byrd, Nocedal and Schnabel (1994).

Every point that the search visits is the start plus a combination of constraint
gradients. In an orthonormal basis of their span (``Subspace``) the problem has a few
dozen coordinates, whatever the size of the model. A model with fewer parameters than
the basis has room for is its own span: coordinates are then the parameters themselves.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg.blas import dtrsm
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation
from oneproj.projection.tolerances import TOLERANCES
from oneproj.schema import check_names, check_range, check_tensor
from oneproj.vectors.arithmetic import Array, Vector, dimension, norm
from oneproj.vectors.qp import solve_nonnegative_qp, solve_simplex_qp
from oneproj.vectors.space import (
    AbstractMove,
    AbstractPacked,
    AbstractSpace,
    AbstractStorage,
    Short,
    is_short,
    storage_like,
    storage_of_state,
)

TINY = 1e-300
MOVES = 100
"""Moves from which the curvature is estimated, at most."""
ORTHOGONAL = 1e-8
"""Share of a new basis vector above which it is orthogonalised a second time."""
INDEPENDENT = 1e-9
"""Share of a vector below which what is outside a span is rounding."""


class Iterate(NamedTuple):
    """A visited point: displacement, residuals plus margins, gradients as rows."""

    d: Array
    c: Array
    J: Array
    evaluation: Evaluation
    half: float
    """``(1/2)|d|^2``."""

    def merit(self, rho: float, aim: Array) -> float:
        """``(1/2)|d|^2 + rho max(0, max_j c_j + aim_j)``."""
        return self.half + rho * excess(self.c, aim)

    def violation(self) -> float:
        """The sum of squared violations, margins included."""
        above = np.maximum(self.c, 0.0)
        return float(above.dot(above))

    def rotated(self, turn: Array) -> Iterate:
        """The same iterate in other coordinates."""
        return self._replace(d=turn.dot(self.d), J=self.J.dot(turn.T))

    def has_gradient(self) -> bool:
        """Whether nothing is violated here, or something that is has a gradient."""
        violated = [g for c, g in zip(self.c, self.J, strict=True) if c > 0]
        return not violated or any(g.any() for g in violated)


def are_monotone(iterates: Sequence[Iterate], noise: float) -> bool:
    """Whether ``<g_i - g_j, d_i - d_j> >= 0`` for all pairs, as of convex functions.

    Args:
        iterates: Visited points.
        noise: Share of ``|g| |d_i - d_j|`` that may be rounding.
    """
    if not iterates:
        return True
    D = np.array([iterate.d for iterate in iterates])
    squares = (D * D).sum(1)
    apart = squares[:, None] + squares - 2.0 * D.dot(D.T)
    length = np.sqrt(np.maximum(apart, 0.0))
    for J in np.array([iterate.J for iterate in iterates]).swapaxes(0, 1):
        along = D.dot(J.T)
        own, norms = along.diagonal(), np.linalg.norm(J, axis=1)
        rise = own[:, None] + own - along - along.T
        if (rise < -noise * np.maximum(norms[:, None], norms) * length).any():
            return False
    return True


def excess(c: Array, aim: Array) -> float:
    """``max(0, max_j c_j + aim_j)``."""
    return max(0.0, float((c + aim).max()))


class Step(NamedTuple):
    """The minimiser of a model."""

    p: Array
    mu: Array
    nu: Array
    """Multipliers of the half-spaces that contain the sets."""
    value: float
    """What the model takes for ``(1/2)|d|^2`` at the answer."""


@dataclass
class Model:
    """``(1/2)|d + p|^2 + (1/2) p'Bp`` under linear constraints.

    Attributes:
        rows: Gradients, half-spaces, and d last.
        solved: ``(I + B)^{-1}`` times each row.
        offsets: b in ``A p <= b``, which the half-spaces require.
    """

    rows: Array
    solved: Array
    offsets: Array

    def step(self, c: Array, rho: float, damping: float = 0.0) -> Step:
        """Minimise under ``c + J p <= t``, ``A p <= b``, at the price rho of t >= 0.

        With a damping, relative to the steepest gradient, ``c + J p`` is as far above 0
        as lowers the sum of its squares and that of p together the most.
        """
        b = self.offsets
        table = self.rows.dot(self.solved.T)
        gram, pull, m = table[:-1, :-1], table[:-1, -1], len(c)
        if damping > 0:
            steepest = max(float(gram.diagonal()[:m].max()), TINY)
            gram = gram + np.diag(
                np.where(np.arange(len(gram)) < m, steepest * damping, 0.0)
            )
        w = pull - np.concatenate([c, -b])
        found = solve_nonnegative_qp(gram, w)
        z, ray = found.z, found.ray
        if ray is not None or float(z[:m].sum()) > rho:
            if rho == math.inf:
                steepest = max(float(gram.diagonal()[:m].max()), TINY)
                rho = TOLERANCES.penalty_growth * float(c.max()) / steepest
            z = _bounded_multipliers(gram, w, m, rho)
        q = np.append(z, 1.0)
        p = -q.dot(self.solved)
        half = 0.5 * float(self.rows[-1].dot(self.rows[-1]))
        # The dual value: that of the model, without the aim where it is reached.
        value = half - 0.5 * float(q @ table @ q) + float(c @ z[:m]) - float(b @ z[m:])
        return Step(p, z[:m], z[m:], value)


def _bounded_multipliers(gram: Array, w: Array, m: int, rho: float) -> Array:
    """The multipliers if the first m add up to rho at most: with a slack, to rho."""
    n = len(w)
    unit = np.append(np.where(np.arange(n) < m, rho, 1.0), 0.0)
    P, linear = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
    P[:n, :n], linear[:n] = gram, w
    P, linear = P * np.outer(unit, unit), linear * unit
    simplex = (np.arange(n + 1) < m) | (np.arange(n + 1) == n)
    z: Array = (solve_simplex_qp(P, linear, simplex).z * unit)[:n]
    return z


class QuasiNewton:
    """BFGS pairs: the most recent moves, and how each gradient changed along them.

    Example:
        >>> curvature = QuasiNewton(memory=5)
        >>> curvature.add(np.array([2.0, 0.0]), np.array([[6.0, 0.0]]))
        >>> curvature.solve(np.eye(2), np.array([1.0])).tolist()  # 1 + 3 along it
        [[0.25, 0.0], [0.0, 1.0]]
    """

    def __init__(self, memory: int) -> None:
        """Keep at most ``memory`` moves."""
        self._memory = memory
        self.moves: list[Array] = []
        """Of unit length: the estimate is the same, the sums are in scale."""
        self.changes: list[Array] = []
        """For each move, one row for each constraint."""

    def add(self, move: Array, change: Array) -> None:
        """Remember a move and the change of each gradient, one row a constraint."""
        length = float(np.linalg.norm(move))
        self.moves.append(move / length)
        self.changes.append(change / length)
        if len(self.moves) > self._memory:
            del self.moves[0], self.changes[0]

    def forget(self) -> None:
        """Drop all moves."""
        self.moves, self.changes = [], []

    def state(self) -> dict[str, Any]:
        """The moves and changes as plain data."""
        return {
            "moves": torch.from_numpy(np.array(self.moves)),
            "changes": torch.from_numpy(np.array(self.changes)),
        }

    def load_state(self, state: Mapping[str, Any], count: int, size: int) -> None:
        """Continue from a state with these numbers of functions and coordinates."""
        check_names(state, "curvature", ("moves", "changes"))
        n = len(state["moves"])
        flat, deep = ((n, size), (n, count, size)) if n else ((0,), (0,))
        check_tensor(state["moves"], "curvature.moves", flat, torch.float64)
        check_tensor(state["changes"], "curvature.changes", deep, torch.float64)
        self.moves = [np.array(row) for row in state["moves"].numpy()]
        self.changes = [np.array(rows) for rows in state["changes"].numpy()]

    def reduce(self, turn: Array, mu: Array) -> None:
        """Go to coordinates of a smaller span, and keep the estimate for mu there.

        As the reduced Hessian of Gill and Leonard (2003): its eigenvectors are the new
        moves, and of what they do each constraint has the share of its multiplier.
        """
        k = int(turn.any(1).sum())
        span = turn[:k]
        inverse = self.solve(np.eye(len(turn)), mu)
        hessian = span.dot(np.linalg.inv(inverse)).dot(span.T)
        sizes, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
        self.forget()
        total = float(mu.dot(mu))
        for size, axis in zip(sizes, axes.T, strict=True):
            if total > 0 and abs(size - 1.0) > INDEPENDENT:
                move = np.zeros(len(turn))
                move[:k] = axis
                self.moves.append(move)
                self.changes.append(np.outer(mu / total, (size - 1.0) * move))

    def solve(self, rows: Array, mu: Array) -> Array:
        """The rows times the inverse of the estimate for multipliers mu."""
        if not self.moves:
            return rows
        S = np.array(self.moves)
        bent = np.array([mu.dot(change) for change in self.changes])
        least = TOLERANCES.local_least_curvature
        Y = S + bent
        R = S.dot(Y.T)  # of which the upper triangle is read
        curvature = R.diagonal()
        if float(curvature.min()) < least:
            # Where the constraints bend down too much, only a share of it counts.
            share = (1.0 - least) / (1.0 - np.minimum(curvature, least))
            Y = S + share[:, None] * bent
            R = S.dot(Y.T)
            curvature = R.diagonal()
        # (I + B)^{-1} = I + S'R^{-T}(D + YY')R^{-1}S - S'R^{-T}Y - Y'R^{-1}S
        # By dtrsm: dtrtrs wakes threads even for a dozen rows, which then spin.
        along = dtrsm(1.0, R.T, S.dot(rows.T), lower=1, trans_a=1)
        right = Y.dot(Y.T.dot(along) - rows.T) + curvature[:, None] * along
        back = dtrsm(1.0, R.T, right, lower=1)
        solved: Array = rows - along.T.dot(Y) + back.T.dot(S)
        return solved


class Subspace:
    """An orthonormal basis that grows with the vectors it is shown.

    Args:
        space: The points around the start.
        room: Vectors of the basis, at most.

    Example:
        >>> import torch
        >>> from oneproj.vectors.space import space_around
        >>> basis = Subspace(space_around([torch.zeros(3)]), room=2)
        >>> basis.coordinates([torch.tensor([3.0, 0.0, 0.0])]).tolist()
        [3.0, 0.0]
        >>> basis.coordinates([torch.tensor([1.0, 2.0, 0.0])]).tolist()
        [1.0, 2.0]
    """

    def __init__(self, space: AbstractSpace, room: int) -> None:
        """Start with an empty basis, or with all of a small space."""
        self._space = space
        size = dimension(space.origin)
        self.whole = is_short(space.origin) and size <= room
        """Whether coordinates are the parameters themselves."""
        self.room = size if self.whole else room
        self._pile: AbstractStorage[Any] | None = None

    @property
    def free(self) -> int:
        """How many more independent vectors there is room for."""
        if self.whole:
            return sys.maxsize
        return self.room - (0 if self._pile is None else len(self._pile))

    def coordinates(self, vector: Vector | AbstractPacked) -> Array:
        """The coordinates of a vector; the basis grows by what is new of it.

        In a full basis they are those of the nearest vector in the span.

        Raises:
            NonFiniteError: The square of the vector's length overflows.
        """
        packed = (
            vector if isinstance(vector, AbstractPacked) else self._space.pack(vector)
        )
        if isinstance(packed, Short) and self.whole:
            _check_square(float(packed.numbers.dot(packed.numbers)))
            return packed.numbers
        pile = self._pile = storage_like(packed) if self._pile is None else self._pile
        n, found = len(pile), np.zeros(self.room)
        square = packed.dot(packed)
        _check_square(square)
        if n == 0:
            left, rest = packed.times(1.0), square
        else:
            found[:n] = pile.products(packed)
            if n == self.room:
                return found
            left, again, rest = pile.remainder(packed, found[:n])
            found[:n] += again
            if again.dot(again) > ORTHOGONAL**2 * rest:
                left, again, rest = pile.remainder(left, again, in_place=True)
        length = math.sqrt(max(rest, 0.0))
        if length > INDEPENDENT * math.sqrt(square):
            left.scale(1.0 / length)
            pile.append(left)
            found[n] = length
        return found

    def state(self) -> Tensor | list[Vector] | None:
        """The basis as plain data; None if coordinates are the parameters."""
        return None if self._pile is None else self._pile.state()

    def load_state(self, state: Any) -> None:  # noqa: ANN401 - checked here
        """Go on with such a basis."""
        if state is not None and not self.whole:
            check_range(len(state), "basis", 0, self.room)
            self._pile = storage_of_state(state, self._space.origin, len(state))

    def move(self, coordinates: Array) -> AbstractMove:
        """The displacement with these coordinates, which is not formed."""
        length = math.sqrt(coordinates.dot(coordinates))
        return _Combination(self._pile, coordinates, length)

    def compress(self, rows: Array, most: int) -> Array:
        """Keep the span of some vectors only; returns the matrix to their coordinates.

        Args:
            rows: Their coordinates, the most important first.
            most: Dimensions of the span, at most; vectors beyond that are left out.
        """
        if self._pile is None:
            return np.zeros((self.room, self.room))
        n = len(self._pile)
        kept: list[Array] = []
        for row in rows[:, :n]:
            left = row.copy()
            for _ in range(2):
                for axis in kept:
                    left -= axis.dot(left) * axis
            length = math.sqrt(left.dot(left))
            if length > INDEPENDENT * math.sqrt(row.dot(row)):
                kept.append(left / length)
            if len(kept) == most:
                break
        turn = np.zeros((self.room, self.room))
        turn[: len(kept), :n] = np.array(kept).reshape(-1, n)
        self._pile.rotate(turn[: len(kept), :n])
        return turn


def _check_square(square: float) -> None:
    if not math.isfinite(square):
        quantity = "the squared length of a constraint's gradient"
        raise NonFiniteError(quantity)  # all that comes after it would be NaN


class _Combination(AbstractMove):
    """A sum of basis vectors; those that come later have no part in it."""

    def __init__(
        self, pile: AbstractStorage[Any] | None, weights: Array, length: float
    ) -> None:
        self._pile, self._weights, self.length = pile, weights, length
        self._count = 0 if pile is None else len(pile)

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        if self._pile is None:
            space.write(Short(self._weights, 0.0), point)
        else:
            self._pile.write(self._weights[: self._count], space, point)


@dataclass(frozen=True)
class LocalWarmStart:
    """What one search knows that helps the next one, from a point nearby."""

    mu: Array
    errors: Array
    basis: Subspace
    curvature: QuasiNewton

    def state(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "mu": torch.from_numpy(self.mu.copy()),
            "bend": torch.from_numpy(self.errors.copy()),
            "basis": self.basis.state(),
            "curvature": self.curvature.state(),
        }

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], count: int, space: AbstractSpace, room: int
    ) -> LocalWarmStart:
        """Return the warm start of a saved state, for ``count`` functions."""
        check_names(state, "models", ("mu", "bend", "basis", "curvature"))
        for name in ("mu", "bend"):
            check_tensor(state[name], name, (count,), torch.float64)
        mu, errors = (np.array(state[name].numpy()) for name in ("mu", "bend"))
        basis = Subspace(space, room)
        basis.load_state(state["basis"])
        curvature = QuasiNewton(MOVES)
        curvature.load_state(state["curvature"], count, basis.room)
        return cls(mu, errors, basis, curvature)


def random_direction(like: Vector, length: float) -> list[Tensor]:
    """A random vector of a given length, always the same.

    Example:
        >>> round(norm(random_direction([torch.zeros(4)], 2.0)), 6)
        2.0
    """
    generator = torch.Generator().manual_seed(0)
    direction = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64, device="cpu")
        for x in like
    ]
    scale = length / norm(direction)
    return [(scale * part).to(x) for part, x in zip(direction, like, strict=True)]
