"""Preprocessing that is fitted on the training rows and applied to all parts."""

from __future__ import annotations

from typing import Any

import torch

from oneproj.arrays import Array
from oneproj.data.samples import Sample
from oneproj.data.splits import Parts


def fit_on_train(
    transformer: Any,  # noqa: ANN401 - a scikit-learn transformer, which has no types
    x: Array,
    y: torch.Tensor,
    parts: Parts,
    dtype: torch.dtype,
) -> tuple[Sample, Sample, Sample]:
    """Fit a scikit-learn transformer on the training part; transform all three.

    Computed in float64, rounded to ``dtype`` at the end.

    Example:
        >>> import numpy as np
        >>> from sklearn.preprocessing import StandardScaler
        >>> x = np.array([[0.0], [2.0], [3.0], [5.0]])
        >>> parts = Parts(*map(torch.tensor, ([0, 1], [2], [3])))
        >>> y = torch.tensor([0, 1, 0, 1])
        >>> train, _, test = fit_on_train(
        ...     StandardScaler(), x, y, parts, torch.float32)
        >>> train.x.tolist(), test.x.tolist(), test.y.tolist()
        ([[-1.0], [1.0]], [[4.0]], [1])
    """
    transformer.fit(x[parts.train.numpy()])

    def part(rows: torch.Tensor) -> Sample:
        features = transformer.transform(x[rows.numpy()])
        return Sample(torch.tensor(features, dtype=dtype), y[rows])

    return part(parts.train), part(parts.validation), part(parts.test)
