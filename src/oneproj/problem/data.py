"""A data set as batches: all of it in a fixed order, or the examples at some indices.

Tensors, arrays, and tuples and dicts of them are indexed directly. Items of a
``Dataset`` are read one by one, or together if it has ``__getitems__``, and collated. A
``DataLoader`` stands for the examples that its sampler goes through, each once: neither
their order nor the length of an epoch matters for a mean. The data is never copied as a
whole, and the order of a full pass never depends on a random state.
"""

from __future__ import annotations

import copy
import warnings
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain, islice
from operator import index, itemgetter
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

Rows: TypeAlias = Tensor | np.ndarray[Any, Any]
"""Examples along the first dimension."""
DataLike: TypeAlias = (
    Rows | Sequence[Rows] | Mapping[str, Rows] | Dataset[Any] | DataLoader[Any]
)
"""What ``mean(..., data=...)`` accepts."""
Rebuild: TypeAlias = Callable[[list[Tensor]], Any]
"""Makes a batch of the user's type from its tensors."""
ROW_DIMENSIONS = 2
"""The most dimensions of a tensor whose examples are numbers or vectors."""
SUBSET = (
    "Pass the data set itself for all of its examples, or torch.utils.data.Subset("
    "dataset, indices) for some"
)


STREAMING = """\
    penalty = oneproj.AutoPenalty(optimizer, constraints)
    for batch in stream:
        optimizer.zero_grad()
        (loss(batch) + penalty()).backward()
        optimizer.step()
    solution = penalty.finish()"""
"""What a message shows to whom has a stream."""


class Source:
    """Examples that can be counted and read by index.

    Args:
        size: The number of examples.
        read: Returns those at the indices of a tensor or a slice, as one batch.
        tabular: Whether every example is a row of numbers in memory.
        ahead: Returns all batches of that many examples, in order, read ahead by
            workers; None where batches are read one by one.
    """

    trained_on: bool = False
    """Whether a problem, or a projection, has used it: it says nothing about new data
    then. ``confirm`` asks."""

    def __init__(
        self,
        size: int,
        read: Callable[[Tensor | slice], Any],
        *,
        tabular: bool = False,
        ahead: Callable[[int], Iterable[Any]] | None = None,
    ) -> None:
        """Refuse empty data."""
        if size == 0:
            message = (
                "The data is empty: it holds 0 examples, so its mean is undefined. "
                "Check the filter or the split that produced it."
            )
            raise InvalidProblemError(message)
        self.size, self.read, self.tabular = size, read, tabular
        self._ahead = ahead

    def of_rows(self, rows: Tensor) -> Source:
        """The examples at these indices, in their order."""
        return Source(len(rows), lambda at: self.read(rows[at]), tabular=self.tabular)

    def chunks(self, chunk_size: int) -> Iterator[slice]:
        """Yield consecutive slices of all examples, always in the same order."""
        for start in range(0, self.size, chunk_size):
            yield slice(start, min(start + chunk_size, self.size))

    def batches(self, chunk_size: int) -> Iterator[tuple[slice, Any]]:
        """Yield all examples in such slices, always in the same order, and read."""
        chunks = self.chunks(chunk_size)
        if self._ahead is None:
            for chunk in chunks:
                yield chunk, self.read(chunk)
        else:
            yield from zip(chunks, self._ahead(chunk_size), strict=True)


def as_source(data: DataLike) -> Source:
    """Wrap the user's data; see ``DataLike`` for what is accepted.

    Of a ``DataLoader`` the collate function is used, the examples that its sampler goes
    through, and for full passes its workers. Their order is not: a full pass needs a
    fixed one, and the run's seed determines the minibatches.

    Raises:
        InvalidProblemError: The data is empty, ragged, not finite or a stream, or a
            sampler does not determine which examples count.

    Example:
        >>> source = as_source((torch.arange(6.0).reshape(3, 2), torch.arange(3)))
        >>> source.size, source.read(slice(1, 2))
        (3, (tensor([[2., 3.]]), tensor([1])))
    """
    if isinstance(data, Tensor | np.ndarray):
        return _tensor_source([data], lambda rows: rows[0])
    if isinstance(data, Mapping):
        return _tensor_source(list(data.values()), _rebuild_mapping(data))
    if isinstance(data, DataLoader):
        sampled = _sampled(data, _count(data.dataset))
        return _dataset_source(sampled, data.collate_fn, workers=data)
    if isinstance(data, Dataset):
        return _dataset_source(data, default_collate)
    if isinstance(data, Sequence):
        rebuild = getattr(type(data), "_make", tuple)  # of a namedtuple
        return _tensor_source(data, rebuild)
    message = (
        f"Data of type {type(data).__name__} is not understood. Pass a tensor, a "
        "tuple or dict of tensors, a torch Dataset or a DataLoader; of a data frame "
        "pass .to_numpy()."
    )
    raise InvalidProblemError(message)


