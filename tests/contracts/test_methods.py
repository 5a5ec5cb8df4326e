"""What every method owes: the same problem in, the same kind of answer out."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj import Status, Update
from oneproj.methods import METHODS
from oneproj.oracles import ORACLES

# Runs are stopped within their first outer iteration here, which is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:The selected iterate is the start")

DETERMINISTIC = ("slsqp", "auto")  # "auto" takes SLSQP for problems as small as these
STOCHASTIC = [name for name in METHODS if name not in DETERMINISTIC]
FIRST_STEP = 8
"""Objective gradients, at most, from which the first step is chosen."""
PRECISE = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


# --- problems with known answers ----------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A problem, and its optimal value from a closed form or from cvxpy."""

    problem: oneproj.Problem
    optimum: float

    @property
    def w(self) -> Tensor:
        return self.problem.parameters[0]


def nearest_in_ball(dtype: torch.dtype = torch.float64, radius: float = 10.0) -> Known:
    """min |w - (3, 4)|^2 in the unit ball: w = (0.6, 0.8), f = 4^2, mu = 8."""
    w = torch.tensor([0.3, -0.2], dtype=dtype, requires_grad=True)
    target = torch.tensor([3.0, 4.0], dtype=dtype)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"size": oneproj.sets.Ball(1.0).on(w)},
        radius=radius,
    )
    return Known(problem, 16.0)


def corner() -> Known:
    """min |w - (2, 1)|^2, w_1 + w_2 <= 1, w_1 - w_2 <= 1/2: both bind at (.75, .25)."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([2.0, 1.0], dtype=torch.float64)
    total = oneproj.function(w.sum, curvature="linear")
    gap = oneproj.function(lambda: w[0] - w[1], curvature="linear")
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"total": total <= 1.0, "gap": gap <= 0.5},
        radius=10.0,
    )
    return Known(problem, 1.25**2 + 0.75**2)


def budget() -> Known:
    """Least squares over data, with a halfspace that cuts the solution off."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(200, generator=generator, dtype=torch.float64)
    y = x[:, 0] + x[:, 1] + noise
    w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    half = oneproj.sets.Halfspace(torch.ones(3), offset=1.0)
    problem = oneproj.Problem(
        w,
        objective=oneproj.mean(lambda b: (b[0] @ w - b[1]).square(), data=(x, y)),
        constraints={"budget": half.on(w)},
        radius=5.0,
    )
    v = cvxpy.Variable(3)
    loss = cvxpy.sum_squares(x.numpy() @ v - y.numpy()) / 200
    reference = cvxpy.Problem(cvxpy.Minimize(loss), [cvxpy.sum(v) <= 1])
    return Known(problem, reference.solve(solver="CLARABEL", **PRECISE))


def transfer() -> Known:
    """Logistic regression, with a cap on the risk over a second data set."""
    generator = torch.Generator().manual_seed(1)
    y = 2.0 * torch.randint(2, (300,), generator=generator).double() - 1.0
    shape, wide = (300, 4), torch.float64
    x = torch.randn(shape, generator=generator, dtype=wide)
    x += y[:, None] * torch.tensor([1.0, 0.5, 0.0, 0.0])
    source = torch.randn(shape, generator=generator, dtype=wide)
    source += y[:, None] * torch.tensor([0.0, 0.5, 1.0, 0.0])
    w = torch.zeros(4, dtype=wide, requires_grad=True)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    risk = oneproj.mean(loss, data=(source, y), curvature="convex")
    problem = oneproj.Problem(
        w,
        objective=oneproj.mean(loss, data=(x, y)),
        constraints={"source risk": risk <= 0.5},
        radius=10.0,
    )
    v = cvxpy.Variable(4)

    def average(x: Tensor) -> cvxpy.Expression:
        margins = cvxpy.multiply(y.numpy(), x.numpy() @ v)
        return cvxpy.sum(cvxpy.logistic(-margins)) / 300

    reference = cvxpy.Problem(cvxpy.Minimize(average(x)), [average(source) <= 0.5])
    return Known(problem, reference.solve(solver="CLARABEL", **PRECISE))


