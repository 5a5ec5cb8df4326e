"""After training: how often each term is evaluated on all data."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from oneproj.projection import Cuts

ROWS = 50_000
Batch = tuple[Tensor, Tensor]


class Table:
    """A network under a cap on one table, and the rows that its functions saw."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))
        for p in self.model.parameters():
            p.data.normal_(std=0.3, generator=generator)
        x = torch.randn(ROWS, 12, generator=generator)
        a, b = torch.randn(2, 12, generator=generator)
        self.rows: Counter[tuple[str, str]] = Counter()
        self.problem = oneproj.Problem(
            self.model.parameters(),
            oneproj.mean(self.losses("objective"), data=(x, (x @ a).sign())),
            {
                "cap": oneproj.mean(self.losses("cap"), data=(x, (x @ (a + b)).sign()))
                <= 0.4
            },
        )

    def losses(self, name: str):  # noqa: ANN201 - a function of a batch
        def each(batch: Batch) -> Tensor:
            score = self.model(batch[0])[:, 0]
            wide = score.dtype == torch.float64
            kind = "float64" if wide else "gradient" if score.requires_grad else "value"
            self.rows[name, kind] += len(score)
            return softplus(-batch[1] * score)

        return each

    def forget(self, update: oneproj.Update) -> None:
        if update.update == update.steps:
            self.rows.clear()

    def passes(self) -> dict[tuple[str, str], int]:
        """Full passes since the last update; rows of samples are not counted."""
        return {key: rows // ROWS for key, rows in self.rows.items() if rows >= ROWS}


def test_after_the_projection_each_term_is_evaluated_once_for_each_purpose() -> None:
    table = Table()
    solution = oneproj.solve(table.problem, steps=20, callbacks=table.forget)
    assert solution.projection.gradients > 1
    assert table.passes() == {
        ("cap", "gradient"): solution.projection.gradients + 1,  # and the KKT residual
        ("cap", "value"): 1,  # which judges the answer
        ("cap", "float64"): 1,
        ("objective", "gradient"): 1,
    }
    assert solution.objective == table.problem.objective.value()
    assert solution.residuals == table.problem.residuals()


def test_without_a_certificate_no_gradient_is_taken_after_the_projection() -> None:
    table = Table()
    solution = oneproj.solve(
        table.problem, steps=20, callbacks=table.forget, certify=False
    )
    assert table.passes() == {
        ("cap", "gradient"): solution.projection.gradients,
        ("cap", "value"): 1,
        ("cap", "float64"): 1,
        ("objective", "value"): 1,
    }
    assert [measure.name for measure in solution.certificate.measures] == [
        "feasibility"
    ]
    assert solution.certificate.holds
    assert solution.objective == table.problem.objective.value()


def test_a_word_for_certify_is_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="certify must be True or"):
        oneproj.solve(Table().problem, certify="no")  # type: ignore[arg-type]


class Weighing(Cuts):
    """Counts the vectors of the model's size that are alive when it begins."""

    vectors = 0

    def project(self, parameters, constraints):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        gc.collect()
        shape = parameters[0].shape
        self.vectors = sum(
            1
            for each in gc.get_objects()
            if type(each) is Tensor and each.shape == shape
        )
        return super().project(parameters, constraints)


def test_a_projection_begins_without_the_vectors_that_updates_need() -> None:
    w = torch.zeros(37, 41, requires_grad=True)
    total = oneproj.function(lambda: (w - 1.0).square().sum())
    size = oneproj.function(lambda: w.square().sum())
    problem = oneproj.Problem(w, total, {"size": size <= 100.0})
    projector = Weighing()
    oneproj.solve(problem, steps=60, projector=projector)
    # The point before the projection, and the start, which is feasible.
    assert 1 <= projector.vectors <= 3
