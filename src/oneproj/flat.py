"""A small point as one numpy array, for scipy. Never used on a large model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import Vector


def flat(vector: Vector) -> Array:
    """All entries, in float64, one after the other.

    Example:
        >>> flat([torch.ones(1, 2), torch.zeros(1)]).tolist()
        [1.0, 1.0, 0.0]
    """
    parts = [tensor.detach().cpu().double().reshape(-1).numpy() for tensor in vector]
    joined: Array = np.concatenate(parts)
    return joined


def unflat(entries: Array, like: Vector) -> list[Tensor]:
    """The entries as tensors, shaped and placed like the given ones.

    Example:
        >>> unflat(np.arange(3.0), [torch.ones(1, 2), torch.zeros(1)])
        [tensor([[0., 1.]]), tensor([2.])]
    """
    sizes = [tensor.numel() for tensor in like]
    parts = torch.split(torch.from_numpy(np.array(entries)), sizes)
    return [p.reshape(t.shape).to(t) for p, t in zip(parts, like, strict=True)]
