"""Oracles: the gradient that they leave, what they look at, what they count."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj import Counts, Hinge, Problem, Softplus, function, mean
from oneproj.oracles import ORACLES, AbstractOracle, AbstractPenalty
from oneproj.sets import Ball

Exact, Minibatch, Anchored = (
    ORACLES[name] for name in ("exact", "minibatch", "anchored")
)
examples = settings(derandomize=True, deadline=None, max_examples=25)
PENALTIES: dict[str, AbstractPenalty] = {
    "hinge max": Hinge(3.0),
    "hinge sum": Hinge(3.0, "sum"),
    "softplus max": Softplus(3.0, 0.7),
    "softplus sum": Softplus(3.0, 0.7, "sum"),
}
ROWS = 12


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class Case:
    """An objective and three constraints, two of them on data, that log their calls."""

    def __init__(self, seed: int = 0) -> None:
        self.a = normal(3, seed=seed).requires_grad_()
        self.b = normal(2, 2, seed=seed + 1).requires_grad_()
        self.x = normal(ROWS, 3, seed=seed + 2)
        self.seen: Counter[str] = Counter()
        """Examples that each function was given; 1 per call of a plain function."""
        self.problem = Problem(
            [self.a, self.b],
            objective=mean(self._fn("objective"), self.x),
            constraints={
                "risk": mean(self._fn("risk"), self.x, chunk_size=5) <= 0.3,
                "gain": mean(self._fn("gain"), self.x) >= -0.2,
                "size": function(self._size) <= 1.0,
            },
        )
        self.counts = Counts()
        self.seen.clear()

    def losses(self, name: str, x: Tensor) -> Tensor:
        y = x @ self.a
        return {"objective": y.square(), "risk": y.tanh() * 2, "gain": y.sin()}[name]

    def _fn(self, name: str) -> Callable[[Tensor], Tensor]:
        def fn(batch: Tensor) -> Tensor:
            self.seen[name] += len(batch)
            return self.losses(name, batch)

        return fn

    def _size(self) -> Tensor:
        self.seen["size"] += 1
        return self.a.square().sum() + self.b.square().sum()

    def values(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The objective and the constraints, on the given rows, by hand."""
        f = self.losses("objective", self.x[rows["objective"]]).mean()
        risk = self.losses("risk", self.x[rows["risk"]]).mean() - 0.3
        gain = -self.losses("gain", self.x[rows["gain"]]).mean() - 0.2
        size = self.a.square().sum() + self.b.square().sum() - 1.0
        return f, torch.stack([risk, gain, size])

    def oracle(
        self, kind: type[AbstractOracle], penalty: AbstractPenalty | None, **kw: int
    ) -> AbstractOracle:
        return kind(
            self.problem,
            penalty,
            batch_size=kw.get("batch_size", 4),
            generator=torch.Generator().manual_seed(kw.get("seed", 9)),
            counts=self.counts,
        )


ALL = torch.arange(ROWS)


def drawn(names: list[str], batch_size: int = 4, seed: int = 9) -> dict[str, Tensor]:
    """The rows that a run with this generator sees, in the order of the names."""
    generator = torch.Generator().manual_seed(seed)
    size = (batch_size,)
    return {n: torch.randint(ROWS, size, generator=generator) for n in names}


def check_gradient(
    case: Case, oracle: AbstractOracle, rows: dict[str, Tensor], p: AbstractPenalty
) -> None:
    f, c = case.values(rows)
    expected = torch.autograd.grad(f + p(c), [case.a, case.b], allow_unused=True)
    estimate = oracle.backward()
    for parameter, slope in zip([case.a, case.b], expected, strict=True):
        # A term without weight leaves no graph behind, so None means zero here.
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        want = torch.zeros_like(parameter) if slope is None else slope
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
    assert estimate.objective == pytest.approx(f.item(), rel=1e-12)
    assert list(estimate.residuals) == ["risk", "gain", "size"]
    assert list(estimate.residuals.values()) == pytest.approx(c.tolist(), rel=1e-12)


