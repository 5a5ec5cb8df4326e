"""Multipliers: how much of each constraint's gradient balances the objective's.

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
from scipy.optimize import nnls
from torch import Tensor

from oneproj.vectors.arithmetic import SMALL, Array, Vector, dot, norm
from oneproj.vectors.qp import refine_on_support

Column: TypeAlias = Mapping[int, Tensor]
"""The tensors of a vector that are not zero, by their position in it."""

REFINEMENTS = 3
"""Newton steps that follow the solution; two reach the rounding of the vectors."""
REFINE_BELOW = 1e-2
"""Share of |v| below which a residual is refined: above it inner products suffice."""


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
        first = np.arange(len(z)) == 0
        for _ in range(REFINEMENTS if best.norm < REFINE_BELOW * lengths[0] else 0):
            slope, residual = prices.copy(), dict(enumerate(best.vector))
            for k in np.flatnonzero(z):
                slope[k] += unit[k] * _product(self._columns[k], residual)
            refined = refine_on_support(P, first, z, slope)
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
