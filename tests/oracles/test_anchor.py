"""Anchors: what they hold, on all data or on a sample, and what they count."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from oneproj import Counts, NonFiniteError, Problem, function, mean
from oneproj.oracles import anchor as module
from oneproj.oracles.anchor import Anchor, take_anchor
from oneproj.oracles.plan import AnchorPlan
from oneproj.sets import Ball

LARGE, FEW = 7, 3
WHOLE = 5  # examples that stand for the seven


class Case:
    """Constraints on much data, on little, on none, and a set; each with weights."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(4)
        x = torch.randn(LARGE, 2, generator=generator, dtype=torch.float64)
        weights = torch.rand(LARGE, generator=generator, dtype=torch.float64)
        w = self.w = torch.tensor([0.4, -1.1], dtype=torch.float64, requires_grad=True)
        self.seen: list[int] = []

        def fn(batch: Tensor) -> Tensor:
            self.seen.append(len(batch))
            return (batch @ w).tanh()

        few = mean(lambda batch: (batch @ w).sin(), x[:FEW])
        self.problem = Problem(
            w,
            objective=function(w.sum),
            constraints={
                "large": mean(fn, x, weights=weights, chunk_size=4) <= 0.1,
                "few": few >= 0.2,
                "plain": function(lambda: w.square().sum()) <= 1.0,
                "ball": Ball(1.0).on(w),
            },
        )
        self.counts = Counts()
        self.seen.clear()

    def look(
        self,
        size: int | None = None,
        seed: int = 0,
        last: Anchor | None = None,
        reference_every: int | None = None,
        reference_size: int | None = None,
    ) -> Anchor:
        return take_anchor(
            self.problem,
            plan=AnchorPlan(size, reference_every, reference_size=reference_size),
            generator=torch.Generator().manual_seed(seed),
            counts=self.counts,
            remember=True,
            last=last,
        )

    @torch.no_grad()
    def move(self) -> None:
        self.w.add_(0.3)


def test_a_full_look_has_every_value_and_gradient() -> None:
    case = Case()
    anchor = case.look()
    assert anchor.values == case.problem.residuals()
    for name, constraint in case.problem.constraints.items():
        whole = None if constraint.size is None else torch.arange(constraint.size)
        (slope,) = torch.autograd.grad(constraint.batch_value(whole), case.w)
        torch.testing.assert_close(anchor.jacobian[name][0], slope)


def test_it_stays_where_it_was_taken() -> None:
    case = Case()
    start = case.w.detach().clone()
    anchor = case.look()
    with torch.no_grad():
        case.w.add_(1.0)
    assert torch.equal(anchor.point[0], start)
    assert not anchor.point[0].requires_grad
    assert case.w.grad is None


def test_passes_are_those_over_all_data_and_each_constraint_has_a_gradient() -> None:
    case = Case()
    case.look()
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=2)
    case = Case()
    case.look(size=FEW)  # a sample of the large data; the little is seen as a whole
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=1)
    assert case.seen == [FEW]
    case = Case()
    case.look(size=LARGE)
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=2)


def test_only_data_larger_than_the_sample_are_sampled() -> None:
    case = Case()
    sampled, whole = case.look(size=FEW), case.look()
    for name in ("few", "plain", "ball"):
        assert sampled.values[name] == whole.values[name]
        assert torch.equal(sampled.jacobian[name][0], whole.jacobian[name][0])
    assert sampled.values["large"] != whole.values["large"]


