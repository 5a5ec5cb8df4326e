"""The anchored oracle: unbiased, with values that are quieter towards its anchor.

A data set of N examples has N^k equally likely minibatches of k. Small ones are gone
through one by one, so that expectations here are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj import Counts, Hinge, Problem, function, mean
from oneproj.oracles import AbstractOracle, Anchored, Minibatch
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.oracles.plan import AnchorPlan
from oneproj.sets import Ball

N = 5
PUSH = (3.0, 2.0, 0.5, 0.25)
RADII = np.geomspace(1e-4, 1e-1, 7)


@dataclass(frozen=True)
class Linear(AbstractPenalty):
    """Pushes alike everywhere, so that ``.grad`` shows the estimate itself."""

    def weigh(self, values: Sequence[float]) -> list[float]:
        del values
        return list(PUSH)


class Case:
    """Two constraints on data, one with weights and one turned round; two without."""

    def __init__(self, rows: int = N, bound: float = 0.1) -> None:
        generator = torch.Generator().manual_seed(2)
        wide = {"generator": generator, "dtype": torch.float64}
        self.x = torch.randn(rows, 3, **wide)
        self.weights = torch.rand(rows, **wide)
        a = self.a = torch.randn(3, **wide).requires_grad_()
        b = self.b = torch.randn(2, **wide).requires_grad_()
        self.away = torch.nn.functional.normalize(torch.randn(5, **wide), dim=0)
        self.poisoned = False

        def risk(batch: Tensor) -> Tensor:
            losses = 2 * (batch @ a).tanh()
            return losses * math.nan if self.poisoned else losses

        gain = mean(lambda batch: (batch @ a + b.sum()).sin(), self.x)
        self.problem = Problem(
            [a, b],
            objective=function(lambda: a.square().sum() + b.sum()),
            constraints={
                "risk": mean(risk, self.x, weights=self.weights) <= bound,
                "gain": gain >= -0.2,
                "size": function(lambda: b.square().sum()) <= 1.0,
                "ball": Ball(0.1).on(a),
            },
        )
        self.counts = Counts()

    def oracle(
        self,
        kind: type[AbstractOracle] = Anchored,
        penalty: AbstractPenalty | None = None,
        **options: int | AnchorPlan,
    ) -> AbstractOracle:
        settings = {"batch_size": 1, "renew_every": None, **options}
        return kind(
            self.problem,
            penalty or Linear(),
            generator=torch.Generator().manual_seed(1),
            counts=self.counts,
            **settings,
        )

    @torch.no_grad()
    def move(self, length: float) -> None:
        """Go so far in one and the same direction."""
        self.a.add_(self.away[:3], alpha=length)
        self.b.add_(self.away[3:], alpha=length)

    def point(self) -> Tensor:
        return torch.cat([self.a.detach(), self.b.detach()]).clone()

    def gradient(self) -> Tensor:
        assert self.a.grad is not None
        assert self.b.grad is not None
        return torch.cat([self.a.grad, self.b.grad]).clone()

    def pin(self, rows: dict[int, tuple[int, ...]]) -> None:
        """Let the data constraints draw these, by size; the second the next rows."""
        for shift, name in enumerate(("risk", "gain")):
            self.problem.constraints[name].draw = lambda size, _, shift=shift: (
                (torch.tensor(rows[size]) + shift) % len(self.x)
            )

    def truth(self) -> tuple[Tensor, Tensor]:
        """All values, and the gradient of f + sum_j PUSH_j c_j, on all data."""
        c = [term.batch_value(None) for term in self.problem.constraints.values()]
        f = self.problem.objective.batch_value(None)
        loss = f + sum(w * value for w, value in zip(PUSH, c, strict=True))
        gradient = torch.autograd.grad(loss, [self.a, self.b])
        return torch.stack(c).detach(), torch.cat(gradient)


def batches(size: int) -> Iterator[dict[int, tuple[int, ...]]]:
    """Every minibatch of that size, each equally likely."""
    return ({size: rows} for rows in product(range(N), repeat=size))


def see_all(case: Case, oracle: AbstractOracle, size: int) -> tuple[Tensor, Tensor]:
    """What each of the minibatches says: rows of values, rows of gradients."""
    values, gradients = [], []
    for rows in batches(size):
        case.pin(rows)
        values.append([*oracle.backward().residuals.values()])
        gradients.append(case.gradient())
    return torch.tensor(values, dtype=torch.float64), torch.stack(gradients)


# --- unbiased -----------------------------------------------------------------


@pytest.mark.parametrize("length", [0.3, 3.0])
@pytest.mark.parametrize("size", [1, 2])
def test_the_mean_over_all_minibatches_is_that_of_all_data(
    size: int, length: float
) -> None:
    case = Case()
    oracle = case.oracle(batch_size=size)
    oracle.anchor()
    case.move(length)
    values, gradients = see_all(case, oracle, size)
    c, gradient = case.truth()
    torch.testing.assert_close(values.mean(0), c, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradients.mean(0), gradient, rtol=1e-12, atol=1e-13)


def test_so_is_the_mean_over_all_minibatches_and_all_sampled_anchors() -> None:
    values, gradients = [], []
    for rows in batches(2):  # the anchor's samples have two examples, batches one
        case = Case()
        oracle = case.oracle(plan=AnchorPlan(2))
        case.pin(rows)
        oracle.anchor()
        case.move(0.3)
        seen = see_all(case, oracle, 1)
        values.append(seen[0].mean(0))
        gradients.append(seen[1].mean(0))
    c, gradient = case.truth()
    assert torch.stack(values).std(0)[0] > 0.1, "the samples differ"
    torch.testing.assert_close(torch.stack(values).mean(0), c)
    torch.testing.assert_close(torch.stack(gradients).mean(0), gradient)


@pytest.mark.parametrize("slopes", [40, 10])  # or the change of ten since a full look
@pytest.mark.parametrize("options", [{}, {"plan": AnchorPlan(20)}])
def test_so_is_the_mean_over_what_the_generator_draws(
    options: dict[str, AnchorPlan], slopes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj.oracles.anchor.GRADIENT_EXAMPLES", slopes)
    case = Case(rows=40)
    oracle = case.oracle(batch_size=4, **options)
    seen = []
    for _ in range(400):
        case.move(-0.25)
        oracle.anchor()
        case.move(0.5)
        residuals = case.a.new_tensor([*oracle.backward().residuals.values()])
        seen.append(torch.cat([residuals, case.gradient()]))
        case.move(-0.25)
    case.move(0.25)
    found, expected = torch.stack(seen), torch.cat(case.truth())
    error = found.std(0) / math.sqrt(len(seen))
    # Nine normal deviates; one beyond 4 has a probability below 1e-3.
    assert bool(((found.mean(0) - expected).abs() <= 4 * error + 1e-12).all())


# --- variance -----------------------------------------------------------------


def variance(kind: type[AbstractOracle], length: float) -> float:
    """Of the value of "risk", at a distance from the anchor."""
    case = Case()
    oracle = case.oracle(kind)
    oracle.anchor()
    case.move(length)
    values, _ = see_all(case, oracle, 1)
    return float(values[:, 0].var(unbiased=False))


def test_the_variance_falls_with_the_square_of_the_distance() -> None:
    found = [variance(Anchored, r) for r in RADII]
    slope, _ = np.polyfit(np.log(RADII), np.log(found), 1)
    assert slope == pytest.approx(2.0, abs=0.02)


def test_there_is_none_at_the_anchor() -> None:
    assert variance(Anchored, 0.0) < 1e-30


@pytest.mark.parametrize("length", [1e-3, 1e-2, 1e-1])
def test_near_the_anchor_it_is_below_that_of_a_minibatch(length: float) -> None:
    assert variance(Anchored, length) < 10 * length**2 * variance(Minibatch, length)


def test_the_gradient_is_that_of_the_minibatch() -> None:
    found = []
    for kind in (Anchored, Minibatch):
        case = Case()
        oracle = case.oracle(kind)
        oracle.anchor()
        case.move(0.7)
        found.append(see_all(case, oracle, 1)[1])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("length", [1e-2, 1.0, 10.0])
@pytest.mark.parametrize("size", [1, 2])
def test_the_bound_of_lipschitz_losses_holds(size: int, length: float) -> None:
    case = Case()
    oracle = case.oracle(batch_size=size)
    oracle.anchor()
    case.move(length)
    values, _ = see_all(case, oracle, size)
    # tanh has slope 1 at most, so the i-th loss has 2 weight_i |x_i|.
    L = float((2 * case.weights * case.x.norm(dim=1)).max())
    assert float(values[:, 0].var(unbiased=False)) <= L**2 * length**2 / size


# --- inside a hinge -----------------------------------------------------------


@pytest.mark.parametrize("c", [-0.05, 0.0, 0.05])
@pytest.mark.parametrize("length", [0.01, 0.1])
def test_its_hinge_is_nearer_to_the_hinge_of_c(length: float, c: float) -> None:
    case = Case(bound=0.0)
    case.move(length)
    bound = case.problem.constraints["risk"].value() - c

    def bias(kind: type[AbstractOracle]) -> float:
        case = Case(bound=bound)
        oracle = case.oracle(kind)
        oracle.anchor()
        case.move(length)
        assert case.problem.residuals()["risk"] == pytest.approx(c, abs=1e-12)
        values, _ = see_all(case, oracle, 1)
        return float(values[:, 0].clamp(min=0).mean()) - max(c, 0.0)

    assert bias(Minibatch) > 0.1, "upwards, by Jensen"
    assert -1e-12 <= bias(Anchored) <= 0.1 * bias(Minibatch)


# --- at the anchor ------------------------------------------------------------


def test_at_the_anchor_it_says_what_is_known_and_looks_at_no_minibatch() -> None:
    case = Case()
    oracle = case.oracle()
    anchor = oracle.anchor()
    for name in ("risk", "gain"):
        case.problem.constraints[name].draw = None  # cannot be called
    assert oracle.backward().residuals == anchor.values == case.problem.residuals()
    torch.testing.assert_close(case.gradient(), case.truth()[1], rtol=1e-12, atol=0)


# --- counts and renewal -------------------------------------------------------


def test_an_anchor_and_its_updates_are_counted() -> None:
    case = Case(bound=5.0)  # more than the risk can be
    oracle = case.oracle(penalty=Hinge(1.0, "sum"))
    oracle.anchor()
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=2)
    oracle.backward()  # here the anchor has all that is needed
    pushed = 0
    for _ in range(2):
        seen = oracle.backward().residuals
        pushed += sum(c > 0 for c in seen.values())
    assert 0 < pushed < 8
    assert case.counts == Counts(
        objective_gradients=3, constraint_gradients=4 + pushed, constraint_passes=2
    )


def test_every_update_draws_a_minibatch_of_its_own() -> None:
    case = Case(rows=50)
    oracle = case.oracle(batch_size=4)
    oracle.anchor()
    case.move(0.5)
    drawn = []
    for _ in range(4):
        oracle.backward()
        drawn.append(tuple(oracle._drawn["risk"].tolist()))
    assert len(set(drawn)) == 4


def anchors(oracle: Anchored, updates: int) -> list[int]:
    """The updates at which an anchor was taken."""
    taken: list[int] = []
    take = oracle.anchor
    oracle.anchor = lambda: (taken.append(k), take())[1]
    for k in range(1, updates + 1):  # noqa: B007 - the anchor looks at it
        oracle.backward()
    return taken


def test_an_anchor_renews_itself_where_the_method_has_no_centre() -> None:
    assert anchors(Case().oracle(renew_every=4), 13) == [1, 5, 9, 13]
    assert anchors(Case().oracle(renew_every=None), 13) == [1]


def test_an_anchor_that_the_method_renews_starts_to_age_then() -> None:
    oracle = Case().oracle(renew_every=4)
    for _ in range(3):
        oracle.backward()
    oracle.anchor()
    assert anchors(oracle, 6) == [5]


def test_after_a_renewal_the_new_anchor_is_the_one_that_counts() -> None:
    case = Case()
    oracle = case.oracle()
    oracle.anchor()
    case.move(2.0)
    oracle.anchor()
    values, _ = see_all(case, oracle, 1)
    assert float(values.std(0).max()) < 1e-15
