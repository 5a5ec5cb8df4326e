"""Methods and oracles of the user's own: what they return by mistake is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import oneproj
from oneproj.methods import AbstractMethod, AbstractUpdater
from oneproj.oracles import AbstractOracle, Estimate


def problem() -> oneproj.Problem:
    w = torch.full((2,), 0.5, requires_grad=True)
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    return oneproj.Problem(
        w,
        objective=oneproj.mean(lambda x: (x - w).square().sum(1) + 3.0, data=x),
        constraints={"risk": oneproj.mean(lambda x: (x @ w).square(), x) <= 0.1},
        radius=10.0,
    )


class Own(AbstractMethod):
    """Plain gradient descent, of which each part can be told to return another."""

    name = "own"

    def __init__(self, **returned: object) -> None:
        self.returned = returned

    def begin(self, context: Any) -> AbstractUpdater:  # noqa: ANN401 - the context
        return self.returned.get("begin", OwnUpdater(context, self.returned))


class OwnUpdater(AbstractUpdater):
    """One run of it."""

    def __init__(self, context: Any, returned: dict[str, Any]) -> None:  # noqa: ANN401
        self.context, self.returned = context, returned
        self.oracle = context.oracle(oneproj.Hinge(5.0))

    def update(self) -> Estimate:
        seen = self.oracle.backward()
        with torch.no_grad():
            for p in self.context.problem.parameters:
                p.sub_(0.01 * p.grad)
        return self.returned.get("update", seen)

    def finish(self) -> oneproj.Projection:
        return self.returned.get("finish", self.context.project())


def test_one_that_returns_what_it_should_runs() -> None:
    assert oneproj.solve(problem(), method=Own(), steps=5).feasible


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"begin": None}, r"begin\(\) of the method 'own' .*AbstractUpdater.* None"),
        ({"update": None}, r"update\(\) of OwnUpdater .*Estimate.* None.*backward"),
        ({"update": 0.3}, r"update\(\) of OwnUpdater .*Estimate.* 0\.3"),
        ({"update": Estimate(0.3, {})}, r"without the constraints \['risk'\]"),
        ({"finish": None}, r"finish\(\) of the method .*Projection.*context\.project"),
    ],
)
def test_what_a_method_returns_by_mistake_is_named(
    returned: dict[str, object], message: str
) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        oneproj.solve(problem(), method=Own(**returned), steps=5)


class Detached(AbstractOracle):
    """Estimates without a gradient: the constraint would have no effect."""

    name = "detached"

    def estimate(self, constraint: Any) -> tuple[float, Tensor | None]:  # noqa: ANN401
        value, graph = self.evaluate_all(constraint)
        return value, graph.detach()


def test_an_oracle_that_detaches_its_estimate_is_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="'risk' that has no gradie"):
        oneproj.solve(problem(), oracle=Detached, steps=5)


def test_a_constraint_that_is_constant_on_a_minibatch_is_no_mistake() -> None:
    w = torch.ones(1, requires_grad=True)
    x = torch.cat([torch.ones(4), torch.zeros(400)])

    def loss(batch: Tensor) -> Tensor:
        return batch * w if batch.any() else torch.zeros(len(batch))

    constraint = oneproj.mean(loss, data=x) <= 0.5
    objective = oneproj.function(lambda: (w - 0.1).square().sum())
    built = oneproj.Problem(w, objective, {"risk": constraint}, radius=10.0)
    solution = oneproj.solve(built, oracle="minibatch", batch_size=8, steps=20)
    assert solution.feasible