def test_the_generator_decides_the_sample() -> None:
    values = [Case().look(size=2, seed=seed).values["large"] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_a_sampled_look_is_unbiased() -> None:
    # All 49 draws of two examples have the same probability.
    case = Case()
    whole, constraint = case.look(), case.problem.constraints["large"]
    values, slopes = [], []
    for rows in product(range(LARGE), repeat=2):
        constraint.draw = lambda *_, rows=rows: torch.tensor(rows)
        anchor = case.look(size=2)
        values.append(anchor.values["large"])
        slopes.append(anchor.jacobian["large"][0])
    assert sum(values) / 49 == pytest.approx(whole.values["large"], rel=1e-12)
    torch.testing.assert_close(torch.stack(slopes).mean(0), whole.jacobian["large"][0])


def test_slopes_are_those_of_a_sample_where_there_is_much_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case = Case()
    constraint, slopes = case.problem.constraints["large"], []
    for rows in product(range(LARGE), repeat=2):
        constraint.draw = lambda size, _, rows=rows: torch.tensor(rows[:size])
        anchor = case.look()
        assert anchor.values == case.problem.residuals(), "values are of all data"
        slopes.append(anchor.jacobian["large"][0])
    whole = constraint.value_and_gradient([case.w])[1][0]
    assert not torch.allclose(slopes[0], whole)
    torch.testing.assert_close(torch.stack(slopes).mean(0), whole)
    assert case.counts == Counts(
        constraint_gradients=4 * LARGE**2, constraint_passes=2 * LARGE**2
    )


def test_a_sample_gives_all_of_it_to_the_value_and_its_first_to_the_slope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case, rows = Case(), torch.tensor([6, 0, 3, 3, 1])
    constraint = case.problem.constraints["large"]
    constraint.draw = lambda size, _: rows[:size]
    anchor = case.look(size=5)
    assert case.counts.constraint_passes == 1, "the little data only"
    assert anchor.values["large"] == pytest.approx(constraint.batch_value(rows).item())
    (slope,) = torch.autograd.grad(constraint.batch_value(rows[:2]), case.w)
    torch.testing.assert_close(anchor.jacobian["large"][0], slope)


def test_a_large_sample_is_seen_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Case().look(size=5)
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    monkeypatch.setattr(module, "SAMPLE_CHUNK", 2)
    case = Case()
    anchor = case.look(size=5)
    assert case.seen == [2, 2, 1]
    assert anchor.values["large"] == pytest.approx(whole.values["large"], rel=1e-12)


@pytest.mark.parametrize("size", [None, 2])
def test_a_value_that_is_not_finite_is_named(size: int | None) -> None:
    case = Case()
    with torch.no_grad():
        case.w.fill_(math.nan)
    with pytest.raises(NonFiniteError, match="the value of 'large'"):
        case.look(size)


@pytest.mark.parametrize("size", [None, 2])
def test_no_grad_around_it_does_not_matter(size: int | None) -> None:
    with torch.no_grad():
        anchor = Case().look(size)
    assert anchor.jacobian["large"][0].count_nonzero() == 2
    assert not anchor.jacobian["large"][0].requires_grad


# --- between two looks at all data ---------------------------------------------


def test_the_next_anchor_is_the_last_full_look_and_the_change_of_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", FEW)
    case = Case()
    last, rows = case.look(), torch.tensor([6, 2, 2])
    constraint = case.problem.constraints["large"]
    before = constraint.batch_value(rows).item()
    case.move()
    case.counts, constraint.draw = Counts(), lambda size, _: rows[:size]
    anchor, residuals = case.look(last=last), case.problem.residuals()
    change = constraint.batch_value(rows).item() - before
    assert anchor.values["large"] == pytest.approx(last.values["large"] + change)
    (slope,) = torch.autograd.grad(constraint.batch_value(rows), case.w)
    torch.testing.assert_close(anchor.jacobian["large"][0], slope)
    for name in ("few", "plain", "ball"):  # seen as a whole all the same
        assert anchor.values[name] == residuals[name]
    assert case.counts == Counts(constraint_gradients=4, constraint_passes=1)


def test_its_mean_over_all_samples_is_that_of_all_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case = Case()
    constraint, last = case.problem.constraints["large"], case.look()
    case.move()
    values, slopes = [], []
    for rows in product(range(LARGE), repeat=2):
        constraint.draw = lambda *_, rows=rows: torch.tensor(rows)
        anchor = case.look(last=last)
        values.append(anchor.values["large"])
        slopes.append(anchor.jacobian["large"][0])
    value, (slope,) = constraint.value_and_gradient([case.w])
    assert max(values) - min(values) > 0.01
    assert sum(values) / 49 == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(torch.stack(slopes).mean(0), slope)


def test_all_data_is_seen_again_after_a_few_anchors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", FEW)
    case, anchor, passes = Case(), None, []
    for _ in range(2 * module.ANCHORS_PER_PASS + 1):
        case.counts = Counts()
        anchor = case.look(last=anchor)
        passes.append(case.counts.constraint_passes - 1)  # that over the little data
    assert passes == [*([1] + [0] * (module.ANCHORS_PER_PASS - 1)) * 2, 1]


@pytest.mark.parametrize("every", [None, 3])
def test_all_of_what_is_sampled_is_seen_as_rarely_as_asked_for(
    every: int | None,
) -> None:
    case, anchor, passes = Case(), None, []
    for _ in range(7):
        case.counts = Counts()
        anchor = case.look(size=FEW, reference_every=every, last=anchor)
        passes.append(case.counts.constraint_passes - 1)  # that over the little data
    assert passes == ([0] * 7 if every is None else [1, 0, 0, 1, 0, 0, 1])


def test_a_look_at_all_draws_no_more_than_its_gradient_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case = Case()
    case.look(size=FEW, reference_every=3)
    assert sum(case.seen) == LARGE + 2


def test_a_sample_is_corrected_by_what_was_seen_of_all() -> None:
    case = Case()
    first = case.look(size=FEW, reference_every=9)
    with torch.no_grad():
        case.w.mul_(0.999)
    again = case.look(size=FEW, reference_every=9, last=first)
    alone = case.look(size=FEW)
    truth = case.problem.constraints["large"].value()
    error, plain = (abs(a.values["large"] - truth) for a in (again, alone))
    assert error < 0.05 * plain


def test_a_large_sample_stands_for_all_data_until_it_is_renewed() -> None:
    case, anchor, evaluated, references = Case(), None, [], []
    for k in range(6):
        case.seen.clear()
        anchor = case.look(FEW, k, anchor, reference_every=3, reference_size=WHOLE)
        evaluated.append(sum(case.seen))
        references.append(anchor.references["large"].indices)
        assert not anchor.on_all_data
        assert set(anchor.sample["large"].tolist()) <= set(references[-1].tolist())
    assert evaluated == [WHOLE, FEW, FEW] * 2
    assert torch.equal(references[0], references[2])
    assert not torch.equal(references[0], references[3])


def test_between_two_large_samples_values_change_by_those_of_some_examples() -> None:
    case, plan = Case(), {"reference_every": 9, "reference_size": WHOLE}
    first = case.look(FEW, **plan)
    reference, constraint = first.references["large"], case.problem.constraints["large"]
    with torch.no_grad():
        case.w.mul_(0.999)
    again = case.look(FEW, 1, first, **plan)
    truth = constraint.examples(reference.indices).double().mean().item()
    alone = constraint.examples(again.sample["large"]).double().mean().item()
    assert abs(again.values["large"] - truth) < 0.05 * abs(alone - truth)


def test_a_minibatch_is_of_examples_that_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case, generator = Case(), torch.Generator().manual_seed(0)
    whole = case.look()
    constraint = case.problem.constraints["large"]
    for anchor, among in ((whole, range(LARGE)), (case.look(last=whole), None)):
        known = anchor.sample["large"].tolist() if among is None else among
        drawn, each = anchor.draw(constraint, 40, generator)
        assert set(drawn.tolist()) == set(known)
        torch.testing.assert_close(each, constraint.examples(drawn).detach())


def test_a_value_on_a_sample_that_is_not_finite_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRADIENT_EXAMPLES", 2)
    case = Case()
    last = case.look()
    with torch.no_grad():
        case.w.fill_(math.nan)
    with pytest.raises(NonFiniteError, match="the value of 'large'"):
        case.look(last=last)
