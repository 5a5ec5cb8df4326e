"""What the anchored oracle remembers of single examples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oneproj import Counts, Hinge, Problem, function, mean
from oneproj.oracles import ORACLES, AbstractOracle, AnchorPlan

N = 5


class Looks:
    """One constraint on data, and where its function was called: here or there."""

    def __init__(self, bound: float, model: torch.nn.Module | None = None) -> None:
        generator = torch.Generator().manual_seed(5)
        x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
        weights = torch.rand(N, generator=generator, dtype=torch.float64)
        w = self.w = torch.ones(3, dtype=torch.float64, requires_grad=True)
        self.at: list[list[float]] = []

        def fn(batch: Tensor) -> Tensor:
            self.at.append(w.tolist())
            return (batch @ w).sin()

        self.problem = Problem(
            w,
            objective=function(w.sum),
            constraints={"risk": mean(fn, x, weights=weights) >= bound},
            model=model,
        )

    def oracle(self, **options: int | AnchorPlan) -> AbstractOracle:
        return ORACLES["anchored"](
            self.problem,
            Hinge(1.0),
            batch_size=2,
            generator=torch.Generator().manual_seed(6),
            counts=Counts(),
            **options,
        )

    def update_away(self, oracle: AbstractOracle) -> tuple[list[float], int]:
        """Move, look; what was seen, and how often at the anchor."""
        oracle.anchor()
        there = self.w.tolist()
        with torch.no_grad():
            self.w.mul_(0.5)
        self.at.clear()
        seen = [*oracle.backward().residuals.values()]
        return seen, self.at.count(there)


@pytest.mark.parametrize("bound", [-9.0, 9.0])
def test_nothing_is_evaluated_at_the_anchor_again(bound: float) -> None:
    case = Looks(bound)
    assert case.update_away(case.oracle())[1] == 0
    assert len(case.at) == 1


@pytest.mark.parametrize("bound", [-9.0, 9.0])
def test_the_minibatch_is_corrected_by_what_is_remembered(bound: float) -> None:
    case = Looks(bound)
    oracle = case.oracle()
    risk = case.problem.constraints["risk"]
    there = risk.value()
    before = risk.examples(torch.arange(N)).detach()
    [found], _ = case.update_away(oracle)
    rows = oracle._drawn["risk"]
    expected = risk.batch_value(rows).item() - before[rows].mean().item() + there
    assert found == pytest.approx(expected, rel=1e-12)


def test_of_a_sample_minibatches_are_drawn() -> None:
    case = Looks(9.0)
    oracle = case.oracle(plan=AnchorPlan(2))
    assert case.update_away(oracle)[1] == 0
    anchor = oracle.anchor()
    risk = case.problem.constraints["risk"]
    drawn, each = anchor.draw(risk, 50, torch.Generator().manual_seed(7))
    assert drawn is not None
    assert each is not None
    assert set(drawn.tolist()) <= set(anchor.sample["risk"].tolist())
    torch.testing.assert_close(each, risk.examples(drawn).detach())
    assert anchor.values["risk"] == pytest.approx(anchor.each["risk"].mean().item())


def test_nothing_is_remembered_in_training_or_in_few_bits() -> None:
    case = Looks(-9.0)
    assert list(case.oracle().anchor().each) == ["risk"]
    model = torch.nn.Dropout(0.5)  # not the same as among all data, if it were used
    case = Looks(-9.0, model)
    assert case.oracle().anchor().each == {}
    oracle = case.oracle()
    [found], _ = case.update_away(oracle)  # the minibatch's own value
    alone = case.problem.constraints["risk"].batch_value(oracle._drawn["risk"])
    assert found == pytest.approx(alone.item())
    model.eval()
    assert list(case.oracle().anchor().each) == ["risk"]
    narrow = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    risk = mean(lambda batch: batch @ narrow, torch.ones(3, 2, dtype=torch.bfloat16))
    problem = Problem(narrow, function(narrow.sum), {"risk": risk <= 1.0})
    oracle = ORACLES["anchored"](
        problem, Hinge(1.0), batch_size=2, generator=torch.Generator(), counts=Counts()
    )
    assert oracle.anchor().each == {}


@pytest.mark.parametrize("anchors", [1, 2])
@pytest.mark.parametrize("slopes", [2048, 2])
def test_a_resumed_oracle_remembers_the_same(
    anchors: int, slopes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneproj.oracles.anchor.GRADIENT_EXAMPLES", slopes)
    first, second = Looks(9.0), Looks(9.0)
    before, after = first.oracle(), second.oracle()
    for _ in range(anchors):
        before.anchor()
    after.load_state_dict(before.state_dict())
    after.generator.set_state(before.generator.get_state())
    for _ in range(2):  # at the old anchor, then at one that goes on from it
        for case in (first, second):
            with torch.no_grad():
                case.w.mul_(0.5)
        assert before.backward() == after.backward()
        assert torch.equal(first.w.grad, second.w.grad)
        assert before.anchor().values == after.anchor().values
