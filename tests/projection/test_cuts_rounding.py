"""Margins and bounds, against rounding: of the start, and of values near the answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj.errors import InfeasibleError, OneprojWarning
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.cuts import Cuts
from oneproj.projection.evaluator import Evaluator, watching
from oneproj.projection.margins import Margin
from oneproj.results import Status

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


# --- the bound on the distance ------------------------------------------------


@DTYPES
@pytest.mark.parametrize("linear", [True, False])
def test_no_bound_is_above_the_distance_for_the_rounding_of_a_value(
    dtype: torch.dtype,
    linear: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # The start is so near that the rounding of its value is a part of the distance.
    near = torch.finfo(dtype).eps ** 0.5
    for seed in range(10):
        a = normal(1000, seed=seed, dtype=dtype)
        w = (3.0 + normal(1000, seed=seed + 10, dtype=dtype)).requires_grad_()
        start, g = w.detach().double(), a.double() + 0.1
        value = g @ start if linear else start.norm()
        steepness = g.norm() if linear else torch.tensor(1.0)
        bound = (value - near * steepness).to(dtype).double()
        nearest = float((value - bound) / steepness)

        def fn(a: Tensor = a, w: Tensor = w) -> Tensor:
            return (a * w).sum() + 100.0 * w.mean() if linear else w.norm()

        capped = oneproj.function(fn, curvature="convex") <= float(bound)
        done = oneproj.project(w, {"capped": capped})
        assert done.lower_bound is not None
        assert done.lower_bound <= nearest * (1.0 + 1e-9)
        assert done.lower_bound >= 0.5 * nearest


# --- margins: of the answer, not of the start ---------------------------------


@pytest.mark.parametrize("curvature", ["convex", None])
@pytest.mark.parametrize("inside", [True, False])
def test_a_steep_start_says_nothing_about_the_margin(
    curvature: Literal["convex"] | None,
    inside: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # Seventeen orders of magnitude lie between the start and the bound.
    w = torch.tensor([1.8, 2.4], dtype=torch.float64, requires_grad=True)
    bound = math.exp(20.0)

    def fn() -> Tensor:
        return (20.0 * w.norm()).exp() - (bound if inside else 0.0)

    stated = oneproj.function(fn, curvature=curvature) <= (0.0 if inside else bound)
    done = oneproj.project(w, {"steep": stated})
    assert done.distance == pytest.approx(2.0, rel=1e-4)
    assert done.gradients <= 60


def test_a_sum_of_exponentials_is_projected_onto_from_far_away() -> None:
    # As a margin its share was 1e5: no point was as far inside as that.
    A = normal(10, 5, seed=3, dtype=torch.float64) / math.sqrt(5.0)
    w = (20.0 * normal(5, seed=4, dtype=torch.float64)).requires_grad_()
    total = oneproj.function(lambda: (A @ w).exp().sum(), curvature="convex")
    assert total.value() > 1e16
    done = oneproj.project(w, {"total": total <= 11.0})
    assert done.lower_bound == pytest.approx(done.distance, rel=1e-6)


@pytest.mark.parametrize("far", [10.0, 1000.0])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_far_start_costs_no_share_of_the_distance_in_float32(
    far: float, loss: str
) -> None:
    X, away = normal(100, 5, seed=5), normal(5, seed=6)
    right = torch.sign(X @ away)
    w = (-far * away / away.norm() + 0.1 * far * normal(5, seed=7)).requires_grad_()

    def risk() -> Tensor:
        margin = right * (X @ w)
        clipped = torch.clamp(1.0 - margin, min=0.0)
        soft = torch.nn.functional.softplus(-margin)
        return (soft if loss == "logistic" else clipped).mean()

    capped = oneproj.function(risk, curvature="convex") <= 0.05
    done = oneproj.project(w, {"risk": capped})
    assert done.lower_bound is not None
    assert done.distance <= done.lower_bound * (1.0 + 3e-5)


def test_the_margin_of_a_function_without_a_bound_follows_the_search() -> None:
    w = torch.tensor([60.0, 1.0], dtype=torch.float64, requires_grad=True)
    risen = oneproj.function(lambda: w[0].exp() - 1.0) <= 0.0
    evaluator = Evaluator([w], {"risen": risen}, differentiate_all=True)
    before = evaluator.margins["risen"]
    evaluator.move([torch.tensor([-59.0, 0.0], dtype=torch.float64)])
    assert before == pytest.approx(evaluator.share * math.exp(60.0))
    # e at 1, and a gradient of e along a way of 59.
    assert evaluator.margins["risen"] == pytest.approx(evaluator.share * 60.0 * math.e)
    evaluator.move([torch.tensor([-58.0, 0.0], dtype=torch.float64)])
    assert evaluator.margins["risen"] == pytest.approx(evaluator.share * 60.0 * math.e)


def test_a_function_that_is_0_where_the_parameters_are_has_a_margin() -> None:
    # At the start b is 0, and does not bind; at the answer it does, in some.
    binding = 0
    for seed in range(8):
        u, v = normal(400, seed=seed), normal(400, seed=seed + 20)
        w, steep = torch.zeros(400, requires_grad=True), 100.0 * v + 1000.0 * u

        def b(w: Tensor, u: Tensor = u, steep: Tensor = steep) -> Tensor:
            return steep @ w - 1000.0 * (u @ w)

        constraints = {
            "a": oneproj.function(lambda u=u, w=w: 1.0 - u @ w, curvature="convex"),
            "b": oneproj.function(lambda b=b, w=w: b(w), curvature="convex"),
        }
        done = oneproj.project(w, {n: c <= 0.0 for n, c in constraints.items()})
        binding += done.multipliers["b"] > 0
        assert b(w.detach().double(), u.double(), steep.double()) <= 0
        assert done.residuals["b"] < 0
        for k in range(20):  # the same sum in another order
            order = torch.randperm(400, generator=torch.Generator().manual_seed(k))
            assert b(w.detach()[order], u[order], steep[order]) <= 0
    assert binding > 0


# --- random constraints -------------------------------------------------------


def noisy(w: Tensor, noise: float, seed: int) -> dict[str, AbstractTerm]:
    generator = torch.Generator().manual_seed(seed)

    def fn() -> Tensor:
        return w.norm() + noise * torch.randn((), generator=generator, dtype=w.dtype)

    return {"size": oneproj.function(fn, curvature="convex") <= 1.0}


def test_an_answer_that_does_not_reproduce_is_not_called_feasible() -> None:
    statuses = []
    for seed in range(10):
        w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        with pytest.warns(OneprojWarning, match="'size' is random"):
            done = oneproj.project(w, noisy(w, 0.01, seed), on_failure="return")
        statuses.append(done.status)
        assert done.status.ok == (done.residuals["size"] <= 0)
        assert done.status.ok == ("is random: where the search" not in done.remark)
    assert Status.INFEASIBLE in statuses
    bad = statuses.index(Status.INFEASIBLE)
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    with (
        pytest.warns(OneprojWarning, match="'size' is random"),
        pytest.raises(InfeasibleError, match="fixed draws of its noise"),
    ):
        oneproj.project(w, noisy(w, 0.01, bad))
    assert w.tolist() == [3.0, 4.0]


# --- answers stay feasible in another order -----------------------------------


def bends(seed: int) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """The parameters of a small network, and its largest downward bend on a grid."""
    shapes = ((24, 1), (24,), (1, 24), (1,))
    parts = [0.5 * normal(*shape, seed=4 * seed + k) for k, shape in enumerate(shapes)]
    for part in parts:
        part.requires_grad_()
    W, b, V, c = parts

    def scores(grid: Tensor) -> Tensor:
        return (torch.tanh(grid @ W.T + b) @ V.T + c)[:, 0]

    return parts, scores


@pytest.mark.parametrize("curvature", ["linear", None])
def test_a_gap_that_must_not_be_positive_is_not_in_another_order(
    curvature: Literal["linear"] | None,
) -> None:
    for seed in range(12):
        X, w = normal(400, 20, seed=seed) + 5.0, normal(20, seed=seed + 50)
        w *= torch.sign((X[:150] @ w).mean() - (X[150:] @ w).mean())
        w.requires_grad_()

        def gap(X: Tensor = X, w: Tensor = w) -> Tensor:
            return (X[:150] @ w).mean() - (X[150:] @ w).mean()

        stated = oneproj.function(gap, curvature=curvature) <= 0.0
        oneproj.project(w, {"gap": stated})
        scores = torch.stack([row @ w for row in X]).detach()
        assert float(scores[:150].mean() - scores[150:].mean()) <= 0
        assert float(scores[:150].double().mean() - scores[150:].double().mean()) <= 0


def test_the_largest_of_differences_is_not_positive_in_another_order() -> None:
    grid = torch.linspace(-2.0, 2.0, 40)[:, None]

    def bend(z: Tensor) -> Tensor:
        return (2.0 * z[1:-1] - z[:-2] - z[2:]).max()

    for seed in (1, 3, 5):  # the second was positive by 3e-8
        parts, scores = bends(seed)
        stated = oneproj.function(lambda s=scores: bend(s(grid))) <= 0.0
        done = oneproj.project(parts, {"convex": stated})
        assert done.distance > 0
        again = torch.cat([scores(x[None]) for x in grid]).detach()
        assert float(bend(again)) <= 0


def test_a_look_at_the_noise_is_counted_and_leaves_the_answer() -> None:
    w, seen = torch.tensor([3.0, 1.0], requires_grad=True), []

    def size() -> Tensor:
        seen.append(w.tolist())
        return w.square().sum() - 1.0

    told: list[int] = []
    constraints = {"size": oneproj.function(size) <= 0.0}
    with watching(lambda looks, _: told.append(looks)):
        done = Cuts().project([w], constraints)
    assert told == [*range(1, done.gradients + 1)]
    assert len(seen) == done.gradients + 1, "two points without gradients count as one"
    assert constraints["size"].value() == done.residuals["size"] < 0


def test_margins_cover_the_rounding_of_the_parameters() -> None:
    """In few bits the answer, rounded, is feasible at once: few gradients are taken."""
    taken = []
    for seed in range(10):
        draws = torch.Generator().manual_seed(seed)
        x = torch.randn(300, 20, generator=draws)
        y = torch.sign(x[:, 0] + 0.3 * torch.randn(300, generator=draws))
        rows = x.bfloat16(), y.bfloat16()
        w = torch.randn(20, generator=draws).bfloat16().requires_grad_()

        def losses(batch: tuple[Tensor, Tensor], w: Tensor = w) -> Tensor:
            return softplus(-batch[1] * (batch[0] @ w))

        risk = oneproj.mean(losses, data=rows, curvature="convex")
        done = oneproj.project(w, {"risk": risk <= 0.9 * risk.value()})
        assert done.residuals["risk"] <= 0
        taken.append(done.gradients)
    assert statistics.median(taken) <= 6


def test_a_point_far_off_does_not_widen_a_margin() -> None:
    """There gradients are large, and the answer is not there."""
    w = torch.ones(2, dtype=torch.float64)
    margin = Margin(oneproj.function(w.sum) <= 1.0, 2.0**-52, 1.0)
    margin.renew(0.5, [torch.ones(2)], [w], 1.0)
    width = margin.width
    margin.renew(1e20, [torch.full((2,), 1e20)], [1e10 * w], 1e10)
    assert margin.width == width


# --- bands --------------------------------------------------------------------

Functions = list[tuple[Callable[[Tensor], Tensor], float]]
# Hock and Schittkowski's problems 77 and 78: a start, and functions with their values.
EQUATIONS: dict[str, tuple[list[float], Functions]] = {
    "77": (
        [2.0, 2.0, 2.0, 2.0, 2.0],
        [
            (lambda x: x[0] ** 2 * x[3] + (x[3] - x[4]).sin(), 8**0.5),
            (lambda x: x[1] + x[2] ** 4 * x[3] ** 2, 8 + 2**0.5),
        ],
    ),
    "78": (
        [-2.0, 1.5, 2.0, -1.0, -1.0],
        [
            (lambda x: x.square().sum(), 10.0),
            (lambda x: x[1] * x[2] - 5 * x[3] * x[4], 0.0),
            (lambda x: x[0] ** 3 + x[1] ** 3, -1.0),
        ],
    ),
}
HALF = 1e-5
"""Half the width of each band: 10 units of rounding of a float32 that is about 10."""


def one_term(fn: Callable[[], Tensor], b: float) -> list[AbstractTerm]:
    e = oneproj.function(fn)
    return [e <= b + HALF, e >= b - HALF]


def two_functions(fn: Callable[[], Tensor], b: float) -> list[AbstractTerm]:
    above = oneproj.function(lambda: fn() - b - HALF)
    below = oneproj.function(lambda: b - HALF - fn())
    return [above <= 0.0, below <= 0.0]


@pytest.mark.filterwarnings("ignore:Rounding decides:oneproj.OneprojWarning")
@pytest.mark.parametrize("band", [one_term, two_functions])
@pytest.mark.parametrize("name", EQUATIONS)
def test_a_band_narrower_than_the_margins_is_met_however_it_is_written(
    name: str, band: Callable[[Callable[[], Tensor], float], list[AbstractTerm]]
) -> None:
    point, functions = EQUATIONS[name]
    counts = []
    for seed in range(8):
        w = (torch.tensor(point) + 0.3 * normal(5, seed=seed)).requires_grad_()
        sides = [
            side for fn, b in functions for side in band(lambda fn=fn, w=w: fn(w), b)
        ]
        named = {f"c{j}": side for j, side in enumerate(sides)}
        done = oneproj.project(w, named, on_failure="return")
        assert done.status is Status.FEASIBLE
        counts.append(done.gradients)
    assert statistics.median(counts) <= 20
