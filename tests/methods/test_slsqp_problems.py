"""SLSQP on problems whose units, domains or kinks SciPy does not like."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy
import pytest
import torch
from torch import Tensor, nn

import oneproj
from oneproj.methods import slsqp

WIDE = torch.float64


def zeros(n: int, value: float = 0.0) -> Tensor:
    return torch.full((n,), value, dtype=WIDE, requires_grad=True)


# --- units ---------------------------------------------------------------------------


def path(objective: float = 1.0, size: float = 1.0, flat: float = 1.0) -> list[Tensor]:
    """The iterates of one problem, whose terms are multiplied by the given numbers."""
    w = zeros(3, 0.25)
    target = torch.tensor([2.0, -1.0, 3.0], dtype=WIDE)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: objective * (w - target).pow(4).sum()),
        {
            "size": oneproj.function(lambda: size * w.square().sum()) <= size,
            "flat": oneproj.function(lambda: flat * (w[0] - w[1])) <= flat / 8,
        },
    )
    points: list[Tensor] = []
    oneproj.solve(
        problem, method="slsqp", callbacks=lambda _: points.append(w.detach().clone())
    )
    assert len(points) > 5
    return [*points, w.detach().clone()]


@pytest.mark.parametrize("term", ["objective", "size", "flat"])
@pytest.mark.parametrize("power", [-40, -10, 10, 40])
def test_the_unit_of_a_term_changes_no_bit(term: str, power: int) -> None:
    # Powers of two are exact, so that rounding is the same in both runs.
    expected, actual = path(), path(**{term: 2.0**power})
    assert len(actual) == len(expected)
    assert all(torch.equal(x, y) for x, y in zip(expected, actual, strict=True))


def table_path(units: list[float], target: float = 1.0) -> list[Tensor]:
    """The iterates of one regression, in units of its own, for such features."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(80, 3, generator=generator, dtype=WIDE) + 2.0
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=WIDE) + x[:, 0].sin()
    y[30:] += x[30:, 1]
    w, unit = zeros(3), torch.tensor(units, dtype=WIDE)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (batch[0] @ w - batch[1]).square()

    data = x * unit, y * target
    loss, old = oneproj.mean(losses, data), [part[:30] for part in data]
    cap = target**2
    problem = oneproj.Problem(w, loss, {"old": oneproj.mean(losses, tuple(old)) <= cap})
    points: list[Tensor] = []
    oneproj.solve(
        problem, method="slsqp", callbacks=lambda _: points.append(w * unit / target)
    )
    assert len(points) > 5
    return points


@pytest.mark.parametrize("units", [[2.0**20, 1.0, 2.0**-12], [2.0**8] * 3])
@pytest.mark.parametrize("target", [1.0, 2.0**16])
def test_the_units_of_a_table_change_no_bit(units: list[float], target: float) -> None:
    expected, actual = table_path([1.0] * 3), table_path(units, target)
    assert len(actual) == len(expected)
    assert all(torch.equal(x, y) for x, y in zip(expected, actual, strict=True))


class Once(torch.autograd.Function):
    """The identity, whose graph can be used once, as compiled ones are."""

    @staticmethod
    def forward(ctx: Any, score: Tensor) -> Tensor:  # noqa: ANN401 - torch's
        ctx.used = False
        return score.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: ANN401 - torch's
        if ctx.used:
            message = "donated buffers"
            raise RuntimeError(message)
        ctx.used = True
        return slope


def test_a_graph_that_can_be_used_once_will_do() -> None:
    x, w = torch.eye(3, dtype=WIDE), zeros(3)
    loss = oneproj.mean(lambda b: (Once.apply(b @ w) - 2.0).square(), data=x)
    problem = oneproj.Problem(w, loss, {"sum": oneproj.function(w.sum) <= 3.0})
    oneproj.solve(problem, method="slsqp")
    torch.testing.assert_close(w.detach(), torch.ones(3, dtype=WIDE))