# --- the gradient -------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@examples
@given(seed=st.integers(0, 1000))
def test_exact_is_autograd_of_f_plus_p_of_c_on_all_data(
    seed: int, penalty: AbstractPenalty
) -> None:
    case = Case(seed)
    rows = {"risk": ALL, "gain": ALL, **drawn(["objective"])}
    check_gradient(case, case.oracle(Exact, penalty), rows, penalty)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@examples
@given(seed=st.integers(0, 1000))
def test_minibatch_is_autograd_on_a_batch_of_its_own_for_each_term(
    seed: int, penalty: AbstractPenalty
) -> None:
    case = Case(seed)
    rows = drawn(["objective", "risk", "gain"])
    check_gradient(case, case.oracle(Minibatch, penalty), rows, penalty)


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
def test_float32_parameters_and_a_float64_set_go_together(
    kind: type[AbstractOracle],
) -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    problem = Problem(w, function(w.sum), {"ball": Ball(1.0).on(w)})
    oracle = kind(
        problem,
        Hinge(5.0),
        batch_size=1,
        generator=torch.Generator(),
        counts=Counts(),
    )
    assert oracle.backward().residuals == {"ball": 4.0}
    assert w.grad is not None
    assert w.grad.dtype == torch.float32
    assert w.grad.tolist() == [4.0, 5.0]  # 1 + 5 * w / |w|


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
@pytest.mark.parametrize("penalty", [None, Hinge(3.0, "sum")])
def test_old_gradients_are_replaced_and_other_tensors_left_alone(
    kind: type[AbstractOracle], penalty: AbstractPenalty | None
) -> None:
    case = Case()
    outsider = torch.ones((), dtype=torch.float64, requires_grad=True)
    case.problem.objective = mean(
        lambda x: outsider * case.losses("objective", x), case.x
    ).named("objective")
    before = [case.a.detach().clone(), case.b.detach().clone()]
    case.oracle(kind, penalty).backward()
    first = case.a.grad
    case.a.grad = torch.full_like(case.a, 1e9)
    case.oracle(kind, penalty).backward()
    assert first is not None
    assert torch.equal(case.a.grad, first)
    assert outsider.grad is None
    assert torch.equal(case.a, before[0])
    assert torch.equal(case.b, before[1])


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
def test_a_satisfied_constraint_does_not_push(kind: type[AbstractOracle]) -> None:
    case = Case()
    with torch.no_grad():
        case.a.mul_(0.01)  # f, risk, gain and size are all near zero: feasible
        case.b.mul_(0.01)
    estimate = case.oracle(kind, Hinge(100.0, "sum")).backward()
    assert max(estimate.residuals.values()) < 0
    f, _ = case.values({"risk": ALL, "gain": ALL, **drawn(["objective"])})
    torch.testing.assert_close(case.a.grad, torch.autograd.grad(f, case.a)[0])
    assert case.b.grad is None
    assert case.counts.constraint_gradients == looks(kind)


def looks(kind: type[AbstractOracle]) -> int:
    """Constraint gradients that the first update costs beyond those of the penalty."""
    return 3 if kind is Anchored else 0  # the anchor has one of each constraint


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
@examples
@given(seed=st.integers(0, 1000))
def test_terms_without_data_are_exact(kind: type[AbstractOracle], seed: int) -> None:
    w = (2 * normal(3, seed=seed)).requires_grad_()
    cap = function(lambda: w.square() @ w) <= 0.1
    problem = Problem(w, function(w.sum), {"cap": cap, "ball": Ball(1.0).on(w)})
    oracle = kind(
        problem,
        Hinge(3.0, "sum"),
        batch_size=1,
        generator=torch.Generator(),
        counts=Counts(),
        renew_every=None,
    )
    for _ in range(3):  # away from where an anchor was taken, too
        estimate = oracle.backward()
        c = torch.stack([w.square() @ w - 0.1, w.norm() - 1.0])
        (want,) = torch.autograd.grad(w.sum() + Hinge(3.0, "sum")(c), w)
        torch.testing.assert_close(w.grad, want, rtol=1e-12, atol=1e-12)
        assert list(estimate.residuals.values()) == pytest.approx(c.tolist(), rel=1e-12)
        with torch.no_grad():
            w.mul_(-0.8)


