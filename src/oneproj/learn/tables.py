"""Tables as scikit-learn's tools pass them: rows, labels and groups, as tensors."""

from __future__ import annotations

import hashlib
import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor

from oneproj.arguments import at_most_five
from oneproj.errors import InvalidProblemError
from oneproj.rates.rows import row_hashes

Array: TypeAlias = np.ndarray[Any, Any]
BINARY = 2


@dataclass(frozen=True)
class Rows:
    """Rows of a table with their labels, as tensors.

    Attributes:
        x: The columns in their own units, float64, shape (n, columns).
        y: 1.0 for the second of the sorted classes, else 0.0.
        groups: The group of each row, from 0; None without groups.

    Example:
        >>> rows = Rows(torch.zeros(3, 2), torch.tensor([0.0, 1.0, 1.0]))
        >>> len(rows), len(rows.of(rows.y == 1))
        (3, 2)

    Two rows are equal if their columns are, whatever their labels. Two rows are copies
    of each other if class and group are equal too.
    """

    x: Tensor
    y: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def of(self, chosen: Tensor) -> Rows:
        """The rows where a mask is True."""
        groups = None if self.groups is None else self.groups[chosen]
        return Rows(self.x[chosen], self.y[chosen], groups)

    def with_rows(self, others: Rows) -> Rows:
        """These rows, then others, which have groups if these do."""
        x, y = torch.cat([self.x, others.x]), torch.cat([self.y, others.y])
        if self.groups is None or others.groups is None:
            return Rows(x, y)
        return Rows(x, y, torch.cat([self.groups, others.groups]))

    def among(self, others: Rows) -> Tensor:
        """Whether each row is equal to one of the others, as a mask."""
        return torch.isin(self.hashes(), others.hashes())

    def once(self) -> Rows:
        """The first of each set of copies."""
        keys = self._copy_keys()
        first = {key: k for k, key in reversed(list(enumerate(keys)))}
        return self.of(torch.tensor(sorted(first.values())))

    def repeated(self) -> Rows:
        """The rows that have copies among these."""
        keys = self._copy_keys()
        count = Counter(keys)
        return self.of(torch.tensor([count[key] > 1 for key in keys]))

    def _copy_keys(self) -> list[tuple[int, int]]:
        """A key of each row, the same for copies."""
        pairs = zip(self.hashes().tolist(), self.strata().tolist(), strict=True)
        return list(pairs)

    def hashes(self) -> Tensor:
        """A number for each row, the same for equal rows."""
        found = row_hashes(self.x) if len(self) else []
        return torch.tensor(found, dtype=torch.long)

    def strata(self) -> Tensor:
        """A number for each pair of class and group."""
        classes = self.y.long()
        return classes if self.groups is None else classes + BINARY * self.groups

    def digest(self) -> str:
        """A hash of all rows in their order, with labels and groups."""
        found = hashlib.sha256(self.x.numpy().tobytes())
        found.update(self.strata().numpy().tobytes())
        return found.hexdigest()


def held_out_rows(rows: Rows, fraction: float, generator: torch.Generator) -> Tensor:
    """Choose this share of the rows of every stratum at random, as a mask.

    Equal rows stay together, since a model knows a row by its columns: they are chosen
    as one row of the stratum of the first. The share is rounded; a stratum keeps at
    least one row.

    Example:
        >>> x = torch.arange(12.0)
        >>> rows = Rows(x[:, None], (x >= 8).double())
        >>> mask = held_out_rows(rows, 0.25, torch.Generator().manual_seed(0))
        >>> [int(mask[rows.y == j].sum()) for j in range(2)]
        [2, 1]
        >>> twice = rows.with_rows(rows)
        >>> mask = held_out_rows(twice, 0.25, torch.Generator().manual_seed(0))
        >>> bool((mask[:12] == mask[12:]).all())
        True
    """
    strata = rows.strata()
    _, first, which = np.unique(rows.hashes(), return_index=True, return_inverse=True)
    is_first = torch.zeros(len(rows), dtype=torch.bool)
    is_first[torch.from_numpy(first)] = True
    mask = torch.zeros(len(rows), dtype=torch.bool)
    for stratum in set(strata.tolist()):
        (at,) = (is_first & (strata == stratum)).nonzero(as_tuple=True)
        count = max(min(round(fraction * len(at)), len(at) - 1), 0)
        order = torch.randperm(len(at), generator=generator)
        mask[at[order[:count]]] = True
    mask = mask[torch.from_numpy(first[which])]
    for stratum in set(strata.tolist()):
        at = (strata == stratum).nonzero()[:, 0]
        if mask[at].all():  # each is equal to a row of another stratum
            mask[torch.from_numpy(which == which[int(at[0])])] = False
    return mask