# How near to the optimal value 500 updates come. All settings are the defaults, but for
# the strength of the plain penalty on the ball, whose multiplier is 8.
EXACT = {nearest_in_ball: 1e-7, corner: 1e-7, budget: 1e-7, transfer: 1e-7}
GAPS: dict[str, dict[Callable[[], Known], float]] = {
    "slsqp": EXACT,
    "auto": EXACT,
    "penalty-sgd": {nearest_in_ball: 5e-3, corner: 5e-3, budget: 1e-2, transfer: 1e-2},
    "lagrangian": {nearest_in_ball: 1e-6, corner: 1e-5, budget: 1e-2, transfer: 1e-2},
    "switching-subgradient": {
        nearest_in_ball: 5e-3,
        corner: 1e-3,
        budget: 1e-3,
        transfer: 2e-2,
    },
    "projected-sgd": {nearest_in_ball: 1e-6, budget: 5e-3},
    "one-projection": {nearest_in_ball: 0.16},
}
CASES = [(method, build) for method, gaps in GAPS.items() for build in gaps]
STRONGER = {"penalty-sgd": {"strength": 10.0}}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_how_near_it_comes(method: str) -> None:
    assert GAPS[method]


@pytest.mark.parametrize(("method", "build"), CASES)
def test_it_reaches_the_known_optimum(method: str, build: Callable[[], Known]) -> None:
    known = build()
    options = STRONGER.get(method, {}) if build is nearest_in_ball else {}
    solution = oneproj.solve(known.problem, method=method, steps=500, **options)
    assert solution.status is Status.FEASIBLE
    assert all(residual <= 0 for residual in solution.residuals.values())
    # Feasible points cannot be better than the optimum, up to cvxpy's accuracy.
    assert -1e-8 <= solution.objective - known.optimum <= GAPS[method][build]


# --- the same result type, counted ---------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_solution_tells_what_happened(method: str) -> None:
    known = budget()
    solution = oneproj.solve(known.problem, method=method, steps=50, seed=3)
    assert set(solution.history) == {"update", "objective", "seconds", "budget"}
    assert solution.history["update"][0] == 1
    assert all(map(math.isfinite, solution.history["objective"]))
    assert solution.settings["seed"] == 3
    assert solution.residuals == known.problem.residuals()
    assert solution.objective == known.problem.objective.value()
    assert json.loads(json.dumps(solution.to_dict(), allow_nan=False))["feasible"]


@pytest.mark.parametrize("method", METHODS)
def test_one_projection_and_one_objective_gradient_per_update(method: str) -> None:
    solution = oneproj.solve(budget().problem, method=method, steps=50)
    counts = solution.counts
    assert counts.projections == (50 if method == "projected-sgd" else 1)
    if method in STOCHASTIC:  # the switching method saves those it does not need
        saves = method == "switching-subgradient"
        extra = FIRST_STEP if method == "one-projection" else 0
        assert 0 < counts.objective_gradients <= 50 + extra
        assert saves == (counts.objective_gradients < 50)
    assert counts.constraint_gradients > 0
    assert counts.constraint_passes > 0


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bits(method: str) -> None:
    answers = []
    for seed in (0, 0, 1):
        known = budget()
        oneproj.solve(known.problem, method=method, steps=50, seed=seed, batch_size=4)
        answers.append(known.w.detach().clone())
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2]) == (method in DETERMINISTIC)


@pytest.mark.parametrize("method", METHODS)
def test_the_global_random_state_is_neither_used_nor_changed(method: str) -> None:
    before = torch.get_rng_state()
    oneproj.solve(budget().problem, method=method, steps=50)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_the_dtype_stays_and_no_grad_does_not_matter(
    method: str, dtype: torch.dtype
) -> None:
    known = nearest_in_ball(dtype)
    with torch.no_grad():
        solution = oneproj.solve(known.problem, method=method, steps=50)
    assert solution.feasible
    assert known.w.dtype is dtype
    assert known.w.requires_grad


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("method", METHODS)
def test_every_oracle_will_do(method: str, oracle: str) -> None:
    known = transfer()
    start = known.problem.objective.value()
    solution = oneproj.solve(
        known.problem, method=method, oracle=oracle, steps=60, batch_size=16
    )
    assert solution.feasible
    assert solution.objective < start


