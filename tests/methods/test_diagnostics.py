"""Warnings: uneven units, dead networks, a run that ended too early."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import softplus

import oneproj
from oneproj import OneprojWarning
from oneproj.methods.diagnostics import RunDiagnostics, are_uneven, warn_if_falling


def classification(units: Tensor, score: Module) -> oneproj.Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, len(units), generator=generator)
    inside = x[:, 0] + torch.randn(200, generator=generator) > 0
    x = x * units

    def risk(sign: float, part: Tensor) -> oneproj.mean:
        return oneproj.mean(lambda b: softplus(sign * score(b)[:, 0]), part)

    return oneproj.Problem(
        score.parameters(), risk(1.0, x[~inside]), {"cap": risk(-1.0, x[inside]) <= 0.4}
    )


def linear(features: int) -> Linear:
    score = Linear(features, 1)
    with torch.no_grad():
        score.weight.copy_(0.3 * torch.ones(1, features))
        score.bias.zero_()
    return score


def test_features_in_uneven_units_are_told() -> None:
    problem = classification(torch.tensor([1.0, 5.0, 30.0, 200.0, 1000.0]), linear(5))
    with pytest.warns(OneprojWarning, match="units of very different size"):
        oneproj.solve(problem, steps=20, progress=False)


def test_two_features_are_enough_to_be_uneven() -> None:
    problem = classification(torch.tensor([3.0, 1000.0]), linear(2))
    with pytest.warns(OneprojWarning) as told:
        oneproj.solve(problem, steps=100, progress=False)
    assert any('take method="auto"' in str(warning.message) for warning in told)


def test_two_gradients_that_differ_by_chance_are_not() -> None:
    assert not are_uneven(20.0, [torch.tensor([[1.0, 50.0]])], lr=1.0)
    assert are_uneven(20.0, [torch.tensor([[1.0, 150.0]])], lr=1.0)
    assert are_uneven(20.0, [torch.tensor([[1.0, 2.0, 50.0]])], lr=1.0)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_few_standardised_features_raise_no_alarm(features: int) -> None:
    problem = classification(torch.ones(features), linear(features))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oneproj.solve(problem, steps=100, progress=False)


@pytest.mark.parametrize("unit", [0.1, 1.0, 10.0])
def test_features_in_one_unit_are_not(unit: float) -> None:
    problem = classification(unit * torch.ones(5), linear(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oneproj.solve(problem, steps=20, progress=False)


def test_one_feature_that_matters_is_no_unit() -> None:
    # All features are standardised; the gradient is that of a correlation.
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x, score = torch.randn(2000, 20, generator=generator), linear(20)
        with torch.no_grad():
            score.weight.zero_()

        def risk(score: Linear = score, x: Tensor = x) -> Tensor:
            return (score(x)[:, 0] - x[:, 0]).square().mean()

        cap = oneproj.function(score.weight.norm) <= 5.0
        problem = oneproj.Problem(
            score.parameters(), oneproj.function(risk), {"cap": cap}
        )
        slopes = torch.autograd.grad(risk(), list(score.parameters()))
        assert are_uneven(risk().item(), slopes, lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            oneproj.solve(problem, steps=60, progress=False)


@pytest.mark.parametrize("seed", range(6))
def test_noise_of_minibatches_is_no_unit(seed: int) -> None:
    # One of twenty standardised features matters, so the first gradient is uneven.
    # Some targets are far off, so the objectives of minibatches differ by factors.
    generator = torch.Generator().manual_seed(seed)
    x, score = torch.randn(4000, 20, generator=generator), linear(20)
    far_off = torch.rand(4000, generator=generator) < 0.1
    y = x[:, 0] + 2.0 * far_off
    with torch.no_grad():
        score.weight.zero_()

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return (score(batch[0])[:, 0] - batch[1]).square()

    cap = oneproj.function(score.weight.norm) <= 5.0
    objective = oneproj.mean(losses, (x, y))
    problem = oneproj.Problem(score.parameters(), objective, {"cap": cap})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oneproj.solve(problem, steps=300, seed=seed, progress=False)


def test_columns_that_change_little_are_not_uneven() -> None:
    slopes = [torch.tensor([[1.0, 2.0, 500.0]])]
    assert are_uneven(20.0, slopes, lr=0.1)
    assert not are_uneven(2000.0, slopes, lr=0.1)
    assert not are_uneven(20.0, [torch.tensor([[200.0, 300.0, 500.0]])], lr=0.1)
    assert not are_uneven(20.0, [slopes[0][0]], lr=0.1)


class Dying(Module):
    """A network whose units are all driven below zero by the first long steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Sequential(Linear(2, 8), ReLU(), Linear(8, 1))
        with torch.no_grad():
            self.layers[0].weight.fill_(0.5)
            self.layers[0].bias.fill_(0.1)
            self.layers[2].weight.fill_(0.3)
            self.layers[2].bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_network_that_died_is_told() -> None:
    score, x = Dying(), torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    problem = oneproj.Problem(
        score.parameters(),
        oneproj.mean(lambda b: softplus(score(b)[:, 0]), x),
        {"floor": oneproj.mean(lambda b: softplus(-score(b)[:, 0]), x) <= 3.0},
    )
    with (
        pytest.warns(OneprojWarning, match="still fell"),  # the last bias lives
        pytest.warns(OneprojWarning, match="seems to be dead"),
    ):
        oneproj.solve(problem, steps=100, progress=False)


