"""Vectors that are kept for their inner products: a matrix, if they are small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oneproj.parameters import Vector, combine, dot
from oneproj.simplex_qp import Array

SHORT = 2**14
"""Numbers in a vector up to which copying it costs less than looping over vectors."""


class Stack:
    """A list of vectors of the same shapes, with products and combinations of them.

    Short vectors on the CPU become the rows of a matrix in float64, and one product
    with it does the work; long ones are kept as they are, without a copy.

    Example:
        >>> stack = Stack()
        >>> stack.append([torch.tensor([3.0, 0.0])]).tolist()
        [9.0]
        >>> stack.append([torch.tensor([1.0, 2.0])]).tolist()
        [3.0, 5.0]
        >>> stack.combination([2.0, -1.0])
        [tensor([ 5., -2.])]
    """

    def __init__(self) -> None:
        """Start empty."""
        self._vectors: list[Vector] = []
        self._rows: Array = np.zeros((0, 0))

    def __len__(self) -> int:
        """How many vectors there are."""
        return len(self._vectors)

    def append(self, vector: Vector) -> Array:
        """Keep a vector; returns its product with each, itself last."""
        self._vectors.append(vector)
        n = len(self._vectors)
        if not _is_short(vector):
            return np.array([dot(vector, kept) for kept in self._vectors])
        row = _flat(vector)
        if n > len(self._rows):
            grown = np.zeros((max(2 * n, 8), len(row)))
            grown[: n - 1] = self._rows[: n - 1] if n > 1 else 0.0
            self._rows = grown
        self._rows[n - 1] = row
        products: Array = self._rows[:n] @ row
        return products

    def products(self, vector: Vector) -> Array:
        """The product of a vector with each of those that are kept."""
        if not (self._vectors and _is_short(vector)):
            return np.array([dot(vector, kept) for kept in self._vectors])
        products: Array = self._rows[: len(self)] @ _flat(vector)
        return products

    def combination(self, weights: Sequence[float] | Array) -> list[Tensor]:
        """``sum_i weights[i] * vector_i``."""
        like = self._vectors[0]
        if not _is_short(like):
            # The first one is there for the shapes, should all weights be zero.
            used = [i for i, weight in enumerate(weights) if weight != 0 or i == 0]
            chosen = [self._vectors[i] for i in used]
            return combine([float(weights[i]) for i in used], chosen)
        flat = torch.from_numpy(np.asarray(weights) @ self._rows[: len(self)])
        parts = torch.split(flat, [t.numel() for t in like])
        return [p.view(t.shape).to(t) for p, t in zip(parts, like, strict=True)]

    def remove(self, i: int) -> None:
        """Drop a vector; those after it move up."""
        del self._vectors[i]
        if len(self._rows):
            self._rows[i:-1] = self._rows[i + 1 :]


def _is_short(vector: Vector) -> bool:
    on_cpu = all(t.device.type == "cpu" for t in vector)
    return on_cpu and sum(t.numel() for t in vector) <= SHORT


def _flat(vector: Vector) -> Array:
    flat: Array = torch.cat([t.detach().reshape(-1) for t in vector]).double().numpy()
    return flat
