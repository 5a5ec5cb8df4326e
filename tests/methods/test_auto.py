"""The method that is chosen for the user, and the reason."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.methods import Auto
from oneproj.methods.auto import SLSQP_EXAMPLES, SLSQP_PARAMETERS
from oneproj.methods.base import prepare
from oneproj.theory import Schedule


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


def chosen(problem: oneproj.Problem, schedule: Schedule | None = None) -> Auto:
    context = prepare(
        problem,
        steps=None if schedule else 50,
        seed=0,
        schedule=schedule,
        projector="auto",
        oracle="auto",
        batch_size=64,
        anchor_size=None,
    )
    return Auto().begin(context)


def test_few_parameters_and_little_data_go_to_slsqp() -> None:
    method = chosen(instance(SLSQP_PARAMETERS, SLSQP_EXAMPLES))
    assert method.describe()["method"] == "slsqp"
    assert method.describe()["oracle"] == "exact"
    assert "200 parameters and 20000 examples are few" in method.describe()["why"]
    assert set(method.describe()["options"]) == {"tolerance"}


@pytest.mark.parametrize(
    ("parameters", "examples"), [(SLSQP_PARAMETERS + 1, 10), (3, SLSQP_EXAMPLES + 2)]
)
def test_larger_problems_go_to_algorithm_1(parameters: int, examples: int) -> None:
    described = chosen(instance(parameters, examples)).describe()
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
    described = chosen(problem).describe()
    assert described["method"] == "one-projection"
    assert "two values at one point" in described["why"]


def test_a_schedule_goes_to_algorithm_1_without_options(
    short_schedule: Schedule,
) -> None:
    described = chosen(instance(), short_schedule).describe()
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
