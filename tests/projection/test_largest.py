"""Bounds on the largest values over data, projected by the examples that matter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from oneproj.projection import Cuts

EXAMPLES, WIDTH = 60, 6


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def network(seed: int) -> tuple[nn.Module, Callable[[Tensor], Tensor], Tensor]:
    """A smooth network, the loss of each example, and the examples."""
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    parts = list(model.parameters())
    with torch.no_grad():
        for k, p in enumerate(parts):
            p.copy_(0.5 * normal(10 * seed + k, *p.shape))
    return model, lambda x: softplus(model(x)[:, 0] + x[:, 0]), normal(seed, 60, WIDTH)


def worst_of(
    losses: Callable[[Tensor], Tensor], x: Tensor, count: int
) -> Callable[[], Tensor]:
    """The same as a function of the parameters alone."""
    return lambda: losses(x).topk(count).values.mean()  # noqa: PLW0108 - anew each time


def linear(seed: int) -> tuple[Tensor, Callable[[Tensor], Tensor], Tensor]:
    w = normal(seed + 1, WIDTH).requires_grad_()
    return w, lambda x: softplus(x @ w), normal(seed, EXAMPLES, WIDTH)


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("seed", range(3))
def test_every_example_of_a_network_is_bounded(seed: int, count: int) -> None:
    model, losses, x = network(seed)
    worst = oneproj.largest(losses, data=x, count=count)
    cap = 0.7 * worst.value()
    done = oneproj.project(model.parameters(), {"worst": worst <= cap})
    with torch.no_grad():
        assert float(losses(x).topk(count).values.mean()) <= cap
    assert done.residuals["worst"] <= 0
    assert done.residuals_before["worst"] > 0
    assert done.multipliers["worst"] > 0
    assert done.kkt_residual <= 1e-2
    assert list(done.multipliers) == ["worst"]


@pytest.mark.parametrize("count", [1, 6])
def test_a_network_takes_fewer_gradients_than_its_maximum(count: int) -> None:
    def used(*, largest: bool) -> int:
        total = 0
        for seed in range(4):
            model, losses, x = network(seed)
            whole = oneproj.function(worst_of(losses, x, count))
            term = oneproj.largest(losses, data=x, count=count) if largest else whole
            cap = 0.7 * whole.value()
            total += oneproj.project(model.parameters(), {"c": term <= cap}).gradients
        return total

    assert used(largest=True) <= 0.7 * used(largest=False)


@pytest.mark.parametrize("count", [1, 6])
def test_convex_examples_keep_the_proof_in_fewer_gradients(count: int) -> None:
    used = {True: 0, False: 0}
    for seed in range(4):
        found = {}
        for largest in used:
            w, losses, x = linear(seed)
            whole = oneproj.function(worst_of(losses, x, count), curvature="convex")
            term = oneproj.largest(losses, data=x, count=count, curvature="convex")
            cap = (term if largest else whole) <= 0.5 * whole.value()
            found[largest] = oneproj.project(w, {"c": cap})
            used[largest] += found[largest].gradients
        many, one = found[True], found[False]
        assert many.lower_bound is not None
        assert many.distance == pytest.approx(one.distance, rel=1e-6)
        assert many.lower_bound == pytest.approx(many.distance, rel=1e-6)
        assert many.lower_bound <= many.distance
    assert used[True] <= 0.8 * used[False]


def test_the_answer_is_that_of_one_constraint_for_each_example() -> None:
    found = []
    for split in (False, True):
        model, losses, x = network(0)
        worst = oneproj.largest(losses, data=x)
        cap = 0.7 * worst.value()
        constraints = {"worst": worst <= cap}
        if split:
            constraints = {
                f"row {i}": oneproj.mean(losses, data=x[i : i + 1]) <= cap
                for i in range(len(x))
            }
        found.append(oneproj.project(model.parameters(), constraints))
    assert found[0].distance == pytest.approx(found[1].distance, rel=1e-4)


def test_other_constraints_and_sets_hold_too() -> None:
    model, losses, x = network(1)
    worst, average = oneproj.largest(losses, data=x), oneproj.mean(losses, data=x)
    weight = next(model.parameters())
    constraints = {
        "worst": worst <= 0.7 * worst.value(),
        "mean": average <= 0.7 * average.value(),
        "size": oneproj.sets.Ball(0.9 * float(weight.detach().norm())).on(weight),
    }
    done = oneproj.project(model.parameters(), constraints)
    assert max(done.residuals.values()) <= 0
    assert set(done.residuals) == set(done.multipliers) == set(constraints)


def test_an_example_that_becomes_the_largest_later_is_bounded() -> None:
    # Lowering the first 9 rows raises the tenth, which is far below at the start.
    x = torch.cat([torch.ones(9, dtype=torch.float64), -torch.ones(1).double()])
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    worst = oneproj.largest(lambda x: x * w**3 + 2.0 * (x < 0), data=x)
    done = oneproj.project(w, {"worst": worst <= 2.0})
    assert w.item() == pytest.approx(2.0 ** (1 / 3), rel=1e-3)
    assert done.residuals["worst"] <= 0


def test_a_bound_that_no_example_reaches_is_said_to_be_infeasible() -> None:
    w, losses, x = linear(0)
    worst = oneproj.largest(lambda x: 1.0 + losses(x), data=x)
    with pytest.raises(oneproj.InfeasibleError, match="'worst' could not be met"):
        oneproj.project(w, {"worst": worst <= 0.5})


def test_convex_examples_that_exclude_each_other_are_proven_infeasible() -> None:
    x = torch.tensor([1.0, -1.0], dtype=torch.float64)
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    worst = oneproj.largest(lambda x: 1.0 + x * w, data=x, curvature="linear")
    done = oneproj.project(w, {"worst": worst <= 0.5}, on_failure="return")
    assert done.status is oneproj.Status.PROVEN_INFEASIBLE


def test_with_little_memory_the_answer_is_feasible_too() -> None:
    for curvature in ("convex", None):
        w, losses, x = linear(2)
        worst = oneproj.largest(losses, data=x, curvature=curvature)
        cap = worst <= 0.5 * worst.value()
        assert oneproj.project(w, {"worst": cap}, projector=Cuts(memory=8)).status.ok


def test_history_counts_all_gradients() -> None:
    model, losses, x = network(2)
    worst = oneproj.largest(losses, data=x)
    cap = worst <= 0.7 * worst.value()
    done = oneproj.project(model.parameters(), {"worst": cap})
    counts = [count for count, _, _ in done.history]
    assert counts == sorted(counts)
    assert counts[-1] <= done.gradients


def test_solve_takes_the_largest_as_a_constraint() -> None:
    w, losses, x = linear(0)
    target = w.detach().clone()
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"worst": oneproj.largest(losses, data=x) <= 1.0},
        radius=10.0,
    )
    solution = oneproj.solve(problem, steps=100, seed=0)
    assert solution.feasible
    with torch.no_grad():
        assert float(losses(x).max()) <= 1.0


@pytest.mark.parametrize(
    "written",
    [
        lambda worst, cap: 2.0 * worst <= 2.0 * cap,
        lambda worst, cap: worst - 0.1 <= cap - 0.1,
        lambda worst, cap: -worst >= -cap,
    ],
)
def test_a_multiple_or_a_shift_is_projected_by_its_examples_too(
    written: Callable[[oneproj.problem.terms.AbstractExpression, float], object],
) -> None:
    def done(form: Callable[..., object]) -> oneproj.Projection:
        model, losses, x = network(0)
        worst = oneproj.largest(losses, data=x)
        cap = 0.7 * worst.value()
        return oneproj.project(model.parameters(), {"worst": form(worst, cap)})

    plain, other = done(lambda worst, cap: worst <= cap), done(written)
    assert other.gradients == plain.gradients
    assert other.distance == pytest.approx(plain.distance, rel=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_rounds_together_keep_to_the_number_of_evaluations(seed: int) -> None:
    # To the last digit each round would take all of them. The second 40 are for the
    # constraint itself, where the rounds end without a feasible point.
    model, losses, x = network(seed)
    worst = oneproj.largest(losses, data=x, count=6)
    cap = worst <= 0.5 * worst.value()
    projector = Cuts(tolerance=0.0, min_gain=0.0, max_evaluations=40)
    done = oneproj.project(model.parameters(), {"worst": cap}, projector=projector)
    assert done.residuals["worst"] <= 0
    assert done.gradients <= 2 * 40 + 10
