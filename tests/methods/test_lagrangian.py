"""Gradient descent-ascent on the Lagrangian."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.methods import Lagrangian
from oneproj.methods.base import Context, prepare
from oneproj.methods.lagrangian import Multipliers


def quadratic() -> tuple[oneproj.Problem, Tensor]:
    """min (w - 2)^2, w <= 1: the saddle point is w = 1, mu = 2."""
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - 2.0).square().sum()),
        constraints={"cap": oneproj.function(w.sum, curvature="linear") <= 1.0},
    )
    return problem, w


def setting_of(problem: oneproj.Problem, steps: int) -> Context:
    return prepare(
        problem,
        steps=steps,
        seed=0,
        schedule=None,
        projector="auto",
        oracle="exact",
        batch_size=1,
        anchor_size=None,
    )


@pytest.mark.parametrize("decay", ["constant", "linear"])
def test_both_players_move_at_once(decay: str) -> None:
    problem, w = quadratic()
    chosen = Lagrangian(lr=0.1, dual_lr=0.5, decay=decay)
    method = chosen.begin(setting_of(problem, 20))
    x, mu = 0.0, 0.0
    for k in range(20):
        method.update()
        factor = 1.0 if decay == "constant" else 1.0 - k / 20
        x, mu = (
            x - factor * 0.1 * (2 * (x - 2.0) + mu),
            max(0.0, mu + factor * 0.5 * (x - 1.0)),
        )
        assert w.item() == pytest.approx(x, rel=1e-12)
        assert method._multipliers.mu.item() == pytest.approx(mu, rel=1e-12)
    assert mu > 0


def test_the_multiplier_is_found() -> None:
    problem, _ = quadratic()
    method = Lagrangian().begin(setting_of(problem, 500))
    for _ in range(500):
        method.update()
    assert method._multipliers.mu.item() == pytest.approx(2.0, abs=1e-3)


def test_without_dual_steps_it_is_sgd_on_the_objective() -> None:
    problem, w = quadratic()
    method = Lagrangian(dual_lr=0.0).begin(setting_of(problem, 100))
    for _ in range(100):
        method.update()
    left = math.prod(1 - 2 * 0.05 * (1 - k / 100) for k in range(100))
    assert w.item() == pytest.approx(2.0 - 2.0 * left, rel=1e-12)


def test_where_the_iterates_circle_the_average_arrives() -> None:
    # min -w, w <= 1 has no curvature: descent-ascent turns around (1, 1), outwards.
    # The residuals add up to mu_N / sigma if no step is cut off, so that their mean,
    # the residual of the average, is at most mu_N / (sigma N); mu stays below 8 here.
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    total = oneproj.function(w.sum, curvature="linear")
    objective = oneproj.function(lambda: -w.sum())
    problem = oneproj.Problem(w, objective, {"cap": total <= 1.0}, radius=5.0)
    options = {"lr": 0.1, "dual_lr": 0.1, "decay": "constant", "select": "average"}
    method = Lagrangian(**options).begin(setting_of(problem, 800))
    late = []
    for k in range(800):
        method.update()
        if k >= 700:
            late.append(abs(w.item() - 1.0))
    assert max(late) > 0.9
    assert method._multipliers.mu.item() < 8.0
    assert abs(method.finish().residuals_before["cap"]) < 8.0 / (0.1 * 800)


def test_the_weights_do_not_depend_on_what_is_seen() -> None:
    penalty = Multipliers(3)
    penalty.ascend(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    for c in ([0.0, 0.0, 0.0], [-9.0, 3.0, 1e6]):
        assert penalty.weigh(c) == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dual_lr": math.inf}, "dual_lr must be one .* got inf"),
        ({"select": "best"}, "select must be one of"),
        ({"select": "random"}, "select must be one of 'last', 'average', got"),
    ],
)
def test_settings_without_meaning_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(quadratic()[0], method="lagrangian", **options)
