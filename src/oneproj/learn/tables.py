"""Tables as scikit-learn's tools pass them: rows, labels and groups, as tensors."""

from __future__ import annotations

import hashlib
import reprlib
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
        """These rows, then others; without groups."""
        return Rows(torch.cat([self.x, others.x]), torch.cat([self.y, others.y]))

    def strata(self) -> Tensor:
        """A number for each pair of class and group."""
        classes = self.y.long()
        return classes if self.groups is None else classes + BINARY * self.groups

    def digest(self) -> str:
        """A hash of all rows in their order, with labels and groups."""
        found = hashlib.sha256(self.x.numpy().tobytes())
        found.update(self.strata().numpy().tobytes())
        return found.hexdigest()


def held_out_rows(
    strata: Tensor, fraction: float, generator: torch.Generator
) -> Tensor:
    """Choose this share of the rows of every stratum at random, as a mask.

    The share is rounded; a stratum keeps at least one row.

    Example:
        >>> strata = torch.tensor([0] * 8 + [1] * 4 + [2])
        >>> mask = held_out_rows(strata, 0.25, torch.Generator().manual_seed(0))
        >>> [int(mask[strata == j].sum()) for j in range(3)]
        [2, 1, 0]
    """
    mask = torch.zeros(len(strata), dtype=torch.bool)
    for stratum in set(strata.tolist()):
        (at,) = (strata == stratum).nonzero(as_tuple=True)
        count = min(round(fraction * len(at)), len(at) - 1)
        order = torch.randperm(len(at), generator=generator)
        mask[at[order[:count]]] = True
    return mask


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
