"""What the problems are made of: data sets, models from a seed, losses per example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

Batch: TypeAlias = tuple[Tensor, Tensor]
PerExample: TypeAlias = Callable[[Batch], Tensor]
M = TypeVar("M", bound=nn.Module)
DATA_SEED = 2024
"""Of all data that is drawn: the seed of a run changes the model, not the data."""


class Table(NamedTuple):
    """Features with zero mean and unit variance, targets, and features as they were."""

    x: Tensor
    y: Tensor
    raw: Tensor

    def where(self, rows: Tensor) -> Batch:
        """The examples of a mask or of indices."""
        return self.x[rows], self.y[rows]


@cache
def table(name: str) -> Table:
    """A data set that comes with scikit-learn; classes as integers, targets centred.

    Example:
        >>> table("iris").x.shape
        torch.Size([150, 4])
    """
    found = getattr(datasets, f"load_{name}")()
    raw = torch.tensor(found.data, dtype=torch.float32)
    spread = raw.std(0)
    x = (raw - raw.mean(0)) / torch.where(spread > 0, spread, 1.0)
    if name == "diabetes":
        y = torch.tensor(found.target, dtype=torch.float32)
        return Table(x, (y - y.mean()) / y.std(), raw)
    return Table(x, torch.tensor(found.target), raw)


@cache
def images() -> Table:
    """The digits as images of one channel, with values between 0 and 1.

    Example:
        >>> images().x.shape
        torch.Size([1797, 1, 8, 8])
    """
    found = table("digits")
    pixels = (found.raw / 16.0).reshape(-1, 1, 8, 8)
    return Table(pixels, found.y, pixels)


def noisy(y: Tensor, classes: tuple[int, ...], share: float = 0.1) -> Tensor:
    """Classes of which a share was drawn anew: no model can fit them perfectly.

    Example:
        >>> wrong = noisy(torch.zeros(1000, dtype=torch.long), (0, 1)) > 0
        >>> 0 < wrong.float().mean().item() < 0.1
        True
    """
    g = drawn(5)
    other = torch.tensor(classes)[torch.randint(len(classes), y.shape, generator=g)]
    return torch.where(torch.rand(y.shape, generator=g) < share, other, y)


@cache
def applicants() -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and membership of a group that is correlated with both.

    Example:
        >>> [part.shape[0] for part in applicants()]
        [2000, 2000, 2000]
    """
    g = drawn(10)
    x = torch.randn(2000, 6, generator=g)
    member = torch.rand(2000, generator=g) < torch.sigmoid(1.5 * x[:, 0])
    score = x @ torch.tensor([1.0, -0.7, 0.5, 0.0, 0.3, -0.2]) + 0.7 * member
    score = score - 0.3 + 0.7 * torch.randn(2000, generator=g)
    return x, (score > 0).long(), member


def sum_of_squares(model: nn.Module) -> Tensor:
    """The squared norm of all parameters.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> _ = torch.nn.init.ones_(layer.weight), torch.nn.init.zeros_(layer.bias)
        >>> sum_of_squares(layer).item()
        1.0
    """
    return torch.stack([p.square().sum() for p in model.parameters()]).sum()


def drawn(offset: int = 0) -> torch.Generator:
    """The generator of data that is not from a file.

    Example:
        >>> a, b = (torch.rand(2, generator=drawn()) for _ in range(2))
        >>> torch.equal(a, b)
        True
    """
    return torch.Generator().manual_seed(DATA_SEED + offset)


def made(seed: int, build: Callable[[], M]) -> M:
    """A module whose initialisation is that of a seed; the global state stays.

    Example:
        >>> a, b = (made(1, lambda: nn.Linear(2, 1)) for _ in range(2))
        >>> torch.equal(a.weight, b.weight)
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths with an activation between them.

    Example:
        >>> len(mlp(2, 8, 1))
        3
    """
    layers: list[nn.Module] = []
    for k, (fan_in, fan_out) in enumerate(pairwise(widths)):
        if k:
            layers.append(activation())
        layers.append(nn.Linear(fan_in, fan_out))
    return nn.Sequential(*layers)


def weight(model: nn.Sequential, k: int) -> Tensor:
    """The weights of the k-th module.

    Example:
        >>> weight(mlp(2, 8, 1), 2).shape
        torch.Size([1, 8])
    """
    return model[k].get_parameter("weight")


def class_loss(model: nn.Module) -> PerExample:
    """Cross entropy of each example (inputs, classes).

    Example:
        >>> loss = class_loss(nn.Linear(2, 3))
        >>> loss((torch.ones(4, 2), torch.zeros(4, dtype=torch.long))).shape
        torch.Size([4])
    """

    def losses(batch: Batch) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1], reduction="none")

    return losses


def sign_loss(model: nn.Module) -> PerExample:
    """Logistic loss of each example (inputs, classes 0 and 1), of one score.

    Example:
        >>> loss = sign_loss(nn.Linear(2, 1))
        >>> loss((torch.ones(4, 2), torch.ones(4))).shape
        torch.Size([4])
    """

    def losses(batch: Batch) -> Tensor:
        return softplus((1.0 - 2.0 * batch[1].float()) * model(batch[0]).squeeze(-1))

    return losses


def square_loss(model: nn.Module) -> PerExample:
    """Squared error of each example (inputs, numbers).

    Example:
        >>> square_loss(nn.Linear(2, 1))((torch.ones(4, 2), torch.ones(4))).shape
        torch.Size([4])
    """

    def losses(batch: Batch) -> Tensor:
        error: Tensor = model(batch[0]).squeeze(-1) - batch[1]
        return error.square()

    return losses


def positive_rate(model: nn.Module, width: float = 0.1) -> Callable[[Tensor], Tensor]:
    """A sigmoid of each score that stands for the decision ``score > 0``.

    Example:
        >>> positive_rate(nn.Linear(2, 1))(torch.ones(4, 2)).shape
        torch.Size([4])
    """

    def rates(x: Tensor) -> Tensor:
        return torch.sigmoid(model(x).squeeze(-1) / width)

    return rates


def fit(
    model: M,
    losses: Callable[[Batch], Tensor],
    data: Sequence[Tensor],
    *,
    steps: int,
    lr: float,
    seed: int,
    batch_size: int = 64,
) -> M:
    """Train a model with Adam, in place, so that a problem can begin with it.

    Example:
        >>> model = made(0, lambda: nn.Linear(1, 1))
        >>> x = torch.linspace(-1.0, 1.0, 50)[:, None]
        >>> loss = square_loss(model)
        >>> fitted = fit(model, loss, (x, x[:, 0]), steps=200, lr=0.1, seed=0)
        >>> round(fitted.weight.item(), 1)
        1.0
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    with torch.random.fork_rng(devices=[]):  # dropout draws from the global state
        torch.manual_seed(seed)
        for _ in range(steps):
            rows = torch.randint(len(data[0]), (batch_size,), generator=generator)
            optimizer.zero_grad()
            risk = losses((data[0][rows], data[1][rows])).mean()
            torch.autograd.backward(risk)
            optimizer.step()
    optimizer.zero_grad()
    return model
