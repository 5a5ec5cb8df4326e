"""Cuts on convex constraints: the nearest point, against an interior-point solver.

Risk caps with linear scores z, ``mean_i loss(<z_i, w>) <= cap``: logistic, hinge, and
both. The caps leave a known point strictly feasible; the start violates them.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cvxpy as cp
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

import oneproj
from oneproj.errors import InfeasibleError
from oneproj.problem.problem import named_constraints
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.cuts import Cuts
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import combine, norm

Array = NDArray[np.float64]
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda s: torch.nn.functional.softplus(-s),
    "hinge": lambda s: torch.clamp(1.0 - s, min=0.0),
}
ATOMS: dict[str, Callable[[cp.Expression], cp.Expression]] = {
    "logistic": lambda s: cp.logistic(-s),
    "hinge": lambda s: cp.pos(1.0 - s),
}
SLACK = 0.02
"""By how much the known point satisfies every cap."""


@dataclass
class Caps:
    """A start and caps on the mean loss of some examples, label times features."""

    start: Array
    losses: list[str]
    examples: list[Array]
    caps: list[float]

    def parameter(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor(self.start, dtype=dtype, requires_grad=True)

    def constraints(self, w: Tensor) -> dict[str, AbstractTerm]:
        stated = {}
        for j, (kind, Z, cap) in enumerate(
            zip(self.losses, self.examples, self.caps, strict=True)
        ):
            loss, data = LOSSES[kind], torch.tensor(Z, dtype=w.dtype)
            risk = oneproj.mean(
                lambda z, loss=loss: loss(z @ w), data=data, curvature="convex"
            )
            stated[f"cap {j}"] = risk <= cap
        return named_constraints(stated)

    def project(self, w: Tensor, **settings: float) -> Projection:
        exact = {"tolerance": 0.0, **settings}
        return Cuts(**exact).project([w], self.constraints(w))  # type: ignore[arg-type]

    def reference(self) -> tuple[float, Array]:
        """The distance and the multipliers, by clarabel at its last digits."""
        v = cp.Variable(len(self.start))
        capped = [
            cp.sum(ATOMS[kind](Z @ v)) / len(Z) <= cap
            for kind, Z, cap in zip(self.losses, self.examples, self.caps, strict=True)
        ]
        task = cp.Problem(cp.Minimize(cp.sum_squares(v - self.start) / 2), capped)
        with warnings.catch_warnings():
            # It is asked for more digits than it can always vouch for.
            warnings.simplefilter("ignore", UserWarning)
            task.solve(
                cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13
            )
        multipliers = np.array([float(c.dual_value) for c in capped])
        return float(np.linalg.norm(v.value - self.start)), multipliers


def draw(kind: str, dimension: int, count: int, seed: int = 0) -> Caps:
    rng = np.random.default_rng([seed, dimension, count, len(kind)])
    good = rng.normal(size=dimension)
    good *= 2 / np.linalg.norm(good)
    losses, examples, caps = [], [], []
    for j in range(count):
        X = rng.normal(size=(40, dimension))
        Z = np.sign(X @ good + 0.5 * rng.normal(size=40))[:, None] * X
        losses.append(("hinge", "logistic")[j % 2] if kind == "both" else kind)
        risk = LOSSES[losses[j]](torch.tensor(Z @ good)).mean().item()
        examples.append(Z)
        caps.append(risk + SLACK)
    aside = 0.5 * rng.normal(size=dimension) / np.sqrt(dimension)
    return Caps(aside - rng.uniform(0.2, 1.0) * good, losses, examples, caps)


# --- the default tolerance ----------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic", "both"])
def test_by_default_the_distance_is_proven_to_a_millionth(kind: str) -> None:
    used = {0.0: 0, 1e-6: 0}
    for seed in range(4):
        caps = draw(kind, 20, 2, seed)
        for tolerance in used:
            w = caps.parameter()
            settings = {"tolerance": tolerance} if tolerance == 0.0 else {}
            done = Cuts(**settings).project([w], caps.constraints(w))  # type: ignore[arg-type]
            used[tolerance] += done.gradients
            assert max(done.residuals.values()) <= 0
            assert done.lower_bound is not None
            assert done.lower_bound <= done.distance <= done.lower_bound * (1 + 1e-6)
    assert used[1e-6] <= 0.8 * used[0.0]


# --- exactness ----------------------------------------------------------------

PROBLEMS = [
    (kind, dimension, count)
    for kind in ("logistic", "hinge", "both")
    for dimension, counts in {
        2: (1, 2, 3, 5, 10),
        5: (1, 2, 3, 5, 10),
        20: (1, 2, 3, 5),
        60: (1, 2, 4),
        200: (1, 3),
    }.items()
    for count in counts
] + [("hinge", 200, 10)]


def test_there_are_enough_problems() -> None:
    assert len(PROBLEMS) >= 50


@pytest.mark.parametrize(("kind", "dimension", "count"), PROBLEMS)
def test_it_is_the_answer_of_an_interior_point_solver(
    kind: str, dimension: int, count: int
) -> None:
    caps = draw(kind, dimension, count)
    w = caps.parameter()
    done = caps.project(w)
    expected, mu = caps.reference()
    assert done.status is Status.FEASIBLE
    assert done.residuals_before["cap 0"] > 0
    assert max(done.residuals.values()) <= 0
    proven = np.sqrt(2 * _dual_value(caps, list(done.multipliers.values())))
    assert done.distance <= expected * (1 + 1e-8)
    # Now and then clarabel stops at 1e-7; a nearer point needs a proof by its own dual.
    assert done.distance >= min(expected, proven) * (1 - 1e-8)
    assert done.lower_bound is not None
    assert done.distance * (1 - 1e-7) <= done.lower_bound <= done.distance
    assert done.lower_bound <= expected * (1 + 1e-9)
    found = np.array(list(done.multipliers.values()))
    assert (found >= 0).all()
    if kind == "logistic" and count <= dimension:
        # Smooth, with independent gradients: there is only one mu to find.
        np.testing.assert_allclose(found, mu, atol=1e-6 * mu.max())
        assert _imbalance(caps, w, done) <= 1e-5
    assert proven == pytest.approx(done.distance, rel=1e-6), "strong duality"


def _imbalance(caps: Caps, w: Tensor, done: Projection) -> float:
    """``|x_hat - x + sum_j mu_j grad c_j(x_hat)| / |x_hat - x|``, by the gradients."""
    constraints = caps.constraints(w).values()
    pulls = [c.value_and_gradient([w])[1] for c in constraints]
    moved = [w.detach() - torch.tensor(caps.start, dtype=w.dtype)]
    left = combine([1.0, *done.multipliers.values()], [moved, *pulls])
    return norm(left) / done.distance


def _dual_value(caps: Caps, mu: list[float]) -> float:
    """``min_v |v - x|^2 / 2 + sum_j mu_j c_j(v)``: the multipliers prove the answer.

    By strong duality it is half the squared distance iff mu is optimal, unique or not.
    """
    v = cp.Variable(len(caps.start))
    value = cp.sum_squares(v - caps.start) / 2
    for kind, Z, cap, weight in zip(
        caps.losses, caps.examples, caps.caps, mu, strict=True
    ):
        if weight > 0:
            value += weight * (cp.sum(ATOMS[kind](Z @ v)) / len(Z) - cap)
    task = cp.Problem(cp.Minimize(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        task.solve(cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return float(task.value)


def test_some_hinge_answers_lie_on_kinks_and_some_do_not() -> None:
    on_kink = []
    for dimension in (2, 5, 20):
        caps = draw("hinge", dimension, 1)
        w = caps.parameter()
        caps.project(w)
        scores = caps.examples[0] @ w.detach().numpy()
        on_kink.append(bool((np.abs(scores - 1.0) < 1e-8).any()))
    assert any(on_kink)
    smooth = draw("logistic", 2, 1)
    assert smooth.losses == ["logistic"]


@pytest.mark.parametrize("kind", ["logistic", "hinge", "both"])
@pytest.mark.parametrize(("dimension", "count"), [(2, 1), (5, 3), (20, 5), (60, 10)])
def test_float32_is_feasible_and_near(kind: str, dimension: int, count: int) -> None:
    caps = draw(kind, dimension, count)
    w = caps.parameter(torch.float32)
    done = caps.project(w)
    exact = caps.project(caps.parameter())
    assert done.status is Status.FEASIBLE
    assert max(done.residuals.values()) <= 0
    assert w.dtype == torch.float32
    assert done.distance == pytest.approx(exact.distance, rel=1e-4)
    again = caps.constraints(w.detach().double().requires_grad_())
    assert max(c.value() for c in again.values()) <= 0, "feasible in float64 as well"


@pytest.mark.parametrize(
    ("kind", "dimension", "count", "seed"),
    [("hinge", 20, 5, 1), ("hinge", 20, 5, 2), ("both", 60, 10, 2)],
)
def test_a_feasible_look_elsewhere_does_not_spoil_the_answer(
    kind: str, dimension: int, count: int, seed: int
) -> None:
    # On the way to these answers a look that allows for curvature is feasible.
    caps = draw(kind, dimension, count, seed)
    done = caps.project(caps.parameter(torch.float32))
    exact = caps.project(caps.parameter())
    assert done.distance == pytest.approx(exact.distance, rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "dimension", "count", "most"),
    [
        ("logistic", 5, 2, 14),
        ("logistic", 20, 2, 22),
        ("logistic", 60, 3, 28),
        ("logistic", 200, 3, 25),
        ("hinge", 5, 2, 18),
        ("hinge", 20, 2, 42),
        ("hinge", 60, 3, 32),
    ],
)
def test_curvature_saves_gradients_and_kinks_cost_none(
    kind: str, dimension: int, count: int, most: int
) -> None:
    # Without the curvature the logistic risks take 29 to 47, the hinges 15 to 40.
    caps = draw(kind, dimension, count)
    assert caps.project(caps.parameter()).gradients <= most


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("chunk_size", [1, 7, 40])
def test_the_answer_stays_feasible_in_other_batches(kind: str, chunk_size: int) -> None:
    caps = draw(kind, 20, 1)
    w = caps.parameter(torch.float32)
    caps.project(w)
    data, loss = torch.tensor(caps.examples[0], dtype=torch.float32), LOSSES[kind]
    risk = oneproj.mean(lambda z: loss(z @ w), data=data, chunk_size=chunk_size)
    assert (risk <= caps.caps[0]).value() <= 0


# --- memory -------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 5])
def test_two_more_vectors_than_constraints_suffice_for_smooth_ones(count: int) -> None:
    caps = draw("logistic", 60, count)
    done = caps.project(caps.parameter(), memory=1)
    exact = caps.project(caps.parameter())
    assert done.distance == pytest.approx(exact.distance, rel=1e-8)
    assert done.gradients < 4 * exact.gradients


@pytest.mark.parametrize(("dimension", "count"), [(2, 1), (20, 3), (60, 10)])
def test_little_memory_at_kinks_costs_accuracy_not_feasibility(
    dimension: int, count: int
) -> None:
    caps = draw("hinge", dimension, count)
    done = caps.project(caps.parameter(), memory=1)
    exact = caps.project(caps.parameter())
    assert done.status is Status.FEASIBLE
    assert max(done.residuals.values()) <= 0
    assert done.lower_bound is not None
    assert done.lower_bound <= exact.distance <= done.distance * (1 + 1e-10)
    assert done.distance <= 1.01 * exact.distance


@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_a_small_budget_costs_accuracy_not_feasibility(kind: str) -> None:
    caps = draw(kind, 60, 3)
    done = caps.project(caps.parameter(), max_evaluations=5)
    exact = caps.project(caps.parameter())
    assert done.status is Status.FEASIBLE
    assert done.gradients <= 10
    assert done.lower_bound is not None
    assert done.lower_bound <= exact.distance <= done.distance <= 1.2 * exact.distance


# --- degenerate ---------------------------------------------------------------


def test_duplicate_risk_caps_change_nothing() -> None:
    for kind in ("logistic", "hinge"):
        once = draw(kind, 5, 2)
        twice = Caps(once.start, 2 * once.losses, 2 * once.examples, 2 * once.caps)
        alone = once.project(once.parameter())
        double = twice.project(twice.parameter())
        assert double.distance == pytest.approx(alone.distance, rel=1e-9)
        mu = list(double.multipliers.values())
        found = [mu[0] + mu[2], mu[1] + mu[3]]
        assert found == pytest.approx(list(alone.multipliers.values()), abs=1e-6)


@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_a_risk_below_minus_one_is_impossible(kind: str) -> None:
    caps = draw(kind, 5, 2)
    caps.caps[1] = -1.0
    w = caps.parameter()
    before = {name: c.value() for name, c in caps.constraints(w).items()}
    match = r"'cap 1'(, is| could not be met: its best residual is) 1\.\d+e\+00 > 0"
    start = w.detach().clone()
    with pytest.raises(InfeasibleError, match=match):
        oneproj.project(w, caps.constraints(w))
    assert torch.equal(w, start), "an error leaves the parameters alone"
    after = {name: c.value() for name, c in caps.constraints(w).items()}
    assert max(after.values()) <= max(before.values()), "not worse than it was"


@pytest.mark.parametrize("seed", range(3))
def test_an_ellipsoid_with_uneven_axes_is_not_called_out_of_reach(seed: int) -> None:
    """Cuts alone see a facet a look, and have no feasible point after all of theirs."""
    generator = torch.Generator().manual_seed(seed)
    n, axes = 30, torch.logspace(0, 4, 30, dtype=torch.float64)
    turned = torch.randn(n, n, generator=generator, dtype=torch.float64)
    Q = torch.linalg.qr(turned).Q
    start = 3.0 * torch.randn(n, generator=generator, dtype=torch.float64)
    y = Q.T @ start

    def outside(log: float) -> float:
        return float((axes * (y / (1 + math.exp(log) * axes)).square()).sum()) - 1.0

    mu = math.exp(brentq(outside, -50.0, 50.0, xtol=1e-14))
    nearest = float((y - y / (1 + mu * axes)).norm())
    w = start.clone().requires_grad_()
    size = oneproj.function(lambda: axes @ (Q.T @ w).square(), curvature="convex")
    done = oneproj.project(w, {"ellipsoid": size <= 1.0})
    assert done.residuals["ellipsoid"] <= 0
    # Rounding decides which look finds the answer: up to 1.4 % farther was seen.
    assert nearest <= done.distance <= 1.05 * nearest
    assert done.lower_bound is not None
    assert 0.95 * nearest <= done.lower_bound <= nearest


def test_where_no_way_leads_inside_the_point_is_the_one_that_is_reported() -> None:
    w = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    positive = oneproj.function(
        lambda: torch.nn.functional.softplus(w).sum() + (w[0] - w[1]).square() + 1e-6,
        curvature="convex",
    )
    done = oneproj.project(
        w,
        {"never": positive <= 0.0},
        projector=Cuts(max_evaluations=5),
        on_failure="return",
    )
    assert done.status is Status.INFEASIBLE
    assert done.residuals["never"] == positive.value()
    moved = w.detach() - torch.tensor([1.0, 3.0], dtype=torch.float64)
    assert done.distance == pytest.approx(float(moved.norm()), rel=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-6, 1e-8])
@pytest.mark.parametrize("seed", range(5))
def test_units_of_a_constraint_do_not_count(unit: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    inside = centers.mean(0)
    start = 3.0 + torch.randn(2, generator=generator, dtype=torch.float64)
    w = start.clone().requires_grad_()

    def disc(center: Tensor, factor: float) -> AbstractTerm:
        size = 1.01 * float((inside - center).square().sum())
        term = oneproj.function(
            lambda: factor * (w - center).square().sum(), curvature="convex"
        )
        return term <= factor * size

    discs = {"one": disc(centers[0], 1.0), "other": disc(centers[1], unit)}
    done = oneproj.project(w, discs)
    assert done.distance <= (1.0 + 2e-6) * done.lower_bound


# --- what is claimed --------------------------------------------------------------


@pytest.mark.parametrize("gradients", [1, 2, 3])
def test_cuts_of_largest_values_beside_a_set_hold(gradients: int) -> None:
    """A second search, after that within the set, begins at the start as well."""
    for seed in range(10):
        draws = torch.Generator().manual_seed(seed)
        x = torch.randn(12, 3, generator=draws, dtype=torch.float64)
        w = (
            20.0 * torch.randn(3, generator=draws, dtype=torch.float64)
        ).requires_grad_()
        squares = partial(lambda rows, w: (rows @ w).square(), w=w)
        largest = oneproj.largest(squares, data=x, curvature="convex")
        ball = oneproj.sets.Ball(5.0).on(w)  # 0 is in it
        done = oneproj.project(
            w,
            {"largest": largest <= 1e-3, "ball": ball},
            projector=Cuts(max_evaluations=gradients),
            on_failure="return",
        )
        assert done.status is not Status.PROVEN_INFEASIBLE


def test_a_wrong_declaration_is_not_taken_for_an_empty_set() -> None:
    """Two wells, declared convex: points between the best ones are tried first."""
    wrong = 0
    for start in (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0):
        for depth in (10.0, 20.0, 40.0):
            w = torch.tensor([start], dtype=torch.float64, requires_grad=True)

            def wells(w: Tensor = w, depth: float = depth) -> Tensor:
                holes = ((-(((w - c) / 0.5) ** 2)).exp() for c in (2.0, -2.0))
                return (w.square() + 5.0 - depth * sum(holes)).sum()

            cap = {"wells": oneproj.function(wells, curvature="convex") <= 0.0}
            with contextlib.suppress(oneproj.InvalidProblemError):
                done = oneproj.project(w, cap, on_failure="return")
                wrong += done.status is Status.PROVEN_INFEASIBLE
                assert done.lower_bound is None or done.lower_bound <= done.distance
    assert wrong == 0
