"""Random problems with a reference solution by cvxpy and clarabel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj


@dataclass(frozen=True)
class Case:
    """min (1/2) y'Ay + b'y (+ |My - e|_1) over discs and halfspaces, 0 in the inside.

    A has eigenvalues in [-1, 3], so the objective is 1-weakly convex.
    """

    problem: oneproj.Problem
    x: np.ndarray
    A: np.ndarray
    b: np.ndarray
    kinks: tuple[np.ndarray, np.ndarray] | None
    discs: list[tuple[np.ndarray, float]]
    halfspaces: list[tuple[np.ndarray, float]]

    def proximal_point(
        self, weight: float, strength: float | None = None
    ) -> np.ndarray:
        """argmin f(y) + weight |y - x|^2, constrained or with lambda [g]_+ added."""
        y = cp.Variable(len(self.x))
        S = np.linalg.cholesky(self.A + 2 * weight * np.eye(len(self.x))).T
        value = 0.5 * cp.sum_squares(S @ y) + (self.b - 2 * weight * self.x) @ y
        if self.kinks is not None:
            value += cp.norm1(self.kinks[0] @ y - self.kinks[1])
        c: list[Any] = [cp.sum_squares(y - a) - r**2 for a, r in self.discs]
        c += [a @ y - offset for a, offset in self.halfspaces]
        conditions = [cp.norm(y) <= self.problem.radius]
        if strength is None:
            conditions += [each <= 0 for each in c]
        elif c:
            value += strength * cp.pos(cp.maximum(*c) if len(c) > 1 else c[0])
        cp.Problem(cp.Minimize(value), conditions).solve(solver=cp.CLARABEL)
        return np.asarray(y.value)

    def value(self, y: np.ndarray, weight: float) -> float:
        """f(y) + weight |y - x|^2."""
        value = 0.5 * y @ self.A @ y + self.b @ y + weight * np.sum((y - self.x) ** 2)
        if self.kinks is not None:
            value += np.abs(self.kinks[0] @ y - self.kinks[1]).sum()
        return float(value)

    def worst(self, y: np.ndarray) -> float:
        """The worst residual."""
        c = [float(np.sum((y - a) ** 2) - r**2) for a, r in self.discs]
        c += [float(a @ y - offset) for a, offset in self.halfspaces]
        return max(c, default=-math.inf)


def make_case(
    seed: int,
    n: int,
    *,
    constraints: int = 1,
    kinks: bool = False,
    radius: float = 2.0,
    reach: float = 0.3,
    dtype: torch.dtype = torch.float64,
    split: bool = False,
) -> Case:
    """A random case; ``reach`` is about the length of the point x."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    eigenvalues = rng.uniform(-1, 3, size=n)
    A = (Q * eigenvalues) @ Q.T
    A, b = 0.5 * (A + A.T), rng.normal(size=n)
    M, e = rng.normal(size=(3, n)), 0.3 * rng.normal(size=3)
    x = reach * rng.normal(size=n) / math.sqrt(n)
    x = x.astype(np.float32).astype(float)
    w = torch.tensor(x, dtype=dtype)
    parts = [p.clone().requires_grad_() for p in (w[: n // 2], w[n // 2 :])]
    parts = parts if split and n > 1 else [w.requires_grad_()]
    discs, halfspaces, named = [], [], {}
    for k in range(constraints):
        a, r = 0.2 * rng.normal(size=n) / math.sqrt(n), float(rng.uniform(0.4, 0.8))
        if k % 2 == 0:
            discs.append((a, r))
            named[f"disc {k}"] = oneproj.function(_disc(parts, a)) <= r**2
        else:
            a *= 5
            halfspaces.append((a, 0.05))
            named[f"half {k}"] = oneproj.function(_half(parts, a)) <= 0.05
    f = _objective(parts, A, b, (M, e) if kinks else None)
    problem = oneproj.Problem(parts, oneproj.function(f), named, radius=radius)
    return Case(problem, x, A, b, (M, e) if kinks else None, discs, halfspaces)


def _objective(
    parts: list[Tensor],
    A: np.ndarray,
    b: np.ndarray,
    kinks: tuple[np.ndarray, np.ndarray] | None,
) -> Callable[[], Tensor]:
    A_, b_ = (torch.tensor(v).to(parts[0]) for v in (A, b))

    def f() -> Tensor:
        y = torch.cat(parts)
        value = 0.5 * y @ A_ @ y + b_ @ y
        if kinks is not None:
            M, e = (torch.tensor(v).to(y) for v in kinks)
            value = value + (M @ y - e).abs().sum()
        return value

    return f


def _disc(parts: list[Tensor], a: np.ndarray) -> Callable[[], Tensor]:
    center = torch.tensor(a).to(parts[0])
    return lambda: (torch.cat(parts) - center).square().sum()


def _half(parts: list[Tensor], a: np.ndarray) -> Callable[[], Tensor]:
    normal = torch.tensor(a).to(parts[0])
    return lambda: normal @ torch.cat(parts)


@pytest.fixture(scope="session")
def build() -> Callable[..., Case]:
    """The factory of random cases."""
    return make_case
