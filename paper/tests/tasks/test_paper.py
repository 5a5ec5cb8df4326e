"""The experiments by name: built the same for the same seed, and solvable."""

from __future__ import annotations

import os

import pytest
import torch

from oneproj.errors import InvalidProblemError
from oneproj.problem.terms import Constraint
from oneproj.projection.project import project
from oneproj_paper.tasks import build
from oneproj_paper.tasks.models import count_parameters
from oneproj_paper.tasks.settings import Method

SYNTHETIC = ["transfer-gaussian", "abstention-gaussian"]


@pytest.mark.parametrize(
    ("name", "count", "sizes"),
    [
        ("transfer-gaussian", 11, (80, 2_000)),
        ("transfer-climsim", 1_009, (200, 380)),
        ("abstention-gaussian", 18, (1_200, 600, 600)),
        ("abstention-climsim", 17_026, (6_404, 6_083, 321)),
        ("abstention-nasa", 466, (29_581, 28_244, 1_337)),
        ("abstention-credit", 674, (14_318, 12_741, 1_577)),
    ],
)
def test_each_experiment_has_its_shape(
    name: str, count: int, sizes: tuple[int, ...]
) -> None:
    if name not in SYNTHETIC and not os.environ.get("ONEPROJ_DATA"):
        pytest.skip("ONEPROJ_DATA is not set: the real files are not here")
    experiment = build(name)
    problem = experiment.problem
    assert count_parameters(experiment.model) == count
    terms = (problem.objective, *problem.constraints.values())
    assert tuple(term.size for term in terms) == sizes
    feasible = max(problem.residuals().values()) <= 0
    assert feasible == name.startswith("transfer")  # the source reference is feasible
    assert experiment.data.stand_in == name.endswith("climsim")


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_seed_fixes_data_and_start(name: str) -> None:
    first, again, other = (build(name, seed) for seed in (3, 3, 4))
    assert all(map(torch.equal, first.start, again.start))
    assert not any(map(torch.equal, first.start, other.start))
    assert torch.equal(first.data.train.x, again.data.train.x)
    assert first.problem.residuals() == again.problem.residuals()


@pytest.mark.parametrize("name", SYNTHETIC)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_data_and_model_have_the_dtype(name: str, dtype: torch.dtype) -> None:
    experiment = build(name, dtype=dtype)
    assert experiment.data.test.x.dtype == dtype
    assert {p.dtype for p in experiment.problem.parameters} == {dtype}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_reset_returns_to_the_start(name: str) -> None:
    experiment = build(name)
    before = experiment.problem.objective.value()
    for p in experiment.problem.parameters:
        p.data.add_(1.0)
    assert experiment.problem.objective.value() != before
    experiment.reset()
    assert experiment.problem.objective.value() == before


def test_the_transfer_start_is_the_source_reference() -> None:
    experiment = build("transfer-gaussian")
    assert experiment.problem.residuals()["source risk"] < 0
    assert experiment.start_seconds > 0
    assert set(experiment.measure(experiment.data.test)) == {"error", "risk"}


def test_the_abstention_start_is_random_and_can_be_projected() -> None:
    experiment = build("abstention-gaussian", dtype=torch.float64)
    problem = experiment.problem
    assert max(problem.residuals().values()) > 0
    assert experiment.start_seconds == 0
    project(problem.parameters, problem.constraints)
    assert max(problem.residuals().values()) <= 0


def bounds(thresholds: Method | tuple[float, float] | None) -> list[float]:
    problem = build("abstention-gaussian", thresholds=thresholds).problem
    constraints = problem.constraints.values()
    return [c.bound for c in constraints if isinstance(c, Constraint)]


def test_thresholds_are_a_methods_or_the_users() -> None:
    caps = [bounds(t) for t in (None, "projected-sgd", (0.2, 0.4))]
    slack = 0.5 / 600**0.5
    assert caps[0] == caps[1] == pytest.approx([0.3 + slack] * 2)
    assert caps[2] == pytest.approx([0.2 + slack, 0.4 + slack])


@pytest.mark.parametrize(
    ("name", "thresholds", "message"),
    [
        ("abstention-moon", None, "no experiment 'abstention-moon'.*transfer-gaussian"),
        ("transfer-gaussian", (0.1, 0.1), "has no thresholds"),
        ("abstention-gaussian", "adam", "two numbers or one of one-projection"),
    ],
)
def test_what_does_not_exist_is_refused(
    name: str, thresholds: object, message: str
) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        build(name, thresholds=thresholds)  # type: ignore[arg-type]
