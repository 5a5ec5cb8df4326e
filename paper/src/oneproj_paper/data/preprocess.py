"""Preprocessing that is fitted on the training rows and applied to all parts."""

from __future__ import annotations

from typing import Any

import torch

from oneproj.vectors.arithmetic import Array
from oneproj_paper.data.samples import Sample
from oneproj_paper.data.splits import Parts
from oneproj_paper.errors import InvalidDataError


def fit_on_train(
    transformer: Any,  # noqa: ANN401 - a scikit-learn transformer, which has no types
    x: Array,
    y: torch.Tensor,
    parts: Parts,
    dtype: torch.dtype,
) -> tuple[Sample, Sample, Sample]:
    """Fit a scikit-learn transformer on the training part; transform all three.

    Computed in float64, rounded to ``dtype`` at the end.

    Raises:
        InvalidDataError: A part does not have both classes.

    Example:
        >>> import numpy as np
        >>> from sklearn.preprocessing import StandardScaler
        >>> x = np.array([[0.0], [2.0], [3.0], [5.0], [7.0], [9.0]])
        >>> parts = Parts(*map(torch.tensor, ([0, 1], [2, 3], [4, 5])))
        >>> y = torch.tensor([0, 1, 0, 1, 0, 1])
        >>> train, _, test = fit_on_train(
        ...     StandardScaler(), x, y, parts, torch.float32)
        >>> train.x.tolist(), test.x.tolist(), test.y.tolist()
        ([[-1.0], [1.0]], [[6.0], [8.0]], [0, 1])
    """
    counts = [
        tuple(int((y[rows] == label).sum()) for label in (0, 1)) for rows in parts
    ]
    if not all(map(all, counts)):
        message = (
            f"Training, validation and test part have {counts} rows of class 0 and 1, "
            "but each needs both. The table is too small: prepare it again from more, "
            "with `oneproj-paper data prepare`."
        )
        raise InvalidDataError(message)
    transformer.fit(x[parts.train.numpy()])

    def part(rows: torch.Tensor) -> Sample:
        features = transformer.transform(x[rows.numpy()])
        return Sample(torch.tensor(features, dtype=dtype), y[rows])

    return part(parts.train), part(parts.validation), part(parts.test)
