"""No lower bound exceeds the distance, in either precision, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch import Tensor

import oneproj
from oneproj.problem.terms import Constraint
from oneproj.projection.cuts import Cuts

WIDE = torch.float64


def convex(fn: object, bound: float) -> Constraint:
    return oneproj.function(fn, curvature="convex") <= bound  # type: ignore[arg-type]


def ball(w: Tensor, a: Tensor) -> tuple[Constraint, float]:
    """A ball around a, of half the distance of the start."""
    away = (w.detach().double() - a.double()).norm().item()
    radius = 0.5 * away
    return convex(lambda: torch.dist(w, a), radius), away - radius


def square(w: Tensor, a: Tensor) -> tuple[Constraint, float]:
    """The same ball by the square of the distance."""
    away = (w.detach().double() - a.double()).norm().item()
    bound = 0.25 * away**2
    return convex(lambda: (w - a).square().sum(), bound), away - math.sqrt(bound)


def ellipsoid(w: Tensor, a: Tensor) -> tuple[Constraint, float]:
    """``sum_i s_i w_i^2 <= bound`` with axes up to 100 apart."""
    s = torch.logspace(0, 4, len(a), dtype=WIDE).to(w.dtype)
    x, wide = w.detach().double(), s.double()
    bound = 0.25 * (wide * x.square()).sum().item()

    def excess(mu: float) -> float:
        return (wide * (x / (1 + mu * wide)).square()).sum().item() - bound

    mu = brentq(excess, 0.0, 1e6, xtol=1e-300, rtol=1e-15)
    nearest = x / (1 + mu * wide)
    del a
    return convex(lambda: s @ w.square(), bound), (x - nearest).norm().item()


def halfspaces(w: Tensor, a: Tensor) -> tuple[Constraint, float]:
    """The larger of two sides that are at right angles, by a kink."""
    first, second = torch.zeros_like(a), torch.zeros_like(a)
    first[::2], second[1::2] = a[::2], a[1::2]
    x = w.detach().double()
    sides = [
        (float(n.double() @ x), float(n.double().norm()))
        for n in (first, second)
        if float(n.norm()) > 0
    ]
    bound = min(level for level, _ in sides) - 1.0
    true = math.hypot(*((level - bound) / length for level, length in sides))
    normals = torch.stack([first, second][: len(sides)])
    return convex(lambda: torch.amax(normals @ w, dim=0), bound), true


KINDS = {
    "ball": ball,
    "square": square,
    "ellipsoid": ellipsoid,
    "halfspaces": halfspaces,
}


@pytest.mark.parametrize("dtype", [torch.float32, WIDE], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**20),
    dimension=st.integers(1, 40),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
    shift=st.sampled_from([0.0, 1.0, 1e3]),
)
@settings(max_examples=30, deadline=None)
def test_no_bound_exceeds_the_distance(
    *,
    kind: str,
    dtype: torch.dtype,
    seed: int,
    dimension: int,
    size: float,
    shift: float,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    start, a = torch.randn(2, dimension, generator=generator, dtype=WIDE)
    w = (size * start + shift).to(dtype).requires_grad_()
    center = (a + shift).to(dtype)
    constraint, true = KINDS[kind](w, center)
    done = Cuts().project([w], {"only": constraint})
    assert done.lower_bound is not None
    # The reference is rounded as well, in float64.
    size_of_terms = true + w.detach().double().norm().item()
    assert done.lower_bound <= true + 16 * 2**-52 * size_of_terms