# --- no penalty ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
def test_without_a_penalty_no_constraint_is_evaluated(
    kind: type[AbstractOracle],
) -> None:
    case = Case()
    estimate = case.oracle(kind, None).backward()
    assert case.seen == {"objective": 4}
    assert estimate.residuals == {}
    assert case.counts == Counts(objective_gradients=1)
    f, _ = case.values({"risk": ALL, "gain": ALL, **drawn(["objective"])})
    torch.testing.assert_close(case.a.grad, torch.autograd.grad(f, case.a)[0])
    assert case.b.grad is None


# --- counts -------------------------------------------------------------------


def count(kind: type[AbstractOracle], penalty: AbstractPenalty, calls: int) -> Case:
    case = Case(seed=3)
    oracle = case.oracle(kind, penalty)
    for _ in range(calls):
        oracle.backward()
    return case


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_exact_counts_the_passes_that_happened(penalty: AbstractPenalty) -> None:
    case = count(Exact, penalty, calls=3)
    rows_seen = case.seen["risk"] + case.seen["gain"]
    assert case.counts.constraint_passes == rows_seen // ROWS
    assert rows_seen % ROWS == 0
    assert case.counts.objective_gradients == 3
    assert case.seen["objective"] == 3 * 4
    assert case.seen["size"] == 3, "a plain function costs no pass over data"
    assert case.counts.projections == 0


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_minibatch_makes_no_pass(penalty: AbstractPenalty) -> None:
    case = count(Minibatch, penalty, calls=3)
    assert case.counts.constraint_passes == 0
    assert case.counts.objective_gradients == 3
    assert case.seen == {"objective": 12, "risk": 12, "gain": 12, "size": 3}


@pytest.mark.parametrize("kind", ORACLES.values(), ids=ORACLES)
def test_constraint_gradients_are_those_that_the_penalty_asks_for(
    kind: type[AbstractOracle],
) -> None:
    # Softplus pushes on the worst, or on each; the hinge on those that are violated.
    worst, each = Softplus(3.0, 0.7), Softplus(3.0, 0.7, "sum")
    first = looks(kind)
    fresh = 1 if kind is Anchored else 2  # at the anchor its gradients are at hand
    assert count(kind, worst, 2).counts.constraint_gradients == first + fresh
    expected = first + 3 * fresh
    assert count(kind, each, 2).counts.constraint_gradients == expected
    case = Case(seed=3)
    oracle = case.oracle(kind, Hinge(3.0, "sum"))
    oracle.backward()
    before = case.counts.constraint_gradients
    seen = oracle.backward().residuals
    violated = [name for name, c in seen.items() if c > 0]
    assert 0 < len(violated) < 3, "the case tells the violated from the others"
    assert case.counts.constraint_gradients == before + len(violated)


def test_counts_add_up_in_the_object_that_was_given() -> None:
    case = Case(seed=3)
    case.counts.projections = 7
    case.oracle(Minibatch, None).backward()
    assert dataclasses.asdict(case.counts) == {
        "objective_gradients": 1,
        "constraint_gradients": 0,
        "constraint_passes": 0,
        "projections": 7,
    }


# --- chance -------------------------------------------------------------------


def test_batches_are_fresh_at_every_update_and_the_seed_decides_them() -> None:
    def values(seed: int) -> list[float]:
        oracle = Case().oracle(Minibatch, Hinge(1.0), batch_size=3, seed=seed)
        return [oracle.backward().objective for _ in range(5)]

    assert values(1) == values(1)
    assert values(1) != values(2)
    assert len(set(values(1))) == 5
