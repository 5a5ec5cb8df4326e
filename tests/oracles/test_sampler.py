"""Minibatches without repetition: every epoch, every size, and after a resume."""

from __future__ import annotations

import pytest
import torch

import oneproj
from oneproj.oracles import base as module
from oneproj.oracles.base import Sampler
from oneproj.problem.checks import PROBE_SIZE


def make_sampler(n: int, batch_size: int, seed: int = 0) -> Sampler:
    risk = oneproj.mean(lambda batch: batch, data=torch.arange(float(n)))
    return Sampler(risk, batch_size, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("n", "batch_size"), [(12, 4), (13, 4), (7, 6), (100, 1)])
def test_an_epoch_sees_no_example_twice(n: int, batch_size: int) -> None:
    sampler = make_sampler(n, batch_size)
    for _ in range(3):
        epoch = torch.cat([sampler.draw() for _ in range(n // batch_size)])
        assert len(set(epoch.tolist())) == len(epoch) == n // batch_size * batch_size


def test_epochs_differ() -> None:
    sampler = make_sampler(20, 20 // 2)
    first, _, second, _ = (sampler.draw().tolist() for _ in range(4))
    assert first != second


def test_every_minibatch_is_uniform_by_itself() -> None:
    # The third of an epoch of four; each of 8 examples is in it with probability 1/4.
    counts = torch.zeros(8)
    for seed in range(2000):
        sampler = make_sampler(8, 2, seed)
        third = [sampler.draw() for _ in range(3)][-1]
        counts[third] += 1
    expected, sd = 2000 / 4, (2000 * 0.25 * 0.75) ** 0.5
    assert (counts - expected).abs().max() < 4.5 * sd


@pytest.mark.parametrize("batch_size", [5, 6, 64])
def test_a_minibatch_of_all_is_all(batch_size: int) -> None:
    assert make_sampler(5, batch_size).draw() is None


def test_without_data_there_is_nothing_to_draw() -> None:
    w = torch.zeros(1, requires_grad=True)
    sampler = Sampler(oneproj.function(w.sum), 4, torch.Generator())
    assert sampler.draw() is None


def test_of_too_many_examples_no_permutation_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_SHUFFLED", 10)
    sampler = make_sampler(11, 4)
    assert len(sampler.draw()) == 4
    assert sampler.state_dict()["order"] is None


def test_it_goes_on_in_the_middle_of_an_epoch() -> None:
    first = make_sampler(11, 2, seed=3)
    for _ in range(7):
        first.draw()
    second = make_sampler(11, 2)
    second.load_state_dict(first.state_dict())
    second._generator.set_state(first._generator.get_state())
    for _ in range(20):
        assert torch.equal(first.draw(), second.draw())


@pytest.mark.parametrize("oracle", ["anchored", "exact", "minibatch"])
def test_the_objective_is_shuffled_unless_the_paper_has_it_otherwise(
    oracle: str,
) -> None:
    seen: list[float] = []

    def losses(batch: torch.Tensor) -> torch.Tensor:
        seen.extend(batch.tolist())
        return (w - batch).square()

    w = torch.zeros(1, requires_grad=True)
    cap = oneproj.mean(lambda batch: w - batch, data=torch.arange(1000.0))
    problem = oneproj.Problem(
        w, oneproj.mean(losses, data=torch.arange(100.0)), {"cap": cap <= -500.0}
    )
    seen.clear()  # a problem tries its terms; a start that is feasible is judged
    oneproj.solve(problem, steps=10, batch_size=10, oracle=oracle, lr=0.1)
    drawn = seen[PROBE_SIZE:][:100]  # a run does so too
    assert (len(set(drawn)) == 100) == (oracle != "minibatch")
