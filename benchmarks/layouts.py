"""Points to time steps on: the same number of parameters, as one tensor or as many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError

Layout = Literal["one tensor", "transformer"]
LAYOUTS: tuple[Layout, ...] = ("one tensor", "transformer")

BLOCKS = 12
"""Blocks of the transformer, each of 12 tensors."""
SCALE = 1e-2
"""Standard deviation of the values and gradients: a point that stays where it is."""


def shapes(layout: Layout, size: int) -> list[tuple[int, ...]]:
    """The tensors' shapes; their entries add up to ``size`` exactly.

    ``"transformer"`` has 12 blocks of width w (attention, two-layer perceptron of
    width 4w, two normalisations), w as large as fits into nine tenths of ``size``,
    and one embedding of all the rest: a few large matrices and many short vectors.

    Raises:
        InvalidProblemError: ``size`` is too small for the layout.

    Example:
        >>> shapes("one tensor", 1000)
        [(1000,)]
        >>> len(shapes("transformer", 10**6))
        145
    """
    if layout == "one tensor" and size >= 1:
        return [(size,)]
    w = 0
    while BLOCKS * _entries(_block(w + 1)) <= 0.9 * size:
        w += 1
    if w == 0:
        message = (
            f"The layout {layout!r} does not fit into {size} parameters. Take at "
            "least 1000; a benchmark of fewer would time Python, not arithmetic."
        )
        raise InvalidProblemError(message)
    body = BLOCKS * _block(w)
    return [(size - _entries(body),), *body]


def _block(w: int) -> list[tuple[int, ...]]:
    attention: list[tuple[int, ...]] = [(3 * w, w), (3 * w,), (w, w), (w,)]
    perceptron: list[tuple[int, ...]] = [(4 * w, w), (4 * w,), (w, 4 * w), (w,)]
    return attention + perceptron + 4 * [(w,)]


def _entries(block: list[tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in block)


@dataclass(frozen=True)
class Point:
    """Values and gradients, from which each contestant takes its own parameters."""

    values: list[Tensor]
    gradients: list[Tensor]

    @classmethod
    def draw(cls, layout: Layout, size: int, generator: torch.Generator) -> Point:
        """Draw a float32 point: Gaussian values and gradients.

        Example:
            >>> point = Point.draw("one tensor", 3, torch.Generator().manual_seed(0))
            >>> point.values[0].shape, point.values[0].dtype
            (torch.Size([3]), torch.float32)
        """

        def gaussian() -> list[Tensor]:
            return [
                SCALE * torch.randn(shape, generator=generator, dtype=torch.float32)
                for shape in shapes(layout, size)
            ]

        return cls(gaussian(), gaussian())

    def parameters(self) -> list[Tensor]:
        """A copy of the values that requires grad and has it; gradients are shared.

        Example:
            >>> point = Point([torch.ones(2)], [torch.zeros(2)])
            >>> (w,) = point.parameters()
            >>> w.requires_grad, w.grad.tolist(), w is point.values[0]
            (True, [0.0, 0.0], False)
        """
        copies = [value.clone().requires_grad_() for value in self.values]
        for parameter, gradient in zip(copies, self.gradients, strict=True):
            parameter.grad = gradient
        return copies
