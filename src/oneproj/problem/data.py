"""The examples that a ``DataLoader`` stands for: those that its sampler goes through.

A mean is over fixed examples, each as often as any other. Of a sampler it matters which
examples it goes through, and neither their order nor how long an epoch is.

A data set seen as batches: all of it in a fixed order, or a random minibatch.

Tensors, arrays, and tuples and dicts of them are indexed directly; a ``Dataset``, or
what the sampler of a ``DataLoader`` goes through, is indexed item by item, or by many
where it can be (``__getitems__``), and collated. The data is never copied as a whole,
and the order of a full pass never depends on a random state.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from itertools import chain, islice
from operator import index
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from oneproj.arguments import check_dense, check_unmasked
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


Rows: TypeAlias = Tensor | np.ndarray[Any, Any]
"""Examples along the first dimension."""
DataLike: TypeAlias = (
    Rows | Sequence[Rows] | Mapping[str, Rows] | Dataset[Any] | DataLoader[Any]
)
"""What ``mean(..., data=...)`` accepts."""
ROWS = 2
"""Dimensions of a tensor whose examples are vectors, at most."""


class AbstractSource(ABC):
    """Examples that can be counted and taken by index."""

    tabular = False
    """Whether every example is a row of numbers in memory."""

    def __init__(self, size: int) -> None:
        """Remember how many examples there are."""
        if size == 0:
            message = (
                "The data is empty: it holds 0 examples, so its mean is undefined. "
                "Check the filter or the split that produced it."
            )
            raise InvalidProblemError(message)
        self.size = size

    @abstractmethod
    def take(self, indices: Tensor) -> Any:  # noqa: ANN401 - a batch has the user's type
        """Return the examples at ``indices`` as one batch."""

    @abstractmethod
    def span(self, start: int, stop: int) -> Any:  # noqa: ANN401 - as above
        """Return the examples ``start .. stop-1`` as one batch."""

    def spans(self, chunk_size: int) -> Iterator[tuple[int, int]]:
        """Yield the bounds of consecutive chunks, always in the same order."""
        for start in range(0, self.size, chunk_size):
            yield start, min(start + chunk_size, self.size)

    def draw(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """Draw indices of a minibatch, uniformly with replacement.

        With replacement the estimate is unbiased for every batch size and the cost
        does not depend on the size of the data set.
        """
        return torch.randint(
            self.size, (batch_size,), generator=generator, device="cpu"
        )


class _TensorSource(AbstractSource):
    """Tensors whose first dimension counts the examples."""

    def __init__(
        self, tensors: Sequence[Tensor], rebuild: Callable[[list[Tensor]], Any]
    ) -> None:
        sizes = [_leading_size(tensor) for tensor in tensors]
        if not sizes or len(set(sizes)) > 1:
            message = (
                "All tensors of a data set must have the same first dimension, but "
                f"got sizes {sizes}. Example i is row i of every tensor."
            )
            raise InvalidProblemError(message)
        for tensor in tensors:
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                bad = (~torch.isfinite(tensor)).nonzero()
                message = (
                    f"The data holds {len(bad)} NaN or infinite value(s) in a tensor "
                    f"of shape {tuple(tensor.shape)}, the first in row {int(bad[0, 0])}"
                    ". Impute or drop them first: one bad row makes every full pass "
                    "NaN."
                )
                raise InvalidProblemError(message)
        super().__init__(sizes[0])
        self._tensors = list(tensors)
        # Rows of whole numbers are sequences of tokens, as a rule.
        self.tabular = all(
            t.dim() < ROWS or (t.dim() == ROWS and t.is_floating_point())
            for t in tensors
        )
        self._rebuild = rebuild

    def take(self, indices: Tensor) -> Any:  # noqa: ANN401 - see the base class
        rows = [t.index_select(0, indices.to(t.device)) for t in self._tensors]
        return self._rebuild(rows)

    def span(self, start: int, stop: int) -> Any:  # noqa: ANN401 - see the base class
        return self._rebuild([t[start:stop] for t in self._tensors])


class _DatasetSource(AbstractSource):
    """A map-style data set, collated item by item."""

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any]
    ) -> None:
        super().__init__(_count(dataset))
        self._dataset = dataset
        self._collate = collate

    def take(self, indices: Tensor) -> Any:  # noqa: ANN401 - see the base class
        return self._at(indices.tolist())

    def span(self, start: int, stop: int) -> Any:  # noqa: ANN401 - see the base class
        return self._at(list(range(start, stop)))

    def _at(self, indices: list[int]) -> Any:  # noqa: ANN401 - see the base class
        together = getattr(
            self._dataset, "__getitems__", None
        )  # as torch's loader does
        if callable(together):
            return self._collate(together(indices))
        return self._collate([self._dataset[i] for i in indices])


def as_source(data: DataLike) -> AbstractSource:
    """Wrap the user's data; see ``DataLike`` for what is understood.

    Of a ``DataLoader`` the collate function is used, and those examples of its data set
    that its sampler goes through (``loaders.py``). Their order is not: a full pass
    needs a fixed one, and minibatches come from the generators that the run's seed
    determines.

    Raises:
        InvalidProblemError: The data is empty, ragged, not finite or a stream, or a
            sampler leaves open which examples count.

    Example:
        >>> source = as_source((torch.arange(6.0).reshape(3, 2), torch.arange(3)))
        >>> source.size, source.span(1, 2)
        (3, (tensor([[2., 3.]]), tensor([1])))
    """
    if isinstance(data, Tensor | np.ndarray):
        return _TensorSource([_tensor(data)], lambda rows: rows[0])
    if isinstance(data, Mapping):
        return _TensorSource([_tensor(item) for item in data.values()], _like(data))
    if isinstance(data, DataLoader):
        return _DatasetSource(sampled(data, _count(data.dataset)), data.collate_fn)
    if isinstance(data, Dataset):
        return _DatasetSource(data, default_collate)
    if isinstance(data, Sequence):
        rebuild = getattr(type(data), "_make", tuple)  # that of a namedtuple
        return _TensorSource([_tensor(item) for item in data], rebuild)
    message = (
        f"Data of type {type(data).__name__} is not understood. Pass a tensor, a "
        "tuple or dict of tensors, a torch Dataset or a DataLoader; of a data frame "
        "pass .to_numpy()."
    )
    raise InvalidProblemError(message)


def _like(data: Mapping[Any, Rows]) -> Callable[[list[Tensor]], Any]:
    """How to make a batch of the type of a mapping; where that fails, a dict."""
    names = list(data)

    def as_dict(rows: list[Tensor]) -> dict[Any, Tensor]:
        return dict(zip(names, rows, strict=True))

    def copied(rows: list[Tensor]) -> Any:  # noqa: ANN401 - a batch of that type
        batch: Any = copy.copy(data)
        batch.update(as_dict(rows))
        return batch

    def made(rows: list[Tensor]) -> Any:  # noqa: ANN401 - as above
        return type(data)(as_dict(rows))  # type: ignore[call-arg]  # it may take one

    if type(data) is dict:
        return as_dict
    # A copy of another mapping may share what it holds with the user's own.
    ways = [copied, made] if isinstance(data, dict | UserDict) else [made]
    for way in ways:
        with suppress(Exception):  # whatever a class of the user's refuses
            if list(way([torch.empty(0) for _ in names])) == names:
                return way
    return as_dict


def changes(batch: object) -> int:
    """How often the tensors of a batch were changed in place, by torch's own count.

    Example:
        >>> x = torch.zeros(2); before = changes((x, x[:1]))
        >>> _ = x[1:].add_(1.0)               # also through another view
        >>> changes((x, x[:1])) - before
        2
    """
    if isinstance(batch, Tensor):
        return 0 if batch.is_inference() else batch._version  # noqa: SLF001 - no other name
    if isinstance(batch, Mapping):
        return sum(changes(item) for item in batch.values())
    if isinstance(batch, list | tuple):
        return sum(changes(item) for item in batch)
    return 0


def _count(dataset: Dataset[Any]) -> int:
    if isinstance(dataset, Sized) and not isinstance(dataset, IterableDataset):
        return len(dataset)
    message = (
        f"The data set is a stream ({type(dataset).__name__} has no length or no fixed "
        "order), so a mean over it cannot be evaluated exactly. Use a map-style "
        "Dataset, with __len__ and __getitem__."
    )
    raise InvalidProblemError(message)


def _tensor(item: object) -> Tensor:
    if isinstance(item, Tensor):
        check_dense("A data tensor", item)
        if not item.is_inference():
            return item
        message = (
            f"A data tensor of shape {tuple(item.shape)} was made inside "
            "torch.inference_mode(), so no loss of it can be differentiated. Make it "
            "outside of that block, or pass its clone()."
        )
        raise InvalidProblemError(message)
    if isinstance(item, np.ndarray):
        return _shared(item)
    message = (
        f"A tuple or dict of data must hold tensors, but got {type(item).__name__}. "
        "Convert it with torch.as_tensor first, a data frame or series with "
        ".to_numpy(); or flatten columns that are nested, (a, b, y) in place of "
        "((a, b), y); or wrap pairs of examples in a torch.utils.data.DataLoader."
    )
    raise InvalidProblemError(message)


def _shared(array: np.ndarray[Any, Any]) -> Tensor:
    """The array as a tensor of its dtype, in the same memory."""
    check_unmasked("A data array", array)
    try:
        with warnings.catch_warnings():
            # That it may be read-only does not matter: nothing here writes to it.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        message = (
            f"An array of dtype {array.dtype} and strides {array.strides} cannot be "
            f"seen as a tensor: {str(error).rstrip('.')}. Convert it first, with "
            "np.ascontiguousarray or astype; words, such as the names of classes, "
            "become numbers by np.unique(words, return_inverse=True)[1]."
        )
        raise InvalidProblemError(message) from error


def _leading_size(tensor: Tensor) -> int:
    if tensor.dim() == 0:
        message = (
            "A data tensor must have a first dimension that counts the examples, but "
            "got a scalar. Use oneproj.function for a term without data."
        )
        raise InvalidProblemError(message)
    return int(tensor.shape[0])