def test_what_is_solved_or_sparse_is_not_dead() -> None:
    solved, sparse, resumed = (RunDiagnostics() for _ in range(3))
    solved.add_gradient(1.0, [torch.ones(40)], lr=0.1)
    solved.add_gradient(0.0, [torch.zeros(40)], lr=0.1)
    assert not solved.is_dead
    sparse.add_gradient(1.0, [torch.ones(40)], lr=0.1)
    sparse.add_gradient(
        1.0, [torch.eye(40)[0]], lr=0.1
    )  # of the one example that still loses
    assert not sparse.is_dead
    solved.add_gradient(1.0, [torch.zeros(40)], lr=0.1)
    resumed.load_state_dict(solved.state_dict())
    assert resumed.is_dead


def test_an_objective_that_diverges_is_told_whatever_the_method() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator) * torch.tensor([1.0, 30.0, 1000.0])
    y = torch.randint(0, 2, (200,), generator=generator) * 2.0 - 1.0
    w = torch.zeros(3, requires_grad=True)

    def risk(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * (batch[0] @ w))

    problem = oneproj.Problem(
        w, oneproj.mean(risk, (x, y)), {"one": oneproj.function(w.sum) <= 1e6}
    )
    with pytest.warns(OneprojWarning, match="start.*higher objective.*unit variance"):
        oneproj.solve(problem, method="lagrangian", steps=50, progress=False)


def fall(per_update: float) -> list[float]:
    return [1.0 + 0.2 * (k % 3) - per_update * k for k in range(400)]


@pytest.mark.parametrize(
    ("examples", "wanted"),
    [
        (50_000, "have not seen all 50000 once. Try steps=2400"),
        (32_000, "still fell by 11%. Try steps=1000"),  # all was seen
        (None, "still fell by 11%. Try steps=1000"),  # no data
    ],
)
def test_an_end_in_motion_names_more_steps(examples: int | None, wanted: str) -> None:
    with pytest.warns(OneprojWarning, match=wanted):
        warn_if_falling(fall(1e-3), steps=500, batch_size=64, examples=examples)


def test_with_a_checkpoint_more_steps_are_a_new_run() -> None:
    with pytest.warns(OneprojWarning, match="this one cannot be extended"):
        warn_if_falling(fall(1e-3), steps=500, batch_size=64, examples=None, saved=True)


@pytest.mark.parametrize(
    "seen",
    [
        [1.0 - 1e-4 * k for k in range(400)],  # at rest, nearly
        [y + 2.0 * (-1) ** k for k, y in enumerate(fall(1e-3))],  # noise
        [99.0, *fall(1e-3)],  # nearly gone
        [0.5, *fall(1e-3)],  # driven up, and coming back
        fall(1e-3)[:80],  # a trial
    ],
)
def test_other_ends_are_not_warned_of(seen: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_falling(seen, steps=500, batch_size=64, examples=50_000)


def slow_problem(examples: int) -> oneproj.Problem:
    w = torch.zeros(1, requires_grad=True)
    far = torch.full((examples, 1), 30.0)
    mean = oneproj.mean(lambda batch: (batch - w).square().squeeze(1), far)
    return oneproj.Problem(w, mean, {"cap": oneproj.function(w.sum) <= 100.0})


SLOW = {"steps": 200, "batch_size": 2, "lr": 0.01, "base": "sgd", "progress": False}


def test_solve_says_so() -> None:
    with pytest.warns(OneprojWarning, match="Try steps=1500"):
        oneproj.solve(slow_problem(1000), **SLOW)


def test_solve_says_so_after_a_pass_too() -> None:
    with pytest.warns(OneprojWarning, match="Try steps=400"):
        oneproj.solve(slow_problem(400), **SLOW)


def test_solve_says_nothing_of_a_run_at_rest() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oneproj.solve(slow_problem(400), **(SLOW | {"lr": 0.3}))
