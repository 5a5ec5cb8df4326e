"""The transfer problem: risks, gradients, shape, cap."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oneproj.vectors.arithmetic import assign, combine
from oneproj_paper.data import gaussian_transfer
from oneproj_paper.data.samples import Sample
from oneproj_paper.tasks.models import Score
from oneproj_paper.tasks.transfer import logistic_risk, source_cap, transfer_problem
from oneproj_paper.tasks.transfer_metrics import transfer_metrics

examples = settings(derandomize=True, deadline=None, max_examples=50)


def normal(*size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


SAMPLE = Sample(normal(30, 3), (normal(30, seed=1) > 0).long())


def score_of(hidden: tuple[int, ...] = (), inputs: int = 3) -> Score:
    generator = torch.Generator().manual_seed(0)
    return Score(inputs, hidden, generator=generator, dtype=torch.float64)


def slow_risk(score: Score, sample: Sample) -> float:
    pairs = zip(score(sample.x).tolist(), sample.y.tolist(), strict=True)
    losses = [math.log(1 + math.exp(-(2 * y - 1) * s)) for s, y in pairs]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_the_risk_is_the_sum_of_the_paper(hidden: tuple[int, ...]) -> None:
    score = score_of(hidden)
    assert logistic_risk(score, SAMPLE).value() == pytest.approx(
        slow_risk(score, SAMPLE), rel=1e-12
    )


def test_the_gradient_of_a_linear_score_is_the_one_derived_by_hand() -> None:
    score = score_of()
    _, (weight, bias) = logistic_risk(score, SAMPLE).value_and_gradient(
        list(score.parameters())
    )
    # d/ds log(1 + exp(-(2y - 1) s)) = sigmoid(s) - y
    slope = torch.sigmoid(score(SAMPLE.x)).detach() - SAMPLE.y
    torch.testing.assert_close(weight[0], slope @ SAMPLE.x / len(SAMPLE))
    torch.testing.assert_close(bias[0], slope.mean())


@examples
@given(seed=st.integers(0, 10_000))
def test_a_risk_declared_convex_is(seed: int) -> None:
    score = score_of()
    risk = logistic_risk(score, SAMPLE)
    assert risk.curvature == "convex"
    parameters = list(score.parameters())
    shapes = [p.shape for p in parameters]
    ends = [
        [4.0 * normal(*s, seed=10 * seed + 2 * k + end) for k, s in enumerate(shapes)]
        for end in (0, 1)
    ]
    values = []
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        assign(parameters, combine(weights, ends))
        values.append(risk.value())
    assert values[2] <= (values[0] + values[1]) / 2 + 1e-12


def test_a_network_risk_is_not_declared_convex() -> None:
    assert logistic_risk(score_of((4,)), SAMPLE).curvature is None


def test_the_problem_minimises_the_target_and_caps_the_source() -> None:
    data = gaussian_transfer(seed=1, dtype=torch.float64)
    score = score_of(inputs=10)
    problem = transfer_problem(score, data, radius=7.0)
    assert problem.radius == 7.0
    assert problem.objective.value() == pytest.approx(slow_risk(score, data.train))
    expected = slow_risk(score, data.source) - 1 / math.sqrt(2_000)
    assert problem.residuals() == pytest.approx({"source risk": expected})
    loose = transfer_problem(score, data, cap=10.0, radius=7.0)
    assert loose.residuals()["source risk"] < 0


@pytest.mark.parametrize(("size", "cap"), [(2_000, 0.02236), (1_900, 0.02294)])
def test_the_cap_is_that_of_the_papers_table(size: int, cap: float) -> None:
    source = Sample(torch.zeros(size, 1), torch.zeros(size, dtype=torch.long))
    assert round(source_cap(source), 5) == cap


def test_metrics_agree_with_the_slow_risk_and_the_sign() -> None:
    score = score_of()
    metrics = transfer_metrics(score, SAMPLE)
    assert metrics.risk == pytest.approx(slow_risk(score, SAMPLE))
    pairs = zip(score(SAMPLE.x).tolist(), SAMPLE.y.tolist(), strict=True)
    assert metrics.error == sum((s >= 0) != y for s, y in pairs) / len(SAMPLE)
