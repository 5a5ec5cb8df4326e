"""Which rows do two data sets share? Rows that training has seen are refused.

Two things can be told. Rows that lie at the same place in memory are the same rows.
Rows whose numbers are equal, bit by bit, are the same rows or duplicates; if far more
of them are found than the other data set has duplicates of its own, they are the same.

What cannot be told: rows that were copied and then changed (scaled, rounded to another
dtype, augmented at random), other columns of the same rows, and single numbers that
are no floats, such as labels.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.problem.data import DataLike, Source, as_source
from oneproj.problem.problem import Problem, named_constraints
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Solution

Training: TypeAlias = Problem | Mapping[str, AbstractTerm] | AbstractTerm | DataLike
CHUNK = 4096
"""Rows that are read at a time."""
DOUBT = 1e-3
"""Equal rows are taken for duplicates unless chance has them this rarely."""
Digests = dict[tuple[str, tuple[int, ...]], list[int]]
"""By dtype and shape of a row: a hash of every row."""


class RowSet(NamedTuple):
    """Some rows of a data set.

    Attributes:
        source: The data set.
        rows: Indices of the rows; None for all.
    """

    source: Source
    rows: Tensor | None

    @property
    def indices(self) -> Tensor:
        """The indices of the rows."""
        if self.rows is None:
            return torch.arange(self.source.size, device="cpu")
        return self.rows.cpu()

    def digests(self) -> Digests:
        """Hash the rows, by the dtype and shape of what they are made of.

        Example:
            >>> from oneproj.problem.data import as_source
            >>> rows = RowSet(as_source((torch.ones(3, 2), torch.arange(3))), None)
            >>> {key: len(set(found)) for key, found in rows.digests().items()}
            {('torch.float32', (2,)): 1}
        """
        found: Digests = {}
        indices = self.indices
        for start in range(0, len(indices), CHUNK):
            batch = self.source.read(indices[start : start + CHUNK])
            for tensor in _tensors(batch):
                if _says_nothing(tensor):
                    continue
                key = str(tensor.dtype), tuple(tensor.shape[1:])
                found.setdefault(key, []).extend(row_hashes(tensor))
        return found


def shared_rows(first: RowSet, second: RowSet) -> int:
    """Count the rows of the first set that are certainly in the second.

    They are in the same memory, or more are equal than duplicates explain.

    Example:
        >>> from oneproj.problem.data import as_source
        >>> x = torch.arange(12.0).reshape(6, 2)
        >>> old, new = RowSet(as_source(x[:4]), None), RowSet(as_source(x[3:]), None)
        >>> shared_rows(new, old)
        1
        >>> copied = RowSet(as_source(x[3:].clone()), None)
        >>> shared_rows(copied, old)
        0
    """
    common = rows_in_common(first, second)
    if common is not None:
        return common
    mine, theirs = first.digests(), second.digests()
    surplus = 0
    for key in mine.keys() & theirs.keys():
        known = Counter(theirs[key])
        found = sum(digest in known for digest in mine[key])
        twice = sum(times for times in known.values() if times > 1)
        if _more_than_duplicates([found, len(mine[key])], [twice, len(theirs[key])]):
            surplus = max(surplus, found)
    return surplus


def check_untouched(
    constraints: Mapping[str, AbstractTerm], training: Training | None
) -> None:
    """Refuse constraints over rows that training has seen, as far as can be told.

    Example:
        >>> import oneproj
        >>> x = torch.arange(6.0)
        >>> risk = oneproj.mean(lambda rows: rows, data=x[2:])
        >>> check_untouched({"risk": risk <= 5.0}, x[:2])
        >>> check_untouched({"risk": risk <= 5.0}, x[:3])
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: 1 of the 4 rows of 'risk' are in ...
    """
    seen = [] if training is None else [RowSet(*found) for found in _rows_of(training)]
    for name, constraint in constraints.items():
        for source, rows in constraint.read_rows():
            mine = RowSet(source, rows)
            if source.trained_on:
                message = (
                    f"{name!r} was part of a problem that was trained, or of a "
                    "projection: its value on those rows says nothing about new data. "
                    "Make the term again, over rows that were held out."
                )
                raise InvalidProblemError(message)
            for other in seen:
                common = shared_rows(mine, other)
                if common:
                    message = (
                        f"{common} of the {len(mine.indices)} rows of {name!r} are in "
                        "the training data, and a model does better there than on new "
                        "data. Hold rows out: split the data first, train on one part "
                        "and confirm on the other."
                    )
                    raise InvalidProblemError(message)


def _rows_of(training: object) -> list[tuple[Any, Any]]:
    """The data that a problem, constraints or terms read; or the data itself."""
    if isinstance(training, Solution):
        message = (
            "training= got a Solution, which does not hold the data it was found on. "
            "Pass the Problem that was solved, or the training data itself."
        )
        raise InvalidProblemError(message)
    if isinstance(training, Problem):
        terms = [training.objective, *training.constraints.values()]
    elif isinstance(training, AbstractTerm):
        terms = [training]
    elif isinstance(training, Mapping) and any(
        isinstance(value, AbstractTerm) for value in training.values()
    ):
        terms = list(named_constraints(training).values())
    else:
        data: Any = training
        return [(as_source(data), None)]
    return [rows for term in terms for rows in term.read_rows()]


def _more_than_duplicates(found: list[int], twice: list[int]) -> bool:
    """Whether the first share of rows exceeds the second beyond chance (Fisher 1922).

    A new row equals one of n others as often as one of them equals another, if all are
    drawn alike.
    """
    table = [[k, n - k] for k, n in (found, twice)]
    return float(stats.fisher_exact(table, alternative="greater").pvalue) < DOUBT


def rows_in_common(first: RowSet, second: RowSet) -> int | None:
    """Count the rows of the first that are rows of the second by their memory.

    None if they are not known to be of one table: other memory may hold copies, scaled
    ones, or other columns of the same rows.

    Example:
        >>> from oneproj.problem.data import as_source
        >>> x, rows = torch.arange(12.0).reshape(6, 2), torch.arange(6)
        >>> old, new = (RowSet(as_source(x), at) for at in (rows[:3], rows[2:]))
        >>> rows_in_common(old, new)
        1
        >>> rows_in_common(old, RowSet(as_source(2 * x), None)) is None
        True
    """
    if first.source is second.source:
        return int(np.isin(first.indices.numpy(), second.indices.numpy()).sum())
    found = None
    # Lists: freed memory would be given out again before the comparison is done.
    mine, theirs = list(_views(first.source)), list(_views(second.source))
    for t, u in itertools.product(mine, theirs):
        if t.device != u.device:
            continue
        places = _addresses(t, first.indices), _addresses(u, second.indices)
        common = int(np.isin(*places).sum())
        is_one_table = t.data_ptr() == u.data_ptr() and (
            (t.dtype, t.shape, t.stride()) == (u.dtype, u.shape, u.stride())
        )
        if common or (is_one_table and t.stride(0) > 0):
            found = max(found or 0, common)
    return found


def _views(source: Source) -> Iterator[Tensor]:
    """Yield the first row of each tensor that is read without a copy."""
    reads = [list(_tensors(source.read(slice(0, 1)))) for _ in range(2)]
    for once, again in zip(*reads, strict=True):
        if once.numel() and once.data_ptr() == again.data_ptr() != 0:
            yield once


def _addresses(first_row: Tensor, indices: Tensor) -> np.ndarray[Any, Any]:
    """Where every row begins; a row that is repeated without memory counts once."""
    step = first_row.stride(0) * first_row.element_size()
    return first_row.data_ptr() + step * indices.numpy()


def _tensors(batch: object) -> Iterator[Tensor]:
    """Yield the tensors of a batch, however nested."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from _tensors(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from _tensors(item)


def _says_nothing(tensor: Tensor) -> bool:
    """Whether rows are single whole numbers, such as labels, which repeat anyway."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        return True
    return tensor[0].numel() == 1 and not tensor.is_floating_point()


def row_hashes(tensor: Tensor) -> list[int]:
    """Return one hash per row, of its numbers: equal rows have equal hashes.

    Example:
        >>> first, second = row_hashes(torch.tensor([[0.0, 1.0], [-0.0, 1.0]]))
        >>> first == second
        True
    """
    plain = tensor.detach().cpu().contiguous()
    if plain.is_floating_point():
        plain = plain + 0.0  # minus zero equals zero
    rows = plain.reshape(len(plain), -1).view(torch.uint8).numpy()
    return [hash(row.tobytes()) for row in rows]
