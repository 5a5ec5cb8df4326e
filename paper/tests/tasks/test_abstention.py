"""The abstention problem: values, gradients, shape, caps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.problem.problem import Problem
from oneproj.vectors.arithmetic import assign, combine, dot, snapshot
from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.abstention import abstention_problem, slackened
from oneproj_paper.tasks.models import Scores

examples = settings(derandomize=True, deadline=None, max_examples=50)


def normal(*size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


SAMPLE = Sample(normal(40, 3), (normal(40, seed=1) > 0.3).long())


def scores_of(hidden: tuple[int, ...] = (), seed: int = 0) -> Scores:
    generator = torch.Generator().manual_seed(seed)
    return Scores(3, hidden, generator=generator, dtype=torch.float64)


def problem_of(scores: Scores) -> Problem:
    return abstention_problem(scores, SAMPLE, caps=(0.4, 0.6), radius=5.0)


def slow_values(scores: Scores) -> tuple[float, list[float]]:
    """The three sums of appendix D.2, example by example in plain Python."""
    s = scores(SAMPLE.x).tolist()
    y = SAMPLE.y.tolist()
    ambiguity = sum(max(0, 1 + a) * max(0, 1 + b) for a, b in s) / len(s)
    errors = []
    for j in (0, 1):
        own = [max(0, 1 - s[i][j]) for i in range(len(s)) if y[i] == j]
        errors.append(sum(own) / len(own))
    return ambiguity, errors


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_values_are_the_sums_of_the_paper(hidden: tuple[int, ...]) -> None:
    scores = scores_of(hidden)
    problem = problem_of(scores)
    ambiguity, errors = slow_values(scores)
    assert problem.objective.value() == pytest.approx(ambiguity, rel=1e-13)
    residuals = list(problem.residuals().values())
    assert residuals[0] == pytest.approx(errors[0] - 0.4, rel=1e-12)
    assert residuals[1] == pytest.approx(errors[1] - 0.6, rel=1e-12)


def test_gradients_of_linear_scores_are_those_derived_by_hand() -> None:
    # d/dw_0 phi(s_0) phi(s_1) = 1[s_0 > -1] phi(s_1) x, and so on, row by row.
    scores = scores_of()
    _, gradient = problem_of(scores).objective.value_and_gradient(
        list(scores.parameters())
    )
    expected = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]
    intercepts = [0.0, 0.0]
    for x, (a, b) in zip(SAMPLE.x, scores(SAMPLE.x).tolist(), strict=True):
        for j, (own, other) in enumerate(((a, b), (b, a))):
            if own > -1:
                expected[j] += max(0, 1 + other) * x / len(SAMPLE)
                intercepts[j] += max(0, 1 + other) / len(SAMPLE)
    torch.testing.assert_close(gradient[0][0], expected[0])
    torch.testing.assert_close(gradient[2][0], expected[1])
    assert gradient[1].item() == pytest.approx(intercepts[0])
    assert gradient[3].item() == pytest.approx(intercepts[1])


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_gradients_agree_with_finite_differences(hidden: tuple[int, ...]) -> None:
    scores = scores_of(hidden, seed=2)
    problem = problem_of(scores)
    x = snapshot(problem.parameters)
    direction = [normal(*p.shape, seed=k + 5) for k, p in enumerate(x)]
    h = 1e-6
    for term in (problem.objective, *problem.constraints.values()):
        assign(problem.parameters, x)
        _, gradient = term.value_and_gradient(problem.parameters)
        slope = dot(gradient, direction)
        ends = []
        for step in (h, -h):
            assign(problem.parameters, combine([1.0, step], [x, direction]))
            ends.append(term.value())
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-4)


def midpoint_excess(scores: Scores, seed: int) -> tuple[float, list[float]]:
    """f((a + b)/2) - (f(a) + f(b))/2 of objective and constraints; <= 0 if convex."""
    problem = problem_of(scores)
    terms = [problem.objective, *problem.constraints.values()]
    parameters = problem.parameters
    shapes = [p.shape for p in parameters]
    ends = [
        [3.0 * normal(*s, seed=100 * seed + 2 * k + end) for k, s in enumerate(shapes)]
        for end in (0, 1)
    ]
    values = []
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        assign(parameters, combine(weights, ends))
        values.append([term.value() for term in terms])
    excess = [m - (a + b) / 2 for a, b, m in zip(*values, strict=True)]
    return excess[0], excess[1:]


@examples
@given(seed=st.integers(0, 10_000))
def test_constraints_declared_convex_are(seed: int) -> None:
    _, excess = midpoint_excess(scores_of(), seed)
    assert max(excess) <= 1e-12


def test_the_objective_is_not_convex_and_not_declared_so() -> None:
    scores = scores_of()
    assert problem_of(scores).objective.curvature is None
    assert max(midpoint_excess(scores, seed)[0] for seed in range(20)) > 0.1


def test_network_constraints_are_not_convex_and_not_declared_so() -> None:
    scores = scores_of((4,))
    assert {c.curvature for c in problem_of(scores).constraints.values()} == {None}
    assert max(max(midpoint_excess(scores, seed)[1]) for seed in range(20)) > 0.1


def test_each_class_constrains_its_own_score_only() -> None:
    scores = scores_of()
    problem = problem_of(scores)
    _, gradient = problem.constraints["class 1 error"].value_and_gradient(
        problem.parameters
    )
    assert not any(g.any() for g in gradient[:2])
    assert all(g.any() for g in gradient[2:])


def test_the_slack_shrinks_with_the_class() -> None:
    sample = Sample(torch.zeros(125, 1), torch.tensor([0] * 100 + [1] * 25))
    assert slackened((0.3, 0.2), sample) == pytest.approx((0.35, 0.3))


def test_caps_are_two() -> None:
    with pytest.raises(InvalidProblemError, match="two numbers"):
        abstention_problem(scores_of(), SAMPLE, caps=(0.3,), radius=2.0)
