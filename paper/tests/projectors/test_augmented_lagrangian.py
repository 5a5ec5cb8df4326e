"""The paper's neural projector: near the exact answer, at the published cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.cuts import Cuts
from oneproj.results import Status
from oneproj.vectors.arithmetic import distance, snapshot
from oneproj_paper.projectors import augmented_lagrangian
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian

Made = tuple[list[Tensor], Mapping[str, AbstractTerm]]


def linear_score(seed: int, loss: Callable[[Tensor], Tensor], curvature: Any) -> Made:  # noqa: ANN401
    """Two risk caps, each on a linear score of its own, as in the paper."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    scores = [draw(9).requires_grad_() for _ in range(2)]
    risks = [
        oneproj.mean(
            lambda x, w=w: loss(x @ w), data=draw(100, 9) + 0.5, curvature=curvature
        )
        for w in scores
    ]
    return scores, {f"class {j}": risk <= 0.5 for j, risk in enumerate(risks)}


def network(seed: int) -> Made:
    """A cap on the logistic risk of a [8] Softplus network with 11 inputs."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    hidden, bias = (draw(11, 8) / 3).requires_grad_(), (draw(8) / 3).requires_grad_()
    out = (draw(8) / 3).requires_grad_()
    x = draw(100, 11)
    sign = torch.where(x[:, 0] > 0.5 * x[:, 1], 1.0, -1.0)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, signs = batch
        score = torch.nn.functional.softplus(inputs @ hidden + bias) @ out
        return torch.nn.functional.softplus(-signs * score)

    risk = oneproj.mean(losses, data=(x, sign))
    return [hidden, bias, out], {"risk": risk <= 0.4}


def hinge(score: Tensor) -> Tensor:
    return (1 - score).clamp(min=0)


def logistic(score: Tensor) -> Tensor:
    return torch.nn.functional.softplus(-score)


def disc(bound: float = 1.0) -> Made:
    w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    return [w], {"disc": oneproj.function(lambda: w.square().sum()) <= bound}


# --- the answer ---------------------------------------------------------------


@pytest.mark.parametrize("loss", [logistic, hinge])
def test_convex_risks_are_met_near_the_exact_projection(
    loss: Callable[[Tensor], Tensor],
) -> None:
    parameters, constraints = linear_score(0, loss, "convex")
    exact = Cuts().project(parameters, constraints)
    nearest = snapshot(parameters)
    parameters, constraints = linear_score(0, loss, "convex")
    done = AugmentedLagrangian().project(parameters, constraints)
    assert done.status is Status.FEASIBLE
    assert exact.lower_bound is not None
    assert exact.lower_bound <= done.distance <= exact.distance * (1 + 1e-3)
    assert distance(parameters, nearest) <= 3e-2 * exact.distance
    for name, mu in done.multipliers.items():
        assert mu == pytest.approx(exact.multipliers[name], rel=0.15)


def test_a_network_becomes_feasible_and_cuts_are_no_farther() -> None:
    parameters, constraints = network(0)
    cuts = Cuts().project(parameters, constraints)
    parameters, constraints = network(0)
    start = snapshot(parameters)
    done = AugmentedLagrangian().project(parameters, constraints)
    assert done.residuals_before["risk"] > 0.1
    assert constraints["risk"].value() == done.residuals["risk"] <= 0
    assert done.distance == distance(parameters, start)
    assert cuts.distance <= done.distance * 1.01
    assert done.kkt_residual < 0.1


def test_multipliers_and_their_residual_at_a_known_solution() -> None:
    # x_hat = (1, 0) from (2, 0): 2 mu x_hat = (1, 0), so mu = 1/2.
    parameters, constraints = disc()
    done = AugmentedLagrangian().project(parameters, constraints)
    assert done.multipliers["disc"] == pytest.approx(0.5, abs=1e-3)
    assert done.kkt_residual < 1e-3
    # The same residual, from the definition of it.
    x, mu = parameters[0].detach(), done.multipliers["disc"]
    left = x - torch.tensor([2.0, 0.0]) + mu * 2 * x
    assert done.kkt_residual == pytest.approx(
        left.norm().item() / done.distance, rel=1e-6
    )


# --- the settings -------------------------------------------------------------


def test_the_published_settings_cost_about_925_gradients() -> None:
    parameters, constraints = network(1)
    done = AugmentedLagrangian().project(parameters, constraints)
    assert 901 <= done.gradients <= 926


@pytest.mark.parametrize(
    ("settings", "evaluations"),
    [
        ({"inner_steps": 10, "rounds": 3, "refinements": 0}, 31),
        ({"inner_steps": 7, "rounds": 1, "refinements": 0}, 8),
    ],
)
def test_steps_are_counted(settings: dict[str, Any], evaluations: int) -> None:
    parameters, constraints = disc()
    done = AugmentedLagrangian(**settings).project(parameters, constraints)
    assert done.gradients == evaluations


@pytest.mark.parametrize(
    ("max_penalty", "penalties"),
    [(1e6, [1.0, 5.0, 25.0]), (10.0, [1.0, 5.0, 10.0])],
)
def test_the_penalty_grows_to_its_cap_and_multipliers_add_up(
    max_penalty: float, penalties: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a learning rate too small to move, a round adds rho (c + tolerance), c = 3.
    original, calls = augmented_lagrangian._updated, []

    def recorded(mu: Any, rho: float, *rest: Any) -> dict[str, float]:  # noqa: ANN401
        calls.append((mu["disc"], rho))
        return original(mu, rho, *rest)

    monkeypatch.setattr(augmented_lagrangian, "_updated", recorded)
    AugmentedLagrangian(
        lr=1e-12, inner_steps=1, rounds=3, refinements=0, max_penalty=max_penalty
    ).project(*disc())
    assert [rho for _, rho in calls[1::2]] == penalties
    assert [mu for mu, _ in calls[1::2]] == pytest.approx(
        [sum(penalties[:k]) * (3.0 + 1e-5) for k in range(3)], rel=1e-9
    )


def test_the_first_step_is_adams() -> None:
    # The first step of Adam has the length of the learning rate in every coordinate.
    parameters, constraints = disc()
    AugmentedLagrangian(inner_steps=1, rounds=1, refinements=0).project(
        parameters, constraints
    )
    expected = torch.tensor([1.99, 0.0], dtype=torch.float64)
    torch.testing.assert_close(parameters[0].detach(), expected)


@pytest.mark.parametrize("boundary_tolerance", [1e-4, 1e-2])
def test_refinement_ends_near_the_boundary(boundary_tolerance: float) -> None:
    # One big Adam step jumps from (2, 0) to (0.1, 0); bisection goes back to (1, 0).
    parameters, constraints = disc()
    done = AugmentedLagrangian(
        lr=1.9, inner_steps=1, rounds=1, boundary_tolerance=boundary_tolerance
    ).project(parameters, constraints)
    assert -boundary_tolerance <= done.residuals["disc"] <= 0
    assert done.residuals["disc"] < -1e-2 * boundary_tolerance
    assert 2 < done.gradients <= 2 + 25


def test_refinement_restores_feasibility_that_the_rounds_missed() -> None:
    parameters, constraints = disc()
    few = {"inner_steps": 1, "rounds": 1}
    without = AugmentedLagrangian(**few, refinements=0)
    done = without.project(parameters, constraints)
    assert done.status is Status.INFEASIBLE
    parameters, constraints = disc()
    done = AugmentedLagrangian(**few).project(parameters, constraints)
    assert done.status is Status.FEASIBLE
    assert done.distance == pytest.approx(1.0, abs=1e-4)


def test_strict_aims_inside_and_the_papers_aim_is_reported_as_it_is() -> None:
    # The sum is affine: restoration lands on the aim, exactly.
    for strict, aim in ((True, -1e-5), (False, 0.0)):
        w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
        constraints = {"sum": oneproj.function(w.sum) <= 1.0}
        done = AugmentedLagrangian(inner_steps=1, rounds=1, strict=strict).project(
            [w], constraints
        )
        assert done.residuals["sum"] == pytest.approx(aim, abs=1e-12)
        assert done.status.ok == (done.residuals["sum"] <= 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.0},
        {"inner_steps": 0},
        {"rounds": 0},
        {"rounds": 2.5},
        {"rounds": True},
        {"penalty": -1.0},
        {"refinements": -1},
        {"tolerance": float("nan")},
        {"boundary_tolerance": -1e-9},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidProblemError, match=f"{next(iter(settings))} must be "):
        AugmentedLagrangian(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"growth": 0.5}, {"penalty": 10.0, "max_penalty": 5.0}]
)
def test_a_penalty_that_falls_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidProblemError, match="penalty must not fall"):
        AugmentedLagrangian(**settings)


# --- failure ------------------------------------------------------------------


def test_a_feasible_start_costs_one_look() -> None:
    parameters, constraints = disc(4.0)
    done = AugmentedLagrangian().project(parameters, constraints)
    assert (done.gradients, done.distance, done.multipliers["disc"]) == (1, 0.0, 0.0)


def test_an_empty_set_leaves_the_least_infeasible_point() -> None:
    parameters, constraints = disc(-1.0)
    done = AugmentedLagrangian(lr=0.1, inner_steps=60).project(parameters, constraints)
    assert done.status is Status.INFEASIBLE
    assert done.residuals["disc"] == constraints["disc"].value()
    assert 1.0 <= done.residuals["disc"] < 1.1
    assert done.residuals_before["disc"] == 5.0


def test_a_flat_constraint_ends_the_refinement() -> None:
    w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    constraints = {"flat": oneproj.function(lambda: 0 * w.sum()) <= -1.0}
    done = AugmentedLagrangian(inner_steps=2, rounds=1).project([w], constraints)
    assert done.status is Status.INFEASIBLE
    assert (w.item(), done.gradients) == (2.0, 3)


def test_nan_on_the_way_leaves_the_best_point_and_the_gradients() -> None:
    w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    w.grad = torch.tensor([7.0], dtype=torch.float64)
    # Falls towards 1.9, below which it has no value.
    constraints = {"root": oneproj.function(lambda: (w - 1.9).sqrt().sum()) <= -1.0}
    with pytest.raises(NonFiniteError):
        AugmentedLagrangian(lr=0.07).project([w], constraints)
    assert w.item() == pytest.approx(1.93)
    assert w.grad.item() == 7.0


def test_the_dtype_is_kept() -> None:
    w = torch.tensor([2.0, 0.0], requires_grad=True)
    constraints = {"disc": oneproj.function(lambda: w.square().sum()) <= 1.0}
    done = oneproj.project(w, constraints, projector=AugmentedLagrangian())
    assert w.dtype is torch.float32
    assert constraints["disc"].value() == done.residuals["disc"] <= 0
