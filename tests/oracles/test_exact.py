"""The exact oracle: what an anchor has just seen is not looked at again."""

from __future__ import annotations

import torch
from torch import Tensor

from oneproj import Counts, Hinge, Problem, function, mean
from oneproj.oracles import ORACLES, AnchorPlan


class Watched:
    """A problem whose one constraint on data counts the examples that it is given."""

    def __init__(self, rows: int, plan: AnchorPlan | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
        self.w = torch.ones(3, dtype=torch.float64, requires_grad=True)
        self.given = 0
        self.counts = Counts()
        problem = Problem(
            self.w,
            objective=function(lambda: self.w.square().sum()),
            constraints={"risk": mean(self._losses, data=x) <= -1.0},
        )
        self.given = 0  # what a problem tries its functions with is not of the oracle
        self.oracle = ORACLES["exact"](
            problem,
            Hinge(2.0, "sum"),
            batch_size=rows,
            generator=generator,
            counts=self.counts,
            plan=plan or AnchorPlan(at_once=rows),
        )

    def _losses(self, x: Tensor) -> Tensor:
        self.given += len(x)
        return (x @ self.w).square()

    def look(self) -> tuple[float, Tensor]:
        self.oracle.backward_objective(alone=False)
        residuals = self.oracle.add_penalty()
        assert self.w.grad is not None
        return residuals["risk"], self.w.grad.clone()


def test_after_an_anchor_the_constraint_is_known() -> None:
    known, looked = Watched(20), Watched(20)
    known.oracle.anchor()
    assert known.given == 20
    (value, slope), expected = known.look(), looked.look()
    assert known.given == 20, "nothing was looked at again"
    assert (known.counts.constraint_passes, known.counts.constraint_gradients) == (1, 1)
    torch.testing.assert_close(value, expected[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(slope, expected[1], rtol=1e-12, atol=0)


def test_the_next_update_looks_where_it_is() -> None:
    known = Watched(20)
    known.oracle.anchor()
    before, _ = known.look()
    with torch.no_grad():
        known.w.mul_(3.0)
    after, _ = known.look()
    assert known.given == 40
    assert after > before


def test_an_anchor_that_saw_a_part_does_not_stand_for_the_whole() -> None:
    for rows, plan in [(3000, None), (20, AnchorPlan(size=10, at_once=20))]:
        known, looked = Watched(rows, plan), Watched(rows, plan)
        known.oracle.anchor()
        seen = known.given
        (value, slope), expected = known.look(), looked.look()
        assert known.given >= seen + rows
        torch.testing.assert_close(value, expected[0], rtol=1e-12, atol=0)
        torch.testing.assert_close(slope, expected[1], rtol=1e-12, atol=0)
