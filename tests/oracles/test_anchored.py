"""The anchored oracle: unbiased, quieter towards its anchor, and discreet.

A data set of N examples has N^k equally likely minibatches of k. Small ones are gone
through one by one, so that expectations here are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from oneproj import Counts, Hinge, NonFiniteError, Problem, function, mean
from oneproj.oracles import AbstractOracle, Anchored, Minibatch, anchored
from oneproj.oracles.anchored import UPDATES_PER_BATCH
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


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every update see a minibatch of its own."""
    monkeypatch.setattr(anchored, "UPDATES_PER_BATCH", 1)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("length", [0.0, 0.3, 3.0])
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


def variances(kind: type[AbstractOracle], length: float) -> tuple[float, float]:
    """Of the value of "risk" and of the gradient, at a distance from the anchor."""
    case = Case()
    oracle = case.oracle(kind)
    oracle.anchor()
    case.move(length)
    values, gradients = see_all(case, oracle, 1)
    spread = gradients - gradients.mean(0)
    return (
        float(values[:, 0].var(unbiased=False)),
        float(spread.square().sum(1).mean()),
    )


@pytest.mark.usefixtures("fresh")
def test_the_variance_falls_with_the_square_of_the_distance() -> None:
    found = np.array([variances(Anchored, r) for r in RADII])
    for column in found.T:
        slope, _ = np.polyfit(np.log(RADII), np.log(column), 1)
        assert slope == pytest.approx(2.0, abs=0.02)


def test_there_is_none_at_the_anchor() -> None:
    value, gradient = variances(Anchored, 0.0)
    assert value == 0.0
    assert gradient < 1e-28, "but for rounding"


@pytest.mark.parametrize("length", [1e-3, 1e-2, 1e-1])
def test_near_the_anchor_it_is_below_that_of_a_minibatch(length: float) -> None:
    quiet, loud = variances(Anchored, length), variances(Minibatch, length)
    assert quiet[0] < 10 * length**2 * loud[0]
    assert quiet[1] < 10 * length**2 * loud[1]


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


@pytest.mark.usefixtures("fresh")
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


# --- what it leaves behind ----------------------------------------------------


def test_the_parameters_keep_their_bits_and_their_place() -> None:
    case = Case()
    oracle = case.oracle()
    oracle.anchor()
    case.move(0.7)
    with torch.no_grad():
        case.b[0] = -0.0
    before, places = case.point(), [case.a.data_ptr(), case.b.data_ptr()]
    oracle.backward()
    assert torch.equal(case.point().view(torch.int64), before.view(torch.int64))
    assert [case.a.data_ptr(), case.b.data_ptr()] == places
    assert case.a.is_leaf
    assert case.a.requires_grad


def at_anchor(
    case: Case, oracle: AbstractOracle, meddle: Callable[[Tensor], Tensor]
) -> Tensor:
    """Move away from an anchor, and meddle with the risk that is seen there."""
    anchor = oracle.anchor()
    case.move(0.7)
    constraint = case.problem.constraints["risk"]
    evaluate = constraint.batch_value

    def batch_value(indices: Tensor | None) -> Tensor:
        value = evaluate(indices)
        return meddle(value) if torch.equal(case.a, anchor.point[0]) else value

    constraint.batch_value = batch_value
    return case.point()


def test_also_when_the_visit_at_the_anchor_ends_in_an_error() -> None:
    case = Case()
    oracle = case.oracle()
    before = at_anchor(case, oracle, lambda value: value * math.nan)
    with pytest.raises(NonFiniteError, match="the value of 'risk'"):
        oracle.backward()
    assert torch.equal(case.point().view(torch.int64), before.view(torch.int64))


def test_also_when_the_way_back_from_there_does() -> None:
    def fail(gradient: Tensor) -> None:
        raise ZeroDivisionError(gradient)

    case = Case()
    oracle = case.oracle()
    before = at_anchor(
        case, oracle, lambda value: (value.register_hook(fail), value)[1]
    )
    with pytest.raises(ZeroDivisionError):
        oracle.backward()
    assert torch.equal(case.point().view(torch.int64), before.view(torch.int64))


def test_also_when_the_gradient_at_the_anchor_is_not_finite() -> None:
    a = torch.tensor([0.0, 4.0], requires_grad=True)
    x = torch.ones(3, 2)
    # At the anchor the value is 2 and the gradient has an inf.
    root = mean(lambda batch: batch @ a.clamp(min=0).sqrt(), x) <= 1.0
    problem = Problem(a, function(a.sum), {"root": root})
    oracle = Anchored(
        problem,
        Hinge(1.0),
        batch_size=2,
        generator=torch.Generator(),
        counts=Counts(),
    )
    with pytest.raises(NonFiniteError, match="the gradient of 'root'"):
        oracle.backward()
    assert a.tolist() == [0.0, 4.0]


# --- counts and renewal -------------------------------------------------------


@pytest.mark.usefixtures("fresh")
def test_an_anchor_and_its_updates_are_counted() -> None:
    case = Case(bound=5.0)  # more than the risk can be
    oracle = case.oracle(penalty=Hinge(1.0, "sum"))
    oracle.anchor()
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=2)
    oracle.backward()  # here the anchor has all that is needed
    with_data = [n for n, c in case.problem.constraints.items() if c.size is not None]
    pushed = 0
    for _ in range(2):
        seen = oracle.backward().residuals
        # A backward pass here and, for what has data, one at the anchor.
        pushed += sum(1 + (name in with_data) for name, c in seen.items() if c > 0)
    assert 0 < pushed < 16
    assert case.counts == Counts(
        objective_gradients=3, constraint_gradients=4 + pushed, constraint_passes=2
    )


def test_a_minibatch_serves_some_updates_and_is_corrected_once() -> None:
    case = Case(rows=50)
    oracle = case.oracle(batch_size=4)
    oracle.anchor()
    case.move(0.5)
    drawn, gradients, made = [], [], []
    for k in range(2 * UPDATES_PER_BATCH):
        if k == UPDATES_PER_BATCH + 1:
            oracle.anchor()  # before its time is over
            case.move(0.5)
        before = case.counts.constraint_gradients
        oracle.backward()
        made.append(case.counts.constraint_gradients - before)
        drawn.append(tuple(oracle._drawn["risk"].tolist()))
        gradients.append(case.gradient())
    assert drawn[0] == drawn[UPDATES_PER_BATCH - 1] != drawn[UPDATES_PER_BATCH]
    assert drawn[UPDATES_PER_BATCH] != drawn[UPDATES_PER_BATCH + 1] == drawn[-1]
    torch.testing.assert_close(
        gradients[0], gradients[UPDATES_PER_BATCH - 1], rtol=0, atol=0
    )
    # Four constraints push, of which two have data: theirs are seen at the anchor too.
    assert made == [
        6,
        *[4] * (UPDATES_PER_BATCH - 1),
        6,
        6,
        *[4] * (UPDATES_PER_BATCH - 2),
    ]


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