def readings(held_out: Rows, trained: Rows | None = None) -> tuple[Rows, ...]:
    """Return the rows to judge a model by, in each way that equal rows can be read.

    Equal rows are copies of one draw, or draws that happen to be equal: nothing in a
    table tells which. Bounds assume independent draws, so that copies count once, and
    the others count each. The worse of both bounds is exact for copies; for draws
    that are equal it was only tried (``docs/learn/learn.md``). In the second reading a
    value that is repeated among the rows trained on counts as well: all rows
    of that value are there, so that the others say nothing about new rows like them.

    Args:
        held_out: Rows that training did not see.
        trained: Those that it saw.

    Returns:
        Both readings, the one of copies first; only one if no row has a copy.

    Example:
        >>> rows = Rows(torch.tensor([[1.0], [2.0], [1.0]]), torch.zeros(3))
        >>> [len(each) for each in readings(rows)]
        [2, 3]
        >>> [len(each) for each in readings(rows.of(rows.x[:, 0] > 1))]
        [1]
    """
    if not len(held_out):
        return (held_out,)
    once, every = held_out.once(), held_out
    if trained is not None:
        every = held_out.with_rows(trained.repeated())
    return (held_out,) if len(once) == len(every) else (once, every)


def read_groups(
    sensitive_features: object, X: object, *, known: Sequence[Any] | None = None
) -> tuple[list[Any], Tensor]:
    """Return the groups, sorted as text, and the index of the group of each row.

    Args:
        sensitive_features: One value per row, of any type; with several columns every
            combination that occurs is a group. A Series, DataFrame, array or list.
        X: The table, for its number of rows.
        known: The groups, if they are given; others are refused.

    Example:
        >>> labels, groups = read_groups(["f", "m", "f"], [[0], [0], [0]])
        >>> labels, groups.tolist()
        (['f', 'm'], [0, 1, 0])
        >>> read_groups([["f", 1], ["m", 2]], [[0], [0]])[0]
        [('f', 1), ('m', 2)]
    """
    if sensitive_features is None:
        message = (
            "sensitive_features is missing: fit needs the group of each row, as in "
            "fit(X, y, sensitive_features=table['sex']). In cross_validate and the "
            "like pass params={'sensitive_features': ...} with "
            "sklearn.set_config(enable_metadata_routing=True) and "
            ".set_fit_request(sensitive_features=True)."
        )
        raise InvalidProblemError(message)
    given = np.array(sensitive_features, dtype=object)
    if given.ndim == 0:
        message = (
            f"sensitive_features must hold the group of each row, got the one value "
            f"{reprlib.repr(sensitive_features)}. Pass the column itself, such as "
            "table['sex'], not its name."
        )
        raise InvalidProblemError(message)
    check_consistent_length(X, given)
    columns = given.reshape(len(given), -1)
    missing = sum(map(_is_missing, columns.flat))
    if missing:
        message = (
            f"sensitive_features has {missing} missing value(s). Every row must belong "
            "to a group: name a group for them, or leave these rows out."
        )
        raise InvalidProblemError(message)
    measured = [x for x in columns.flat if isinstance(x, float) and not x.is_integer()]
    if measured:
        message = (
            f"sensitive_features holds measurements, such as {measured[0]!r}, and each "
            "distinct value would be a group of its own. Cut them into groups first, "
            "for example with pandas.cut."
        )
        raise InvalidProblemError(message)
    keys = [row[0] if len(row) == 1 else tuple(row) for row in columns.tolist()]
    labels = sorted(dict.fromkeys(keys), key=str) if known is None else list(known)
    unknown = [key for key in dict.fromkeys(keys) if key not in labels]
    if unknown:
        message = (
            f"sensitive_features holds groups that fit did not see: "
            f"{at_most_five(unknown)}. It saw: {at_most_five(labels)}."
        )
        raise InvalidProblemError(message)
    at = {label: j for j, label in enumerate(labels)}
    return labels, torch.tensor([at[key] for key in keys], dtype=torch.long)


def _is_missing(value: Any) -> bool:  # noqa: ANN401 - of any type
    """Whether a value is None, NaN or pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN
    except TypeError:  # pandas' NA: no comparison with it has a truth value
        return True


def check_binary(y: Array) -> Array:
    """Refuse labels that are not classes, or more than two of them."""
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind == "binary":
        return y
    classes = np.unique(y).tolist()
    message = (
        f"Only binary classification is supported. The type of the target is {kind}, "
        f"with {len(classes)} classes: {at_most_five(classes)}. Merge classes, or fit "
        "one estimator for each class c against the others: fit(X, y == c)."
    )
    raise InvalidProblemError(message)


def as_dense(X: Any) -> Tensor:  # noqa: ANN401 - an array or a sparse one
    """Rows as a tensor with memory of its own."""
    if not sparse.issparse(X):
        return torch.from_numpy(np.array(X, dtype=np.float64, order="C"))
    try:
        return torch.from_numpy(X.toarray(order="C"))
    except MemoryError as error:
        rows, columns = X.shape
        error.add_note(
            f"A sparse table is made dense: {rows} rows of {columns} columns take "
            f"{8e-9 * rows * columns:.3g} GB. Reduce the columns first, for example "
            "with sklearn.decomposition.TruncatedSVD in a Pipeline."
        )
        raise