@pytest.mark.parametrize("method", METHODS)
def test_without_constraints_it_minimises(method: str) -> None:
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    objective = oneproj.function(lambda: w.square().sum())
    problem = oneproj.Problem(w, objective, {})
    solution = oneproj.solve(problem, method=method, steps=200)
    assert solution.feasible
    assert solution.objective < 0.1


@pytest.mark.parametrize("method", METHODS)
def test_the_ball_holds_the_answer(method: str) -> None:
    # The free minimum (3, 4) and the constraint's ball both reach beyond radius 1/2.
    # Plain steps: those of Adam have another metric than the projection onto the ball.
    known = nearest_in_ball(radius=0.5)
    options = {"base": "sgd"} if method == "one-projection" else {}
    oneproj.solve(known.problem, method=method, steps=500, **options)
    expected = torch.tensor([0.3, 0.4], dtype=torch.float64)
    torch.testing.assert_close(known.w.detach(), expected, rtol=0, atol=2e-3)


# --- stops ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_callback_sees_every_update_and_can_stop(method: str) -> None:
    seen: list[Update] = []

    def watch(update: Update) -> bool:
        seen.append(update)
        return update.update == 3

    solution = oneproj.solve(
        transfer().problem, method=method, steps=50, callbacks=[watch]
    )
    assert [update.update for update in seen] == [1, 2, 3]
    assert solution.status is Status.INTERRUPTED
    assert solution.feasible


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_between_updates_returns_what_there_is(method: str) -> None:
    def press(update: Update) -> None:
        if update.update == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(oneproj.OneprojWarning, match="Ctrl-C ended this run after upd"):
        solution = oneproj.solve(
            transfer().problem, method=method, steps=10_000, callbacks=[press]
        )
    assert solution.status is Status.INTERRUPTED
    assert solution.feasible
    assert solution.history["update"] == [3]
    # SLSQP takes its units from two gradients.
    extra = {"auto": 2, "slsqp": 2, "one-projection": FIRST_STEP}.get(method, 0)
    assert solution.counts.objective_gradients <= 3 + extra


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_inside_an_update_returns_what_there_is(method: str) -> None:
    known = transfer()
    evaluate, made, pressed = known.problem.objective.batch_value, [], []
    full = known.problem.objective.value_and_gradient

    def press(*arguments: object) -> object:
        if len(made) >= 3 and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        inner = full if method in DETERMINISTIC else evaluate
        return inner(*arguments)

    name = "value_and_gradient" if method in DETERMINISTIC else "batch_value"
    setattr(known.problem.objective, name, press)
    with pytest.warns(oneproj.OneprojWarning, match="Ctrl-C ended this run after upd"):
        solution = oneproj.solve(
            known.problem, method=method, steps=50, callbacks=made.append
        )
    assert solution.status is Status.INTERRUPTED
    assert solution.feasible


@pytest.mark.parametrize("method", METHODS)
def test_an_error_of_the_users_own_comes_through(method: str) -> None:
    class OwnError(Exception):
        pass

    def fail(update: Update) -> None:
        raise OwnError(update.update)

    with pytest.raises(OwnError, match="1"):
        oneproj.solve(budget().problem, method=method, steps=50, callbacks=fail)


# --- refusals and failures ------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_misspelt_argument_is_recognised(method: str) -> None:
    message = f"method '{method}' has no option 'step'. Did you mean 'steps'[?]"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(budget().problem, method=method, step=5)


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_is_refused(method: str) -> None:
    message = f"method '{method}' has no option 'learning_rate'"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(budget().problem, method=method, learning_rate=0.1)
    with pytest.raises(
        oneproj.InvalidProblemError, match="solve takes: method, steps, "
    ):
        oneproj.solve(budget().problem, method=method, epochs=3)