def _tensor_source(given: Sequence[object], rebuild: Rebuild) -> Source:
    """Tensors whose first dimension counts the examples."""
    tensors = [_as_data_tensor(item) for item in given]
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        message = (
            "All tensors of a data set must have the same first dimension, which "
            f"counts the examples, but got shapes {shapes}. Example i is row i of "
            "every tensor; a term without data is oneproj.function."
        )
        raise InvalidProblemError(message)
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            bad = (~torch.isfinite(tensor)).nonzero()
            message = (
                f"The data holds {len(bad)} NaN or infinite value(s) in a tensor of "
                f"shape {tuple(tensor.shape)}, the first in row {int(bad[0, 0])}. "
                "Impute or drop them first: one bad row makes every full pass NaN."
            )
            raise InvalidProblemError(message)

    def read(at: Tensor | slice) -> object:
        if isinstance(at, slice):
            return rebuild(list(map(itemgetter(at), tensors)))
        return rebuild([t.index_select(0, at.to(t.device)) for t in tensors])

    # Rows of whole numbers are usually sequences of tokens.
    tabular = all(
        t.dim() < ROW_DIMENSIONS
        or (t.dim() == ROW_DIMENSIONS and t.is_floating_point())
        for t in tensors
    )
    return Source(len(tensors[0]), read, tabular=tabular)


def _dataset_source(
    dataset: Dataset[Any],
    collate: Callable[[Any], Any],
    *,
    workers: DataLoader[Any] | None = None,
) -> Source:
    """A map-style data set, collated; full passes are read by a loader's workers."""
    size = _count(dataset)
    get_many = getattr(dataset, "__getitems__", None)  # torch's loader uses it too

    def read(at: Tensor | slice) -> object:
        if isinstance(at, slice):
            at = torch.arange(at.start, at.stop, device="cpu")
        indices = at.tolist()
        if callable(get_many):
            return collate(get_many(indices))
        return collate([dataset[i] for i in indices])

    def ahead(chunk_size: int) -> DataLoader[Any]:
        loader: Any = workers
        return DataLoader(
            dataset,
            chunk_size,
            collate_fn=collate,
            generator=torch.Generator(),  # or their seeds came from the global one
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
        )

    parallel = workers is not None and workers.num_workers > 0
    return Source(size, read, ahead=ahead if parallel else None)


def _rebuild_mapping(data: Mapping[Any, Rows]) -> Rebuild:
    """Make batches of the class of a dict or UserDict; of dict for other mappings."""
    # A copy of another mapping may share its entries, and be changed with them.
    empty = data if isinstance(data, dict | UserDict) else {}

    def rebuild(rows: list[Tensor]) -> object:
        batch: Any = copy.copy(empty)
        batch.update(zip(data, rows, strict=True))
        return batch

    return rebuild


def _sampled(loader: DataLoader[Any], size: int) -> Dataset[Any]:
    """The data set, or the part of it, that the sampler of a loader goes through.

    ``drop_last`` leaves out other examples in every epoch, so none are left out here.
    """
    if loader.batch_sampler is None:
        message = (
            "A DataLoader with batch_size=None hands over every item of its data set "
            "as a batch of its own, so the examples in it cannot be counted or drawn. "
            "Give it a batch_size if an item is one example; if it is a batch, pass "
            "the joined tensors."
        )
        raise InvalidProblemError(message)
    indices = _indices(loader.batch_sampler, size)
    if not all(0 <= i < size for i in indices):
        message = (
            f"The sampler of the DataLoader goes through examples up to {max(indices)} "
            f"of a data set that has {size}. Give it that data set, or its indices."
        )
        raise InvalidProblemError(message)
    whole = indices == range(size)
    return loader.dataset if whole else Subset(loader.dataset, indices)


