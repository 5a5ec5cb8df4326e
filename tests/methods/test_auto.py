"""The method that is chosen for the user, and the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import oneproj
from oneproj.theory import Schedule

# Runs are stopped within their first outer iteration here, which is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:The selected iterate is the start")


def instance(parameters: int = 3, examples: int = 10) -> oneproj.Problem:
    """Half of the examples are behind the objective, half behind the constraint."""
    w = torch.zeros(parameters, dtype=torch.float64, requires_grad=True)
    data = torch.linspace(-1.0, 1.0, examples // 2, dtype=torch.float64)
    cap = oneproj.mean(lambda b: w.sum() * (1 + b), data=data, curvature="linear")
    return oneproj.Problem(
        w,
        oneproj.mean(lambda b: (w.sum() - b - 1.0).square(), data=data),
        {"cap": cap <= 0.5},
        radius=1.0,
    )


def chosen(problem: oneproj.Problem, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - of solve
    """The settings of a run that ends soon."""
    given = {"method": "auto", "callbacks": lambda update: update.update == 2} | given
    return dict(oneproj.solve(problem, **given).settings)


def test_few_parameters_and_little_data_go_to_slsqp() -> None:
    settings = chosen(instance(200, 20_000), steps=50)
    assert settings["method"] == "slsqp"
    assert settings["oracle"] == "exact"
    assert "200 parameters and 20000 examples are few" in settings["why"]
    assert set(settings["options"]) == {"tolerance"}


@pytest.mark.parametrize(("parameters", "examples"), [(201, 10), (3, 20_002)])
def test_larger_problems_go_to_algorithm_1(parameters: int, examples: int) -> None:
    described = chosen(instance(parameters, examples), steps=50)
    assert described["method"] == "one-projection"
    assert f"{parameters} parameters and {examples} examples" in described["why"]
    assert "lr" in described["options"]


def test_random_terms_go_to_algorithm_1() -> None:
    w = torch.zeros(2, requires_grad=True)
    generator = torch.Generator().manual_seed(0)

    def drops() -> torch.Tensor:
        kept = torch.rand(2, generator=generator) > 0.5
        return (w * kept - 1.0).square().sum() + torch.rand((), generator=generator)

    problem = oneproj.Problem(w, oneproj.function(drops), {})
    described = chosen(problem, steps=50)
    assert described["method"] == "one-projection"
    assert "two values at one point" in described["why"]


def test_a_schedule_goes_to_algorithm_1_without_options(
    short_schedule: Schedule,
) -> None:
    described = chosen(instance(), schedule=short_schedule, callbacks=())
    assert described["method"] == "one-projection"
    assert described["options"] is None


def test_the_looks_at_the_constraints_are_counted() -> None:
    counts = {
        method: oneproj.solve(instance(), method=method).counts
        for method in ("slsqp", "auto")
    }
    extra = counts["auto"].constraint_passes - counts["slsqp"].constraint_passes
    assert extra == 2


def test_it_is_the_chosen_method_from_then_on() -> None:
    answers = []
    for method in ("slsqp", "auto"):
        problem = instance()
        oneproj.solve(problem, method=method)
        answers.append(problem.parameters[0].detach().clone())
    assert torch.equal(*answers)


def test_options_are_those_of_a_named_method() -> None:
    message = "'auto' has no option 'lr'. Name the method whose option it is"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(instance(), method="auto", lr=0.1)


def test_the_solution_says_which_method_it_was_and_why() -> None:
    settings = oneproj.solve(instance(), method="auto").settings
    assert settings["method"] == "slsqp"
    assert settings["oracle"] == "exact"
    assert "are few" in settings["why"]
    settings = oneproj.solve(instance(300), method="auto", steps=50).settings
    assert settings["method"] == "one-projection"
    assert settings["options"]["select"] == "last"
