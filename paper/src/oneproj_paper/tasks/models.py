"""The paper's models: linear scores with intercept, and small networks.

Weights and biases start uniform in ``+-1/sqrt(inputs)``, as torch's own layers do,
but from an explicit generator and in float64 before rounding: a seed means the same
start for every dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from oneproj.errors import InvalidProblemError

Activation = Literal["softplus", "relu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"softplus": nn.Softplus, "relu": nn.ReLU}


class Score(nn.Module):
    """A real-valued score of an example: an MLP, linear where it has no hidden layer.

    Args:
        inputs: Variables of an example.
        hidden: Units of each hidden layer; () for a linear score with intercept.
        activation: Between layers.
        generator: Draws the initial weights.
        dtype: Of the weights.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> score = Score(27, (8,), generator=generator)
        >>> score(torch.zeros(5, 27)).shape, count_parameters(score), score.is_linear
        (torch.Size([5]), 233, False)
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (),
        activation: Activation = "softplus",
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            known = ", ".join(get_args(Activation))
            message = f"There is no activation {activation!r}. Known: {known}."
            raise InvalidProblemError(message)
        widths = (inputs, *hidden, 1)
        layers: list[nn.Module] = []
        for k, (a, b) in enumerate(pairwise(widths)):
            layers += [ACTIVATIONS[activation]()] if k else []
            layers.append(_layer(a, b, generator, dtype))
        self.layers = nn.Sequential(*layers)
        self.is_linear = not hidden

    def forward(self, x: Tensor) -> Tensor:
        """One score per row of ``x``."""
        scores: Tensor = self.layers(x)
        return scores.squeeze(-1)


class Scores(nn.Module):
    """Independent scores of the same shape, one per class.

    Args:
        inputs: Variables of an example.
        hidden: Units of each hidden layer of each score.
        activation: Between layers.
        generator: Draws the initial weights, of class 0 first.
        dtype: Of the weights.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores = Scores(11, (16, 8), "relu", generator=generator)
        >>> scores(torch.zeros(5, 11)).shape, count_parameters(scores)
        (torch.Size([5, 2]), 674)
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (),
        activation: Activation = "softplus",
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        make = partial(Score, inputs, hidden, activation, dtype=dtype)
        self.class_0 = make(generator=generator)
        self.class_1 = make(generator=generator)
        self.is_linear = not hidden

    @property
    def pair(self) -> tuple[Score, Score]:
        """The score of class 0 and that of class 1."""
        return self.class_0, self.class_1

    def forward(self, x: Tensor) -> Tensor:
        """The two scores of each row of ``x``, shape (n, 2)."""
        return torch.stack([score(x) for score in self.pair], dim=-1)


def count_parameters(model: nn.Module) -> int:
    """The number of trainable numbers in a model.

    Example:
        >>> count_parameters(Scores(8, generator=torch.Generator().manual_seed(0)))
        18
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _layer(
    inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype
) -> nn.Linear:
    # Without skip_init the layer would draw from the global generator first.
    layer: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, inputs, outputs, dtype=dtype
    )
    bound = inputs**-0.5
    with torch.no_grad():
        for p in layer.parameters():
            draw = torch.empty(p.shape, dtype=torch.float64)
            p.copy_(draw.uniform_(-bound, bound, generator=generator))
    return layer