def _indices(batches: Any, size: int) -> Sequence[int]:  # noqa: ANN401 - any sampler
    """The examples of an epoch; a sampler of unknown type is gone through twice."""
    plain = type(batches) is BatchSampler  # a user's own may have no sampler at all
    sampler: Any = batches.sampler if plain else batches
    if type(sampler) is SequentialSampler or type(sampler) is RandomSampler:
        return range(len(sampler.data_source))  # RandomSampler: however long its epoch
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
        if sampler.num_replicas == 1:
            return range(len(sampler.dataset))  # type: ignore[arg-type]  # it has one
        message = (
            "A DistributedSampler gives this process its share of the examples, one of "
            f"{sampler.num_replicas}: every process would project onto constraints of "
            f"its own. {SUBSET}."
        )
        raise InvalidProblemError(message)
    with torch.random.fork_rng([]):  # the user's generator continues where it was
        once, twice = (_epoch(sampler, size, batched=not plain) for _ in range(2))
    if once is not None and once == twice:
        return range(size) if len(once) == size else once
    message = (
        f"It cannot be told which examples the {type(sampler).__name__} of the "
        "DataLoader stands for: gone through twice, it did not give the same ones both "
        f"times, each once. {SUBSET}, and weights= where some count more."
    )
    raise InvalidProblemError(message)


def _epoch(sampler: Iterable[Any], size: int, *, batched: bool) -> list[int] | None:
    """The indices of one epoch in ascending order; None if one comes twice."""
    items = chain.from_iterable(sampler) if batched else sampler
    found = [index(i) for i in islice(items, size + 1)]
    return sorted(found) if len(set(found)) == len(found) else None


def changes(tensors: object) -> int:
    """How often tensors, also in containers, were changed in place, as torch counts.

    Example:
        >>> x = torch.zeros(2); before = changes((x, x[:1]))
        >>> _ = x[1:].add_(1.0)               # also through another view
        >>> changes((x, x[:1])) - before
        2
    """
    if isinstance(tensors, Tensor):
        return 0 if tensors.is_inference() else tensors._version  # noqa: SLF001 - has no public name
    if isinstance(tensors, Mapping):
        return sum(changes(item) for item in tensors.values())
    if isinstance(tensors, list | tuple):
        return sum(changes(item) for item in tensors)
    return 0


def _count(dataset: Dataset[Any]) -> int:
    if isinstance(dataset, Sized) and not isinstance(dataset, IterableDataset):
        return len(dataset)
    message = (
        f"The data set is a stream ({type(dataset).__name__} has no length or no fixed "
        "order), so a mean over it cannot be evaluated exactly. A constraint needs a "
        "map-style Dataset, with __len__ and __getitem__. An objective may be a stream "
        f"in a loop of your own:\n{STREAMING}"
    )
    raise InvalidProblemError(message)


def _as_data_tensor(item: object) -> Tensor:
    """A tensor of the user's, or an array as a tensor in the same memory."""
    if isinstance(item, np.ndarray):
        return _shared(item)
    if not isinstance(item, Tensor):
        message = (
            f"A tuple or dict of data must hold tensors, but got {type(item).__name__}"
            ". Convert it with torch.as_tensor or .to_numpy() first; flatten columns "
            "that are nested, (a, b, y) in place of ((a, b), y); or wrap pairs of "
            "examples in a torch.utils.data.DataLoader."
        )
        raise InvalidProblemError(message)
    check_dense("A data tensor", item)
    if item.is_inference():
        message = (
            f"A data tensor of shape {tuple(item.shape)} was made inside "
            "torch.inference_mode(), so no loss of it can be differentiated. Make it "
            "outside of that block, or pass its clone()."
        )
        raise InvalidProblemError(message)
    return item


def _shared(array: np.ndarray[Any, Any]) -> Tensor:
    check_unmasked("A data array", array)
    try:
        with warnings.catch_warnings():
            # It may be read-only: nothing here writes to it.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        message = (
            f"An array of dtype {array.dtype} and strides {array.strides} cannot be "
            f"seen as a tensor: {str(error).rstrip('.')}. Convert it first, with "
            "np.ascontiguousarray or astype; words with np.unique(words, "
            "return_inverse=True)[1]."
        )
        raise InvalidProblemError(message) from error
