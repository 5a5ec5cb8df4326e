"""The examples that a ``DataLoader`` stands for: those that its sampler goes through.

A mean is over fixed examples, each as often as any other. Of a sampler it matters which
examples it goes through, and neither their order nor how long an epoch is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import index
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from oneproj.errors import InvalidProblemError

SUBSET = (
    "Pass the data set itself for all of its examples, or torch.utils.data.Subset("
    "dataset, indices) for some"
)


def sampled(loader: DataLoader[Any], size: int) -> Dataset[Any]:
    """The data set, or the part of it, that the sampler of a loader goes through.

    ``RandomSampler`` draws evenly from all, however long its epochs are;
    ``SubsetRandomSampler`` from its indices. Any other is gone through twice, and has
    to give the same examples both times, each once. ``drop_last`` leaves out other
    examples in every epoch, so that the loader stands for all of them.

    Args:
        loader: Of a map-style data set.
        size: The number of examples in that data set.

    Raises:
        InvalidProblemError: The sampler goes through other examples every time, or some
            more often than others, or those of one process of many; or the loader has
            ``batch_size=None``, so that an item is no example but a batch of them.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> x = TensorDataset(torch.arange(9))
        >>> loader = DataLoader(x, sampler=SubsetRandomSampler([2, 5]))
        >>> [int(item) for (item,) in sampled(loader, 9)]
        [2, 5]
    """
    if loader.batch_sampler is None:
        message = (
            "A DataLoader with batch_size=None hands over every item of its data set "
            "as a batch of its own, so the examples in it cannot be counted or drawn. "
            "Give it a batch_size if an item is one example; if it is a batch, join "
            "them: torch.utils.data.TensorDataset(torch.cat(inputs), torch.cat("
            "labels)), or pass the joined tensors."
        )
        raise InvalidProblemError(message)
    indices = _indices(loader, size)
    if not all(0 <= i < size for i in indices):
        message = (
            f"The sampler of the DataLoader goes through examples up to {max(indices)} "
            f"of a data set that has {size}. Give it that data set, or its indices."
        )
        raise InvalidProblemError(message)
    if indices == range(size):
        return loader.dataset
    return Subset(loader.dataset, indices)


def _indices(loader: DataLoader[Any], size: int) -> Sequence[int]:
    batches = loader.batch_sampler
    # One of the user's own is asked for its batches: it may have no sampler at all.
    plain = type(batches) is BatchSampler
    sampler: Any = batches.sampler if plain else batches  # type: ignore[union-attr]
    if type(sampler) is SequentialSampler or type(sampler) is RandomSampler:
        return range(len(sampler.data_source))
    if type(sampler) is SubsetRandomSampler:
        return [index(i) for i in sampler.indices]
    if isinstance(sampler, WeightedRandomSampler):
        message = (
            "A WeightedRandomSampler draws some examples more often than others, and a "
            "mean counts each once. Say how much each counts instead: oneproj.mean(fn, "
            "dataset, weights=w * len(dataset) / w.sum()), with w = sampler.weights."
        )
        raise InvalidProblemError(message)
    if isinstance(sampler, DistributedSampler):
        return _undivided(sampler)
    with torch.random.fork_rng([]):  # the user's draws go on where they were
        once, twice = (_enumerated(sampler, size, batched=not plain) for _ in range(2))
    if once is not None and once == twice:
        return range(size) if len(once) == size else once
    message = (
        f"It cannot be told which examples the {type(sampler).__name__} of the "
        "DataLoader stands for: gone through twice, it did not give the same ones both "
        f"times, each once. {SUBSET}, and weights= of oneproj.mean where some count "
        "more than others."
    )
    raise InvalidProblemError(message)


def _undivided(sampler: DistributedSampler[Any]) -> Sequence[int]:
    """All examples, if there is one process; a share of them would be of no use."""
    if sampler.num_replicas == 1:
        return range(len(sampler.dataset))  # type: ignore[arg-type]  # it has a length
    message = (
        "A DistributedSampler gives this process its share of the examples, one of "
        f"{sampler.num_replicas}: every process would project onto constraints of its "
        f"own, and none onto those of all data. {SUBSET}: a run is that of one process."
    )
    raise InvalidProblemError(message)


def _enumerated(
    sampler: Iterable[Any], size: int, *, batched: bool
) -> list[int] | None:
    """The indices of one epoch in ascending order; None if one comes twice."""
    items = chain.from_iterable(sampler) if batched else sampler
    found = [index(i) for i in islice(items, size + 1)]
    return sorted(found) if len(set(found)) == len(found) else None
