"""Other data, another loss, another frozen layer: a checkpoint is not theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import oneproj
from oneproj import Solution
from oneproj.training.checkpoints import SAMPLE, check_sample, sample_values

# Runs are stopped within their first outer iteration here, which is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:The selected iterate is the start")

STEPS, ROWS = 12, 700


class Parts:
    """A network of which the first layer is frozen, and the data of two risks."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        fill = torch.Generator().manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(3, 6),
            nn.BatchNorm1d(6),
            nn.Tanh(),
            nn.Dropout(0.2),
            nn.Linear(6, 1),
        ).to(dtype)
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(0.5 * torch.randn(p.shape, generator=fill))
        self.model[0].requires_grad_(requires_grad=False)
        self.x, self.source = torch.randn(2, ROWS, 3, generator=fill).to(dtype)
        self.y = torch.sign(self.x[:, 0])
        self.z = torch.sign(self.source[:, 1] + 0.5)
        self.loss: Callable[[Tensor], Tensor] = lambda margin: softplus(-margin)

    def problem(self) -> oneproj.Problem:
        def risk(batch: tuple[Tensor, Tensor]) -> Tensor:
            return self.loss(batch[1] * self.model(batch[0])[:, 0])

        return oneproj.Problem(
            self.model.parameters(),
            objective=oneproj.mean(risk, data=(self.x, self.y)),
            constraints={
                "source": oneproj.mean(risk, data=(self.source, self.z)) <= 0.6,
                "size": oneproj.sets.Ball(5.0).on(self.model[4].weight),
            },
            radius=20.0,
            model=self.model,
        )


def run(parts: Parts, **arguments: object) -> Solution:
    torch.manual_seed(0)  # dropout draws from the global generator
    given = {"steps": STEPS, "batch_size": 8, "progress": False} | arguments
    return oneproj.solve(parts.problem(), **given)


def stopped(file: Path, parts: Parts) -> None:
    run(parts, checkpoint=file, callbacks=lambda update: update.update == 5)


def shuffle(parts: Parts) -> None:
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    parts.x, parts.y = parts.x[order], parts.y[order]


def relabel(parts: Parts) -> None:
    parts.z[0] *= -1  # one label, of an example in the sample


def scale(parts: Parts) -> None:
    parts.source = 1.01 * parts.source


def square(parts: Parts) -> None:
    parts.loss = lambda margin: (1.0 - margin).square()


def thaw(parts: Parts) -> None:
    with torch.no_grad():
        parts.model[0].weight.mul_(1.1)


@pytest.mark.parametrize(
    ("change", "term"),
    [
        (shuffle, "objective"),
        (relabel, "source"),
        (scale, "source"),
        (square, "objective"),
        (thaw, "objective"),
    ],
)
def test_what_changed_is_named_and_nothing_is_loaded(
    tmp_path: Path, change: Callable[[Parts], None], term: str
) -> None:
    file = tmp_path / "run.pt"
    stopped(file, Parts())
    parts = Parts()
    change(parts)
    before = {name: t.clone() for name, t in parts.model.state_dict().items()}
    with pytest.raises(
        oneproj.CheckpointError, match=rf"data or the function of '{term}' has changed"
    ):
        run(parts, checkpoint=oneproj.Checkpoint(file))
    for name, tensor in parts.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_same_goes_on_from_another_start_to_the_same_bits(tmp_path: Path) -> None:
    whole, file, resumed = Parts(), tmp_path / "run.pt", Parts()
    expected = run(whole)
    stopped(file, Parts())
    with torch.no_grad():  # what is trained is loaded, so it need not be the same now
        resumed.model[4].weight.add_(1.0)
        resumed.model[1].running_mean.add_(1.0)
    found = run(resumed, checkpoint=oneproj.Checkpoint(file))
    assert found.counts == expected.counts
    assert found.history["objective"] == expected.history["objective"]
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, whole.model.state_dict()[name]), name


def test_rounding_is_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    stopped(file, Parts())
    parts = Parts()
    whole = parts.loss
    parts.loss = lambda margin: whole(margin) * (1.0 + 5e-7)  # of float32: 4 units
    assert run(parts, checkpoint=oneproj.Checkpoint(file)).feasible


def test_a_sample_is_spread_over_all_data_and_whole_where_it_is_small() -> None:
    seen: list[Tensor] = []

    def watch(batch: Tensor) -> Tensor:
        seen.append(batch.detach())
        return batch * w

    w = torch.ones(1, requires_grad=True)
    for rows in (5, SAMPLE, 100 * SAMPLE):
        term = oneproj.mean(watch, data=torch.arange(float(rows)))
        problem = oneproj.Problem(w, term, {})
        seen.clear()
        sample_values(problem)
        (taken,) = seen
        assert len(taken.unique()) == len(taken) == min(rows, SAMPLE)
        assert taken[0] == 0
        assert taken[-1] >= rows * (1 - 1 / len(taken))


def test_looking_changes_nothing() -> None:
    parts = Parts()
    problem = parts.problem()
    noise = torch.get_rng_state()
    buffers = {name: b.clone() for name, b in parts.model.named_buffers()}
    values = sample_values(problem)
    assert torch.equal(torch.get_rng_state(), noise)
    assert all(torch.equal(b, buffers[n]) for n, b in parts.model.named_buffers())
    assert parts.model.training
    assert values.keys() == {"objective", "source", "size"}
    check_sample(problem, values)


def test_noise_of_torch_is_repeated_and_other_noise_is_not_compared() -> None:
    w = torch.arange(1.0, 33.0, requires_grad=True)
    dropout = oneproj.function(lambda: nn.functional.dropout(w, 0.5).square().sum())
    problem = oneproj.Problem(w, dropout, {})
    saved = sample_values(problem)
    torch.manual_seed(7)  # wherever the global generator is by then
    check_sample(problem, saved)
    with pytest.raises(oneproj.CheckpointError, match=r"was 5\.0 then"):
        check_sample(problem, {"objective": 5.0})
    rng = np.random.default_rng(0)
    other = oneproj.function(lambda: float(rng.normal()) * w.sum())
    check_sample(oneproj.Problem(w, other, {}), saved)


def test_what_is_not_finite_is_compared_as_it_is() -> None:
    w = torch.ones(1, requires_grad=True)
    problem = oneproj.Problem(w, oneproj.function(lambda: w.log().sum()), {})
    with torch.no_grad():
        w.zero_()
    check_sample(problem, {"objective": -float("inf")})
    with pytest.raises(oneproj.CheckpointError, match=r"was 1.0 then and is -inf now"):
        check_sample(problem, {"objective": 1.0})