def test_a_table_in_natural_units_is_fitted_in_float32() -> None:
    # Prices, counts, areas and years; in this precision the least gradient of a price
    # hides all that of a count.
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 4, generator=generator, dtype=WIDE)
    x = z * torch.tensor([5e4, 1.5, 400.0, 20.0]) + torch.tensor([2e5, 3, 1500, 1985])
    y = z @ torch.tensor([0.5, 0.45, 0.8, 0.2], dtype=WIDE) + 20
    y += 0.5 * torch.randn(400, generator=generator, dtype=WIDE)
    wide = torch.cat([x, torch.ones(400, 1)], dim=1)
    best = wide @ torch.linalg.lstsq(wide, y[:, None]).solution
    model, data = torch.nn.Linear(4, 1), (x.float(), y.float())
    for p in model.parameters():
        torch.nn.init.constant_(p, 0.01)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (model(batch[0]).squeeze(-1) - batch[1]).square()

    loss = oneproj.mean(losses, data)
    problem = oneproj.Problem(model.parameters(), loss, {"fits": loss <= 0.5})
    solution = oneproj.solve(problem, method="auto")
    assert solution.objective <= 1.02 * (best.squeeze(-1) - y).square().mean()
    assert solution.counts.objective_gradients < 50


def test_a_parameter_that_only_a_constraint_uses_has_a_scale() -> None:
    x, w, level = torch.eye(3, dtype=WIDE), zeros(3), zeros(1, 5.0)
    loss = oneproj.mean(lambda b: (b @ w - 2.0).square(), data=x)
    cap = oneproj.function(lambda: w.sum() + (level - 1.0).square().sum()) <= 3.0
    solution = oneproj.solve(
        oneproj.Problem([w, level], loss, {"cap": cap}), method="slsqp"
    )
    assert solution.objective == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(
        level.detach(), torch.ones(1, dtype=WIDE), rtol=0, atol=1e-3
    )


