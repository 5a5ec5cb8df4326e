"""Projections and runs whose bounds on rates hold for the counts."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from benchmarks.rates.problems import Table, mixture
from oneproj import rates


def two_classes(n: int = 400, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.rand(n, generator=draw) < 0.4
    x = torch.randn(n, 3, generator=draw)
    x[:, 0] += 1.2 * y
    return x, y


class Linear:
    """A linear score of rows with three columns, and a bias."""

    def __init__(self, start: tuple[float, ...] = (1.0, 0.2, 0.0, 0.0)) -> None:
        self.w = torch.tensor(start, requires_grad=True)

    def __call__(self, rows: Tensor) -> Tensor:
        return rows @ self.w[:-1] + self.w[-1]


class TestProject:
    @pytest.mark.parametrize("alpha", [0.0, 0.01, 0.1, 0.3])
    @pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
    def test_counts_hold_and_use_what_is_allowed(
        self, alpha: float, scale: float
    ) -> None:
        x, y = two_classes(2000)
        score = Linear((scale, 0.2 * scale, 0.0, 0.5 * scale))
        fpr = rates.false_positive_rate(score, (x, y))
        assert fpr.value() > alpha
        done = oneproj.project(score.w, {"fpr": fpr <= alpha})
        assert done.status.ok
        assert done.residuals["fpr"] == fpr.value() - alpha <= 0
        assert done.residuals["fpr"] >= -0.01  # little of the bound is left unused
        assert done.residuals_before["fpr"] > 0
        assert "counts" in done.remark
        assert not done.is_nearest  # counts have no gradient that could vouch for it
        assert "a nearer feasible point may exist" in done.status_text

    def test_a_feasible_point_stays_to_the_bit(self) -> None:
        x, y = two_classes()
        score = Linear((1.0, 0.2, 0.0, -9.0))
        before = score.w.detach().clone()
        fpr = rates.false_positive_rate(score, (x, y))
        done = oneproj.project(score.w, {"fpr": fpr <= 0.05})
        assert torch.equal(before, score.w)
        assert done.distance == 0.0
        assert done.is_nearest
        assert done.gradients == 1

    def test_several_groups_and_both_sides(self) -> None:
        x, y = two_classes(3000)
        group = x[:, 1] > 0.3
        score = Linear((1.0, 1.0, 0.0, 0.0))
        a, b = (rates.positive_rate(score, x, where=g) for g in (group, ~group))
        done = oneproj.project(
            score.w,
            {
                "gap": a - b <= 0.02,
                "other way": a - b >= -0.02,
                "misses": rates.false_negative_rate(score, (x, y)) <= 0.3,
                "size": oneproj.sets.Ball(3.0).on(score.w),
            },
        )
        assert all(c <= 0 for c in done.residuals.values())
        assert abs(a.value() - b.value()) <= 0.02

    def test_it_is_near_the_nearest_point(self) -> None:
        # In two dimensions a grid has the nearest point.
        x, y = two_classes(60, seed=3)
        w = torch.tensor([1.0, 0.3], dtype=torch.float64, requires_grad=True)
        column = x[:, :1].double()
        data = column, y
        fpr = rates.false_positive_rate(lambda rows: rows[:, 0] * w[0] + w[1], data)
        start = w.detach().clone()
        grid = torch.linspace(-3, 3, 121, dtype=torch.float64)
        nearest = math.inf
        for a, b in itertools.product(grid, grid):
            if ((column[~y, 0] * a + b) > 0).double().mean() <= 0.1:
                point = torch.stack([a, b])
                nearest = min(nearest, float((point - start).norm()))
        done = oneproj.project(w, {"fpr": fpr <= 0.1})
        assert done.residuals["fpr"] <= 0
        assert done.distance <= 1.15 * nearest + 0.05

    def test_an_impossible_bound_is_an_error_that_leaves_the_parameters(self) -> None:
        x, y = two_classes()
        score = Linear()
        before = score.w.detach().clone()
        bounds = {
            "accept": rates.positive_rate(score, x) >= 0.9,
            "reject": rates.false_positive_rate(score, (x, y)) <= 0.1,
        }
        with pytest.raises(oneproj.InfeasibleError):
            oneproj.project(score.w, bounds)
        assert torch.equal(before, score.w)

    def test_every_pass_is_counted(self) -> None:
        x, y = two_classes()
        score, calls = Linear((1.0, 0.2, 0.0, 0.5)), 0

        def counted(rows: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return score(rows)

        fpr = rates.false_positive_rate(counted, (x, y))
        done = oneproj.project(score.w, {"fpr": fpr <= 0.05})
        # A point costs at most four passes: the count, its surrogate and its width.
        assert done.gradients <= calls <= 4 * done.gradients + 10


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    alpha=st.sampled_from([0.0, 0.02, 0.1, 0.4]),
    kind=st.sampled_from(["false_positive_rate", "false_negative_rate", "error_rate"]),
)
def test_counts_are_feasible_wherever_a_threshold_is(
    seed: int, alpha: float, kind: str
) -> None:
    x, y = two_classes(120, seed)
    draw = torch.Generator().manual_seed(seed)
    score = Linear(tuple(torch.randn(4, generator=draw).tolist()))
    rate = getattr(rates, kind)(score, (x, y))
    if kind == "error_rate":
        alpha = min(alpha, 0.4) + 0.05  # all rejected errs on about 0.4
        alpha = max(alpha, float(y.double().mean()))
    done = oneproj.project(score.w, {"rate": rate <= alpha}, on_failure="return")
    assert done.residuals["rate"] <= 0


class TestSolve:
    def solve(self, *, hidden: int = 0) -> tuple[oneproj.Solution, rates.Rate]:
        x, y = two_classes(800)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = [nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)]
            model = nn.Sequential(*(layers if hidden else [nn.Linear(3, 1)]))

        def score(rows: Tensor) -> Tensor:
            return model(rows).squeeze(1)

        def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
            scores = score(batch[0])
            return softplus(scores) - batch[1] * scores

        fpr = rates.false_positive_rate(score, (x, y))
        problem = oneproj.Problem(
            model.parameters(),
            objective=oneproj.mean(losses, data=(x, y.float())),
            constraints={"fpr": fpr <= 0.03},
        )
        return oneproj.solve(problem, steps=200), fpr

    @pytest.mark.parametrize("hidden", [0, 8])
    def test_the_answer_keeps_the_bound_and_uses_it(self, hidden: int) -> None:
        solution, fpr = self.solve(hidden=hidden)
        assert solution.feasible
        assert solution.residuals["fpr"] == fpr.value() - 0.03
        assert -0.012 <= solution.residuals["fpr"] <= 0
        assert solution.counts.projections == 1

    def test_the_certificate_shows_count_and_surrogate(self) -> None:
        solution, _ = self.solve()
        certificate = solution.certificate
        assert certificate["feasibility"].value == solution.residuals["fpr"]
        smooth = certificate["surrogate of rates"].details["residuals"]["fpr"]
        assert smooth == pytest.approx(0.0, abs=0.1)
        assert "surrogate of rates" in str(solution)

    def test_it_is_as_good_as_the_best_of_all_linear_rules(self) -> None:
        # With one feature the loss under a bound on the count can be tabulated.
        draw = torch.Generator().manual_seed(5)
        y = torch.arange(60) % 2 == 0
        x = torch.randn(60, 1, generator=draw) + y[:, None]
        w = torch.tensor([0.5, 0.0], requires_grad=True)

        def score(rows: Tensor) -> Tensor:
            return rows[:, 0] * w[0] + w[1]

        def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
            scores = score(batch[0])
            return softplus(scores) - batch[1] * scores

        fpr = rates.false_positive_rate(score, (x, y))
        objective = oneproj.mean(losses, data=(x, y.float()))
        problem = oneproj.Problem(w, objective, {"fpr": fpr <= 0.1})
        best = math.inf
        for a in torch.linspace(-1, 3, 81):
            s = x[None, :, 0] * a + torch.linspace(-4, 2, 241)[:, None]
            loss = (softplus(s) - y * s).mean(1)
            fits = (s[:, ~y] > 0).float().mean(1) <= 0.1
            best = min(best, float(loss[fits].min()))
        solution = oneproj.solve(problem)
        assert solution.feasible
        assert solution.objective <= 1.03 * best

    def test_a_rate_can_be_minimised(self) -> None:
        x, y = two_classes()
        score = Linear((0.1, 0.5, 0.5, 0.0))
        errors = rates.error_rate(score, (x, y))
        before = errors.value()
        size = oneproj.sets.Ball(2.0).on(score.w)
        oneproj.solve(oneproj.Problem(score.w, errors, {"size": size}), steps=200)
        assert errors.value() < 0.8 * before

    def test_a_theorem_says_nothing_about_counts(self) -> None:
        x, y = two_classes()
        score = Linear()
        fpr = rates.false_positive_rate(score, (x, y))
        constants = oneproj.theory.NonconvexConstants(
            weak_convexity=1.0,
            gradient_bound=1.0,
            constraint_gradient_bound=1.0,
            constraint_smoothness=1.0,
            boundary_slope=0.5,
            infeasible_slope=0.5,
            radius=5.0,
        )
        objective = oneproj.function(score.w.norm)
        problem = oneproj.Problem(score.w, objective, {"fpr": fpr <= 0.1}, radius=5.0)
        schedule = oneproj.theory.nonconvex_schedule(constants, epsilon=0.1)
        with pytest.raises(oneproj.InvalidProblemError, match="is a count"):
            oneproj.solve(problem, schedule=schedule)


def rare() -> Table:
    """6,000 rows, one in a hundred positive."""
    return mixture(61, positives=0.01, rows=6000, apart=2.5)


def test_a_precision_that_holds_since_nothing_is_accepted_warns() -> None:
    t, w = rare(), torch.tensor(-100.0, requires_grad=True)
    precise = rates.precision(lambda rows: rows[:, 0] + w, (t.x, t.y)) >= 0.5
    with pytest.warns(oneproj.OneprojWarning, match="no row is accepted"):
        oneproj.project([w], {"precision": precise})


class TestThresholds:
    """Where a move of the bias alone meets the counts, the answer meets them."""

    @pytest.mark.filterwarnings("ignore:The run may have ended too early")
    @pytest.mark.parametrize("seed", [0, 1])
    def test_no_false_positive_and_most_positives_found(self, seed: int) -> None:
        data = load_breast_cancer()
        x = torch.tensor((data.data - data.data.mean(0)) / data.data.std(0)).float()
        y = torch.tensor(data.target)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Linear(30, 1)

        def score(rows: Tensor) -> Tensor:
            return model(rows).squeeze(1)

        def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
            scores = score(batch[0])
            return softplus(scores) - batch[1] * scores

        bounds = {
            "fpr": rates.false_positive_rate(score, (x, y)) <= 0,
            "tpr": rates.true_positive_rate(score, (x, y)) >= 0.8,
        }
        risk = oneproj.mean(losses, data=(x, y.float()))
        start = [p.detach().clone() for p in model.parameters()]
        assert oneproj.solve(oneproj.Problem(model.parameters(), risk, bounds)).feasible
        with torch.no_grad():
            for p, before in zip(model.parameters(), start, strict=True):
                p.copy_(before)
        oneproj.solve(oneproj.Problem(model.parameters(), risk, {}))
        assert oneproj.project(model.parameters(), bounds).status.ok

    def test_two_scores_get_a_threshold_each(self) -> None:
        x, y = two_classes(300)
        w = torch.tensor([1.0, 0.2, 0.0], requires_grad=True)
        cuts = [torch.zeros(1, requires_grad=True) for _ in range(2)]
        bounds = {
            "few": rates.false_positive_rate(lambda r: r @ w + cuts[0], (x, y)) <= 0.01,
            "many": rates.true_positive_rate(lambda r: cuts[1] - r @ w, (x, y)) >= 0.99,
        }
        with torch.no_grad():
            low = float((x @ w)[~y].max()) + 0.1
        done = oneproj.project([w, *cuts], bounds)
        assert done.status.ok
        assert abs(float(cuts[0].detach())) <= low
        assert w.detach().tolist() != [0.0, 0.0, 0.0]

    def test_the_error_says_what_to_try(self) -> None:
        x, y = two_classes()
        score = Linear()
        bounds = {
            "accept": rates.positive_rate(score, x) >= 0.9,
            "reject": rates.false_positive_rate(score, (x, y)) <= 0.1,
        }
        with pytest.raises(oneproj.InfeasibleError, match=r"Try: .*looser"):
            oneproj.project(score.w, bounds)
        plain = torch.tensor([1.0, 0.2, 0.0], requires_grad=True)
        fpr = rates.false_positive_rate(lambda rows: rows @ plain, (x, y))
        tpr = rates.true_positive_rate(lambda rows: rows @ plain, (x, y))
        with pytest.raises(oneproj.InfeasibleError, match="bias"):
            oneproj.project(plain, {"fpr": fpr <= 0, "tpr": tpr >= 1})


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    allowed=st.sampled_from([0, 1, 5]),
    scale=st.sampled_from([0.01, 1.0, 50.0]),
)
def test_pairs_of_bounds_hold_wherever_a_threshold_meets_them(
    seed: int, allowed: int, scale: float
) -> None:
    x, y = two_classes(150, seed)
    draw = torch.Generator().manual_seed(seed)
    score = Linear(tuple((scale * torch.randn(4, generator=draw)).tolist()))
    with torch.no_grad():
        scores = score(x)
        cut = scores[~y].sort().values[-1 - allowed]
        found = float((scores[y] > cut).double().mean())
    bounds = {
        "fpr": rates.false_positive_rate(score, (x, y)) <= allowed / int((~y).sum()),
        "tpr": rates.true_positive_rate(score, (x, y)) >= found,
    }
    done = oneproj.project(score.w, bounds, on_failure="return")
    assert max(done.residuals.values()) <= 0
