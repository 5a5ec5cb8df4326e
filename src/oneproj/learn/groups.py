"""Groups of rows, from ``sensitive_features`` as scikit-learn's tools pass them."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_consistent_length
from torch import Tensor

from oneproj.arguments import at_most_five
from oneproj.errors import InvalidProblemError


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