def network(last: float) -> oneproj.Problem:
    """A small network whose last layer is multiplied by the given number."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=WIDE)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.linspace(-0.6, 0.7, p.numel()).reshape(p.shape))
        model[2].weight.mul_(last)

    def score(rows: Tensor) -> Tensor:
        return model(rows)[:, 0]

    loss = oneproj.mean(lambda b: (score(b[0]) - b[1]).square(), data=(x, y))
    cap = oneproj.mean(score, data=x) <= 0.5
    return oneproj.Problem(model.parameters(), loss, {"cap": cap})


@pytest.mark.parametrize("last", [1e-2, 1e-4, 1e-6])
def test_a_last_layer_near_zero_does_no_harm(last: float) -> None:
    # The gradients of the first layer are then as small as the last layer.
    near = oneproj.solve(network(0.1), method="slsqp", steps=60).objective
    small = oneproj.solve(network(last), method="slsqp", steps=60).objective
    assert small <= 2.0 * near


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e8])
def test_the_least_variance_in_any_unit(unit: float) -> None:
    # min w'Sw with sum(w) >= 1 has w = S^-1 1 / (1'S^-1 1), f = 1 / (1'S^-1 1).
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 10, generator=generator, dtype=WIDE)
    S = unit * x.T @ x / 60
    w = zeros(10, 0.1)
    total = oneproj.function(w.sum, curvature="linear")
    problem = oneproj.Problem(
        w, oneproj.function(lambda: w @ S @ w), {"total": total >= 1.0}, radius=2.0
    )
    solution = oneproj.solve(problem, method="slsqp")
    ones = torch.ones(10, dtype=WIDE)
    optimum = 1.0 / float(ones @ torch.linalg.solve(S, ones))
    assert solution.feasible
    assert solution.objective == pytest.approx(optimum, rel=1e-7, abs=0.0)


def fourth_power(start: float) -> oneproj.Solution:
    """min (w + 2)^4 with w^2 <= 1: f = 1 at w = -1, with slope 4."""
    w = zeros(1, start)
    objective = oneproj.function(lambda: (w + 2.0).pow(4).sum())
    cap = oneproj.function(lambda: w.square().sum(), curvature="convex")
    problem = oneproj.Problem(w, objective, {"cap": cap <= 1.0})
    return oneproj.solve(problem, method="slsqp")


@pytest.mark.parametrize("start", [0.0, 1e-9, -2.0, 1e3, 1e5])
def test_where_gradients_are_zero_or_huge_the_units_are_found_on_the_way(
    start: float,
) -> None:
    solution = fourth_power(start)
    assert solution.feasible
    assert solution.objective == pytest.approx(1.0, abs=1e-8)


def test_a_constraint_without_value_and_slope_at_the_start_has_a_unit() -> None:
    w = zeros(1)
    sign = oneproj.function(lambda: w.pow(3).sum())
    objective = oneproj.function(lambda: (w + 1.0).square().sum())
    problem = oneproj.Problem(w, objective, {"sign": sign <= 0.0})
    assert oneproj.solve(problem, method="slsqp").objective < 1e-12


def test_without_restarts_the_scaling_of_a_far_start_is_too_coarse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slsqp, "CONSTANTS", replace(slsqp.CONSTANTS, restarts=0))
    assert fourth_power(1e5).objective > 1.0 + 1e-6


# --- where terms are not finite ------------------------------------------------------


def test_a_step_out_of_the_domain_is_shortened() -> None:
    w = zeros(1, 0.5)
    objective = oneproj.function(lambda: w.sum() - 0.001 * w.log().sum())
    cap = oneproj.function(w.sum, curvature="linear") <= 1.0
    problem = oneproj.Problem(w, objective, {"cap": cap})
    solution = oneproj.solve(problem, method="auto")
    assert solution.settings["method"] == "slsqp"
    assert solution.objective == pytest.approx(0.001 - 0.001 * math.log(0.001))


def test_so_is_one_out_of_the_domain_of_a_constraint() -> None:
    # min w with -log(w) <= 3: w = exp(-3), and the first steps go below 0.
    w = zeros(1, 0.5)
    depth = oneproj.function(lambda: -w.log().sum(), curvature="convex")
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"depth": depth <= 3.0})
    solution = oneproj.solve(problem, method="slsqp")
    assert solution.feasible
    assert solution.objective == pytest.approx(math.exp(-3.0), rel=1e-8)


def test_a_point_without_gradient_is_gone_around() -> None:
    # The root of a square has none at 0, which is where the first step goes.
    w = zeros(1, 1.0)
    objective = oneproj.function(lambda: w.square().sum().sqrt())
    solution = oneproj.solve(oneproj.Problem(w, objective, {}), method="slsqp")
    assert solution.objective < 1e-6


def test_a_start_that_is_not_finite_is_an_error() -> None:
    w = zeros(1, -0.5)
    objective = oneproj.function(lambda: w.sum() - w.log().sum())
    with pytest.raises(oneproj.NonFiniteError, match="'objective'"):
        oneproj.solve(oneproj.Problem(w, objective, {}), method="slsqp")


def test_so_is_one_that_cannot_be_left() -> None:
    w = zeros(1)
    elsewhere = torch.tensor(math.nan, dtype=WIDE)
    objective = oneproj.function(lambda: torch.where(w == 0, w, elsewhere).sum())
    with pytest.raises(oneproj.NonFiniteError, match="'objective'"):
        oneproj.solve(oneproj.Problem(w, objective, {}), method="slsqp")


# --- kinks, and no bottom ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_solution_at_a_kink_is_not_called_an_early_stop(seed: int) -> None:
    # The distance to a simplex has a kink at every face: line searches end there.
    generator = torch.Generator().manual_seed(seed)
    cost = torch.randn(10, generator=generator, dtype=WIDE)
    w = zeros(10, 0.1)
    problem = oneproj.Problem(
        w,
        oneproj.function(lambda: cost @ w),
        {"shares": oneproj.sets.Simplex(1.0).on(w)},
        radius=2.0,
    )
    solution = oneproj.solve(problem, method="slsqp")  # a warning would be an error
    assert solution.objective == pytest.approx(float(cost.min()), abs=1e-6)


def test_a_line_search_that_a_kink_ended_is_begun_again() -> None:
    # min max_i (a_i.w + b_i) with |w| <= 1: SciPy alone stops 16 % above the optimum.
    A = torch.randn(40, 8, generator=torch.Generator().manual_seed(3), dtype=WIDE)
    b = torch.randn(40, generator=torch.Generator().manual_seed(4), dtype=WIDE)
    w = zeros(8)
    size = oneproj.function(w.norm, curvature="convex")
    problem = oneproj.Problem(
        w, oneproj.function(lambda: torch.max(A @ w + b)), {"size": size <= 1.0}
    )
    v = cvxpy.Variable(8)
    highest = cvxpy.max(A.numpy() @ v + b.numpy())
    optimum = cvxpy.Problem(cvxpy.Minimize(highest), [cvxpy.norm(v) <= 1]).solve()
    solution = oneproj.solve(problem, method="slsqp")
    assert solution.objective == pytest.approx(optimum, rel=0.01)


DESCENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda w: -w[0],
    "exponential": lambda w: -w[0].exp(),
    "cubic": lambda w: w[1].square() - (w[0] + 0.1).pow(3),
    "tiny": lambda w: -1e-20 * w[0],
}


@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize("method", ["slsqp", "auto"])
def test_an_objective_without_a_minimum_is_said_to_have_none(
    name: str, method: str
) -> None:
    w = zeros(2)
    cap = oneproj.function(lambda: w[1], curvature="linear") <= 1.0
    objective = oneproj.function(lambda: DESCENTS[name](w))
    problem = oneproj.Problem(w, objective, {"cap": cap})
    with pytest.warns(oneproj.OneprojWarning) as caught:
        solution = oneproj.solve(problem, method=method)
    (message,) = (str(warning.message) for warning in caught)
    assert message.startswith("The objective seems to be unbounded below")
    assert "radius=" in message
    assert solution.feasible


def test_a_ball_is_a_bottom() -> None:
    w = zeros(2)
    objective = oneproj.function(lambda: -w[0])
    problem = oneproj.Problem(w, objective, {}, radius=1e12)
    # Whether SciPy's line search ends at the edge by itself depends on rounding.
    with warnings.catch_warnings(record=True, action="always") as caught:
        solution = oneproj.solve(problem, method="slsqp")
    assert [w for w in caught if "unbounded" in str(w.message)] == []
    assert solution.objective == pytest.approx(-1e12)


@pytest.mark.parametrize("start", [0.0, 1e-25, 1e-12])
def test_a_start_at_a_saddle_says_nothing_about_the_size(start: float) -> None:
    w = zeros(2, start)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: -w.square().sum()),
        constraints={"box": oneproj.sets.Box(1.0, 2.0).on(w)},
    )
    solution = oneproj.solve(problem, method="slsqp")
    assert solution.objective == pytest.approx(-8.0, rel=1e-6)


def test_a_decomposition_that_fails_at_a_trial_point_is_retreated_from() -> None:
    """``trace(SA) - log det A`` has its minimum ``2 + log det S`` at the inverse."""
    S = torch.tensor([[40.0, 10.0], [10.0, 30.0]], dtype=torch.float64)
    A = (0.5 * torch.eye(2, dtype=torch.float64)).requires_grad_()

    def entropy() -> Tensor:
        half = torch.linalg.cholesky((A + A.T) / 2).diagonal().log().sum()
        return (S @ A).trace() - 2.0 * half

    cap = oneproj.function(lambda: A.square().sum()) <= 10.0
    problem = oneproj.Problem(A, oneproj.function(entropy), {"cap": cap})
    found = oneproj.solve(problem, method="slsqp").objective
    assert found == pytest.approx(2.0 + math.log(1100.0), rel=1e-6)


# --- a violated start that minimises the objective -----------------------------------


def warm(scale: float, seed: int) -> oneproj.Problem:
    """Labels that the start separates; half of the examples are to change theirs."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor([1.0, -1.0]).repeat(20)
    x = torch.randn(40, 3, generator=generator, dtype=WIDE)
    x[:, 0] = y * (1.0 + x[:, 0].abs())
    x = x.float()
    w = torch.tensor([scale, 0.0, 0.0], requires_grad=True)
    changed = x[:, 1] > 0

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.nn.functional.softplus(-batch[1] * (batch[0] @ w))

    new = oneproj.mean(loss, data=(x[changed], -y[changed]))
    return oneproj.Problem(w, oneproj.mean(loss, data=(x, y)), {"new": new <= 0.5})


@pytest.mark.parametrize(
    ("scale", "seed"), [(38.0, 0), (39.0, 0), (50.0, 0), (32.0, 2)]
)
def test_a_gradient_that_is_nearly_zero_does_not_send_it_away(
    scale: float, seed: int
) -> None:
    # At the start f is 1e-17 and less. In such a unit the first step went so far that
    # 7e5 to 1e9 was found, twice without a word.
    optimum = oneproj.solve(warm(1.0, seed), method="slsqp").objective
    problem = warm(scale, seed)
    assert problem.objective.value() < 1e-14
    solution = oneproj.solve(problem, method="slsqp")  # a warning would be an error
    assert solution.feasible
    assert solution.objective == pytest.approx(optimum, rel=1e-4)
