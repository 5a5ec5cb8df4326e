"""The scores that estimators train: linear, a small network, or a module of yours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from oneproj.arguments import check_count
from oneproj.errors import InvalidProblemError

ModelLike: TypeAlias = Sequence[int] | int | Callable[[int], nn.Module] | None
"""What ``model=`` takes."""


class Score(nn.Module):
    """The score of each row: ``network(standardised row) + shift``.

    Mean and scale of the columns are buffers, so that rows are given in the units of
    the table, to this module and to functions that call it. So is the shift.

    Args:
        network: Takes rows of shape (n, columns) and returns (n,) or (n, 1).
        x: The rows whose mean and standard deviation are used. A column with two
            values, such as one of a one-hot encoding, is divided by their difference:
            its standard deviation would make a rare value large, and training noisy.
            A column that does not vary is only centred.

    Example:
        >>> x = torch.tensor([[0.0, 5.0, 1.0], [3.0, 5.0, 0.0], [6.0, 5.0, 0.0]])
        >>> score = Score(nn.Linear(3, 1), x)
        >>> score(x).shape, score.scale
        (torch.Size([3]), tensor([2.4495, 1.0000, 1.0000]))
    """

    mean: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.network = network
        least, most = x.aminmax(dim=0)
        has_two = ((x == least) | (x == most)).all(dim=0)
        scale = torch.where(has_two, most - least, x.std(dim=0, correction=0))
        floor = torch.finfo(x.dtype).eps * x.abs().amax(dim=0)
        self.register_buffer("mean", x.mean(dim=0))
        self.register_buffer("scale", torch.where(scale > floor, scale, 1.0))
        self.register_buffer("shift", x.new_zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the score of each row, shape (n,)."""
        scores: Tensor = self.network((x - self.mean) / self.scale)
        shapes = ((len(x),), (len(x), 1))
        if not isinstance(scores, Tensor) or tuple(scores.shape) not in shapes:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores)
            message = (
                f"model= made a module that returned {got} for {len(x)} rows. It must "
                "return one score per row, shape (n,) or (n, 1): end it with "
                "nn.Linear(width, 1)."
            )
            raise InvalidProblemError(message)
        return scores.reshape(len(x)) + self.shift


def make_network(
    model: ModelLike, columns: int, generator: torch.Generator
) -> nn.Module:
    """Make the network behind the scores, in float64.

    Args:
        model: None for a linear score with intercept; the width of each hidden layer
            for a network with softplus between the layers; or a function of the number
            of columns that returns a module.
        columns: Of the table.
        generator: Draws the initial weights. A function of yours has to be called
            inside ``own_random_numbers`` instead.

    Example:
        >>> make_network((8,), 3, torch.Generator().manual_seed(0))
        Sequential(
          (0): Linear(in_features=3, out_features=8, bias=True)
          (1): Softplus(beta=1.0, threshold=20.0)
          (2): Linear(in_features=8, out_features=1, bias=True)
        )
    """
    if callable(model) and not isinstance(model, nn.Module):
        made = model(columns)
        if isinstance(made, nn.Module) and list(made.parameters()):
            return made.double()
        message = (
            f"model= returned {made!r}, but it must return a new torch.nn.Module with "
            "parameters. Pass a function of the number of columns: "
            "lambda columns: nn.Linear(columns, 1)."
        )
        raise InvalidProblemError(message)
    widths = [model] if isinstance(model, int) else [] if model is None else model
    if isinstance(widths, nn.Module | str) or not np.iterable(widths):
        message = (
            f"model must be None for a linear score, the widths of hidden layers such "
            f"as (64, 32), or a function that makes a torch.nn.Module, got {model!r}. "
            "A module itself is refused: every fit would change it, and copies of the "
            "estimator would share it. Pass lambda columns: MyModule(columns)."
        )
        raise InvalidProblemError(message)
    why = "It is the width of a hidden layer."
    hidden = [check_count("An entry of model", width, why) for width in widths]
    layers: list[nn.Module] = []
    for k, (a, b) in enumerate(pairwise([columns, *hidden, 1])):
        layers += [nn.Softplus()] if k else []
        layers.append(linear(a, b, generator=generator))
    return nn.Sequential(*layers) if len(layers) > 1 else layers[0]


def linear(inputs: int, outputs: int = 1, *, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer in float64 whose weights come from this generator only.

    They are uniform in ``+-1 / sqrt(inputs)``, as torch's own.

    Example:
        >>> a, b = (linear(3, generator=torch.Generator().manual_seed(0)) for _ in "ab")
        >>> bool((a.weight == b.weight).all()), a.weight.dtype
        (True, torch.float64)
    """
    # Without skip_init the layer would draw from the global generator first.
    layer: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, inputs, outputs, dtype=torch.float64
    )
    bound = inputs**-0.5
    with torch.no_grad():
        for p in layer.parameters():
            p.uniform_(-bound, bound, generator=generator)
    return layer


@contextmanager
def own_random_numbers(seed: int) -> Iterator[torch.Generator]:
    """Give modules of the user random numbers that depend on the seed alone.

    Modules initialise themselves, and drop out, with torch's global generator. Inside
    the block that one starts from the seed; afterwards it has the state that it had.

    Yields:
        A generator of its own, for what accepts one.

    Example:
        >>> before = torch.get_rng_state()
        >>> with own_random_numbers(0):
        ...     a = nn.Linear(2, 1)
        >>> with own_random_numbers(0):
        ...     b = nn.Linear(2, 1)
        >>> bool((a.weight == b.weight).all())
        True
        >>> bool((torch.get_rng_state() == before).all())
        True
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(generator.get_state())
        yield generator
