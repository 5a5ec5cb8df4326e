"""A loader stands for the examples that its sampler goes through, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import oneproj
from oneproj import InvalidProblemError

N = 20


def batch_of(data: Any, indices: list[int]) -> Any:  # noqa: ANN401 - all kinds of data
    """The batch that a mean passes to its function for these examples."""
    batches: list[Any] = []

    def fn(batch: Any) -> Tensor:  # noqa: ANN401 - all kinds of data
        batches.append(batch)
        return torch.zeros(len(indices))

    oneproj.mean(fn, data).examples(torch.tensor(indices))
    return batches[0]


X = TensorDataset(torch.arange(N))
SOME = [3, 11, 7]


class EachEpoch(Sampler[int]):
    """Another half in every epoch, or with another draw of the global generator."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(N)[: N // 2].tolist()


class Ordered(Sampler[int]):
    """The same examples in every epoch, in another order."""

    def __iter__(self) -> Iterator[int]:
        yield from (SOME[i] for i in torch.randperm(len(SOME)))


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(N)


class Lengths(Sampler[list[int]]):
    """Batches of a user's own."""

    def __init__(self, *batches: list[int]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches


def replicas(count: int) -> DistributedSampler[Any]:
    return DistributedSampler(X, num_replicas=count, rank=0)


UNDERSTOOD: dict[str, tuple[dict[str, Any], list[int]]] = {
    "none": ({}, list(range(N))),
    "shuffle": ({"shuffle": True}, list(range(N))),
    "drop_last": ({"batch_size": 8, "drop_last": True}, list(range(N))),
    "short epochs": ({"sampler": RandomSampler(X, num_samples=3)}, list(range(N))),
    "of a part": ({"sampler": SequentialSampler(range(4))}, list(range(4))),
    "indices": ({"sampler": SubsetRandomSampler(SOME)}, SOME),
    "a tensor": ({"sampler": SubsetRandomSampler(torch.tensor(SOME))}, SOME),
    "an array": ({"sampler": SubsetRandomSampler(np.array(SOME))}, SOME),
    "a list": ({"sampler": SOME}, sorted(SOME)),
    "other order": ({"sampler": Ordered()}, sorted(SOME)),
    "batches of a part": (
        {"batch_sampler": BatchSampler(SubsetRandomSampler(SOME), 2, drop_last=True)},
        SOME,
    ),
    "own batches": ({"batch_sampler": Lengths([5, 1], [2])}, [1, 2, 5]),
    "one process": ({"sampler": replicas(1)}, list(range(N))),
}


@pytest.mark.parametrize(("given", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_the_examples_are_those_of_the_sampler(
    given: dict[str, Any], expected: list[int]
) -> None:
    before = torch.get_rng_state()
    loader, rows = DataLoader(X, **given), list[int]()

    def collect(batch: tuple[Tensor]) -> Tensor:
        rows.extend(batch[0].tolist())
        return torch.zeros(len(batch[0]))

    mean = oneproj.mean(collect, loader, chunk_size=2)
    assert torch.equal(torch.get_rng_state(), before), "what was drawn is put back"
    assert mean.size == len(expected)
    mean.value()
    assert rows == expected
    assert batch_of(loader, [1, 0])[0].tolist() == [expected[1], expected[0]]


WEIGHTED = WeightedRandomSampler(torch.rand(N), N)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "weighted": ({"sampler": WEIGHTED}, r"weights=w \* len\(dataset\)"),
    "other every epoch": ({"sampler": EachEpoch()}, r"EachEpoch.*Subset\(dataset"),
    "endless": ({"sampler": Endless()}, "each once"),
    "one twice": ({"batch_sampler": Lengths([1, 2], [2])}, "each once"),
    "used up": ({"sampler": iter(SOME)}, "each once"),
    "a share": ({"sampler": replicas(2)}, "one of 2: every process"),
    "ready batches": ({"batch_size": None}, "the joined tensors"),
}


@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_what_leaves_the_examples_open_is_refused(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidProblemError, match=words):
        oneproj.mean(lambda batch: batch[0], DataLoader(X, **given))


def test_the_weights_that_are_advised_give_the_mean_of_the_sampler() -> None:
    w, weights = torch.ones((), requires_grad=True), WEIGHTED.weights
    values = torch.arange(float(N)).square()
    mean = oneproj.mean(
        lambda batch: w * batch, values, weights=weights * N / weights.sum()
    )
    expected = float((weights * values).sum() / weights.sum())
    assert mean.value() == pytest.approx(expected, rel=1e-6)


class Together(Dataset[Tensor]):
    """Hands over many examples at a time, and none alone."""

    def __len__(self) -> int:
        return N

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [torch.tensor(10 * i) for i in indices]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (Together(), [0, 10, 20]),
        (DataLoader(Together(), batch_size=4), [0, 10, 20]),
        (DataLoader(Together(), sampler=SubsetRandomSampler(SOME)), [30, 110, 70]),
    ],
    ids=["data set", "loader", "part"],
)
def test_many_at_a_time(data: Any, expected: list[int]) -> None:  # noqa: ANN401 - all kinds
    assert batch_of(data, [0, 1, 2]).tolist() == expected
    assert batch_of(data, [2, 0]).tolist() == [expected[2], expected[0]]


def test_indices_beyond_the_data_are_refused() -> None:
    data = TensorDataset(torch.arange(20.0))
    loader = DataLoader(data, sampler=SubsetRandomSampler([0, 50]))
    with pytest.raises(InvalidProblemError, match="up to 50 of a data set that has 20"):
        oneproj.mean(lambda batch: batch[0], loader)
