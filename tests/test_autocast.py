"""A point is judged by what it is, not by what torch keeps of what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import oneproj

# At the bound bfloat16 and float64 may disagree, which a warning says.
pytestmark = pytest.mark.filterwarnings("ignore:Rounding decides")

BF16 = 2.0**-7
"""Of values near one, what the precision of autocast may change."""


@pytest.fixture(name="low")
def _low() -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


def line(weight: float) -> tuple[nn.Linear, oneproj.Problem]:
    """A score w x, of which the mean square, w^2, must not exceed 1."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, weight)
    x = torch.tensor([[1.0], [-1.0]])
    loss = oneproj.mean(lambda b: (layer(b)[:, 0] - 3.0 * b[:, 0]).square(), data=x)
    size = oneproj.mean(lambda b: layer(b)[:, 0].square(), data=x)
    return layer, oneproj.Problem(layer.parameters(), loss, {"size": size <= 1.0})


def exact(layer: nn.Linear) -> float:
    return layer.weight.item() ** 2 - 1.0


def cast(layer: nn.Linear) -> float:
    """A forward pass of the user's own, which autocast remembers."""
    return float(layer(torch.ones(1)).detach())


@pytest.mark.parametrize("method", ["one-projection", "slsqp"])
@pytest.mark.usefixtures("low")
def test_solve_moves_and_its_answer_is_feasible(method: str) -> None:
    layer, problem = line(0.0)
    solution = oneproj.solve(problem, method=method, steps=60)
    assert solution.feasible
    assert solution.residuals["size"] == pytest.approx(exact(layer), abs=2 * BF16)
    assert layer.weight.item() == pytest.approx(1.0, abs=0.15)
    assert solution.objective == pytest.approx(4.0, abs=0.7)


@pytest.mark.usefixtures("low")
def test_project_sees_what_moved_before_and_meanwhile() -> None:
    layer, problem = line(0.0)
    cast(layer)
    nn.init.constant_(layer.weight, 3.0)
    projection = oneproj.project(layer.parameters(), problem.constraints)
    assert projection.residuals_before["size"] == pytest.approx(8.0, abs=8 * BF16)
    assert projection.status.ok
    assert layer.weight.item() == pytest.approx(1.0, abs=0.15)
    # What comes after in the same block sees the answer as well.
    assert cast(layer) == pytest.approx(layer.weight.item(), abs=BF16)


@pytest.mark.usefixtures("low")
def test_certify_and_residuals_see_where_the_parameters_are() -> None:
    layer, problem = line(0.0)
    cast(layer)
    nn.init.constant_(layer.weight, 2.0)
    assert problem.residuals() == {"size": 3.0}
    cast(layer)
    nn.init.constant_(layer.weight, 3.0)
    certificate = oneproj.certify(problem)
    assert certificate["feasibility"].value == pytest.approx(8.0, abs=8 * BF16)


@pytest.mark.parametrize("before", [True, False])
def test_the_cache_is_on_again_if_it_was(*, before: bool) -> None:
    message, enabled, fails = "a bug of the user's", list[bool](), list[bool]()
    w = torch.ones(1, requires_grad=True)

    def size() -> torch.Tensor:
        enabled.append(torch.is_autocast_cache_enabled())
        if fails:
            raise ValueError(message)
        return w.square().sum()

    problem = oneproj.Problem(w, oneproj.function(size), {})
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=before):
        enabled.clear()
        oneproj.certify(problem)
        assert set(enabled) == {False}
        assert torch.is_autocast_cache_enabled() is before
        fails.append(True)
        with pytest.raises(ValueError, match=message):
            oneproj.certify(problem)
        assert torch.is_autocast_cache_enabled() is before


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * x


def test_inside_a_cache_of_parametrisations_nothing_is_evaluated() -> None:
    layer, problem = line(0.5)
    parametrize.register_parametrization(layer, "weight", Doubled())
    (raw,) = layer.parameters()
    objective, caps = problem.objective, problem.constraints
    built = oneproj.Problem(raw, objective, caps)
    calls: dict[str, Callable[[], object]] = {
        "Problem": lambda: oneproj.Problem(raw, objective, caps),
        "solve": lambda: oneproj.solve(built, steps=4),
        "project": lambda: oneproj.project(raw, caps),
        "certify": lambda: oneproj.certify(built),
        "residuals": built.residuals,
    }
    for call in calls.values():
        with (
            parametrize.cached(),
            pytest.raises(oneproj.InvalidProblemError, match=r"parametrize\.cached"),
        ):
            call()
    assert raw.item() == 0.5
    nn.init.constant_(raw, 3.0)
    with parametrize.cached():
        assert cast(layer) == 6.0
    assert built.residuals() == {"size": 35.0}, "outside, the parameters count"
    assert oneproj.solve(built, steps=20).feasible
