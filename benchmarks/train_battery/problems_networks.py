"""Embeddings, recurrent, convolutional and attention models, and other structures."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    cross_entropy,
    kl_div,
    log_softmax,
    scaled_dot_product_attention,
    softplus,
)

from benchmarks.train_battery.ingredients import (
    Batch,
    applicants,
    class_loss,
    drawn,
    fit,
    images,
    made,
    mlp,
    noisy,
    sign_loss,
    sum_of_squares,
    table,
    weight,
)
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean

EMBEDDINGS = Family("embeddings")
SEQUENCES = Family("recurrent and attention models")
CONVOLUTIONS = Family("convolutions and batch norm")
STRUCTURES = Family("distillation, codes, equations")


class TwoTowers(nn.Module):
    """A score from the embeddings of a user and of an item."""

    def __init__(self, users: int, items: int, width: int) -> None:
        """Tables of that many rows."""
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)

    def forward(self, pair: Tensor) -> Tensor:
        """One score per row (user, item)."""
        found: Tensor = self.users(pair[:, 0]) * self.items(pair[:, 1])
        return found.mean(1, keepdim=True) * 4.0


def _clicks(users: int, items: int, n: int) -> tuple[Tensor, Tensor]:
    g = drawn(30)
    taste, kind = torch.randn(users, 4, generator=g), torch.randn(items, 4, generator=g)
    pairs = torch.stack(
        [torch.randint(m, (n,), generator=g) for m in (users, items)], dim=1
    )
    score = (taste[pairs[:, 0]] * kind[pairs[:, 1]]).sum(1)
    return pairs, (score + torch.randn(n, generator=g) > 0).long()


@EMBEDDINGS.case()
def two_towers(seed: int) -> Problem:
    """Clicks of 200 users on 100 items: the risk on rare items is capped."""
    pairs, y = _clicks(200, 100, 20_000)
    model = made(seed, lambda: TwoTowers(200, 100, 8))
    loss, rare = sign_loss(model), pairs[:, 1] < 10
    capped = mean(loss, (pairs[rare], y[rare])) <= 0.3
    objective = mean(loss, (pairs[~rare], y[~rare]))
    return Problem(model.parameters(), objective, {"rare items": capped})


@EMBEDDINGS.case()
def large_table(seed: int) -> Problem:
    """Clicks of 20,000 users, few each: the norm of the items' table is capped."""
    pairs, y = _clicks(20_000, 100, 10_000)
    model = made(seed, lambda: TwoTowers(20_000, 100, 4))
    size = function(lambda: model.items.weight.norm(), curvature="convex")
    objective = mean(sign_loss(model), (pairs, y))
    return Problem(model.parameters(), objective, {"size": size <= 15.0})


@EMBEDDINGS.case()
def bag_of_words(seed: int) -> Problem:
    """Texts of 12 of 500 words, summed embeddings: one topic's risk is capped."""
    g = drawn(31)
    topic = torch.randint(4, (4000,), generator=g)
    common = torch.randint(500, (4000, 12), generator=g)
    special = torch.randint(100, (4000, 12), generator=g) + 100 * topic[:, None]
    is_special = torch.rand(4000, 12, generator=g) < 0.25
    words = torch.where(is_special, special, common)
    topic = noisy(topic, (0, 1, 2, 3), 0.2)
    model = made(
        seed,
        lambda: nn.Sequential(nn.EmbeddingBag(500, 8, mode="sum"), nn.Linear(8, 4)),
    )
    loss = class_loss(model)
    rows = topic == 0
    capped = mean(loss, (words[rows], topic[rows])) <= 0.5
    objective = mean(loss, (words[~rows], topic[~rows]))
    return Problem(model.parameters(), objective, {"topic 0": capped})


@EMBEDDINGS.case()
def sparse_features(seed: int) -> Problem:
    """Logistic regression on 3,000 features of which an example has ten."""
    g = drawn(32)
    x = torch.zeros(2000, 3000)
    x.scatter_(1, torch.randint(3000, (2000, 10), generator=g), 1.0)
    truth = torch.randn(3000, generator=g)
    y = (x @ truth + torch.randn(2000, generator=g) > 0).long()
    model = made(seed, lambda: nn.Linear(3000, 1))
    loss = sign_loss(model)
    capped = mean(loss, (x[y == 1], y[y == 1]), curvature="convex") <= 0.1
    size = 1e-4 * function(lambda: model.weight.square().sum())
    objective = mean(loss, (x[y == 0], y[y == 0])) + size
    return Problem(model.parameters(), objective, {"positive": capped})


class Reader(nn.Module):
    """The last output of a recurrent layer, and scores from it."""

    def __init__(self, cell: nn.Module, width: int, classes: int) -> None:
        """Take a layer whose outputs are that wide."""
        super().__init__()
        self.cell, self.head = cell, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of sequences (batch, time, features)."""
        outputs: Tensor = self.cell(x)[0]
        scores: Tensor = self.head(outputs[:, -1])
        return scores


def _waves() -> tuple[Tensor, Tensor]:
    """Noisy sines of three frequencies, 12 points each."""
    g = drawn(33)
    y = torch.randint(3, (1500,), generator=g)
    phase = 2 * math.pi * torch.rand(1500, 1, generator=g)
    time = torch.arange(12) * (2 * math.pi / 12)
    x = torch.sin((y[:, None] + 1) * time + phase)
    x = x + 0.9 * torch.randn(1500, 12, generator=g)
    return x[:, :, None], y


def _sequence_problem(model: nn.Module, cap: float) -> Problem:
    x, y = _waves()
    loss = class_loss(model)
    capped = mean(loss, (x[y == 1], y[y == 1])) <= cap
    return Problem(
        model.parameters(), mean(loss, (x[y != 1], y[y != 1])), {"class 1": capped}
    )


@SEQUENCES.case(steps=300)
def recurrent_tanh(seed: int) -> Problem:
    """Waves read by a plain recurrent layer: one frequency's risk is capped."""
    model = made(seed, lambda: Reader(nn.RNN(1, 16, batch_first=True), 16, 3))
    return _sequence_problem(model, 0.6)


@SEQUENCES.case(steps=300)
def recurrent_gru(seed: int) -> Problem:
    """The same with a gated recurrent unit."""
    model = made(seed, lambda: Reader(nn.GRU(1, 12, batch_first=True), 12, 3))
    return _sequence_problem(model, 0.35)


class Attention(nn.Module):
    """One block of attention over a sequence of tokens, and scores from its mean."""

    def __init__(self, tokens: int, length: int, width: int, classes: int) -> None:
        """Embeddings of tokens and places, one block, one head of scores."""
        super().__init__()
        self.token, self.place = (
            nn.Embedding(tokens, width),
            nn.Embedding(length, width),
        )
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, width)
        self.values, self.body = nn.Linear(width, width), mlp(width, 2 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of sequences (batch, time)."""
        hidden = self.token(x) + self.place(torch.arange(x.shape[1]))
        hidden = hidden + scaled_dot_product_attention(
            self.queries(hidden), self.keys(hidden), self.values(hidden)
        )
        hidden = hidden + self.body(hidden)
        scores: Tensor = self.head(hidden.mean(1))
        return scores


def _repeats() -> tuple[Tensor, Tensor]:
    """Sequences of 10 tokens: does the first one come again?"""
    g = drawn(34)
    x = torch.randint(12, (2000, 10), generator=g)
    return x, (x[:, 1:] == x[:, :1]).any(1).long()


@SEQUENCES.case(steps=300)
def attention(seed: int) -> Problem:
    """Does the first token come again? Those where it does have a capped risk."""
    x, y = _repeats()
    model = made(seed, lambda: Attention(12, 10, 16, 2))
    loss = class_loss(model)
    capped = mean(loss, (x[y == 1], y[y == 1])) <= 0.4
    objective = mean(loss, (x[y == 0], y[y == 0]))
    return Problem(model.parameters(), objective, {"comes again": capped}, model=model)


def small_cnn(*, norm: bool, dropout: float = 0.0) -> nn.Sequential:
    """Two convolutions and a linear layer for images of digits.

    Example:
        >>> small_cnn(norm=False)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    layers: list[nn.Module] = [nn.Conv2d(1, 8, 3, padding=1)]
    layers += [nn.BatchNorm2d(8)] if norm else []
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1)]
    layers += [nn.BatchNorm2d(16)] if norm else []
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(64, 10))


def _digit_caps(model: nn.Module, cap: float) -> Problem:
    data, loss = images(), class_loss(model)
    capped = {f"digit {c}": mean(loss, data.where(data.y == c)) <= cap for c in (1, 8)}
    rest = (data.y != 1) & (data.y != 8)
    size = 2e-3 * function(lambda: sum_of_squares(model))
    objective = mean(loss, data.where(rest)) + size
    return Problem(model.parameters(), objective, capped, model=model)


@CONVOLUTIONS.case(steps=300)
def convolutions(seed: int) -> Problem:
    """Images of digits, two convolutions: two classes are capped."""
    return _digit_caps(made(seed, lambda: small_cnn(norm=False)), 0.05)


@CONVOLUTIONS.case(steps=300)
def convolutions_batch_norm(seed: int) -> Problem:
    """The same with batch norm in training mode."""
    return _digit_caps(made(seed, lambda: small_cnn(norm=True)), 0.03)


@CONVOLUTIONS.case()
def batch_norm_dropout(seed: int) -> Problem:
    """Applicants, a network with batch norm and dropout: negative ones are capped."""
    x, y, _ = applicants()
    model = made(
        seed,
        lambda: nn.Sequential(
            nn.Linear(6, 24),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(24, 1),
        ),
    )
    loss = sign_loss(model)
    capped = mean(loss, (x[y == 0], y[y == 0])) <= 0.2
    objective = mean(loss, (x[y == 1], y[y == 1]))
    return Problem(model.parameters(), objective, {"negative": capped}, model=model)


@STRUCTURES.case()
def distillation(seed: int) -> Problem:
    """Digits: a small student learns, within a divergence of 0.02 from its teacher."""
    data = table("digits")
    teacher = made(100, lambda: mlp(64, 32, 10))
    fit(teacher, class_loss(teacher), (data.x, data.y), steps=300, lr=0.003, seed=0)
    with torch.no_grad():
        told = log_softmax(teacher(data.x), 1)
    model = made(seed, lambda: mlp(64, 12, 10))

    def divergence(batch: Batch) -> Tensor:
        own = log_softmax(model(batch[0]), 1)
        return kl_div(own, batch[1], reduction="none", log_target=True).sum(1)

    capped = mean(divergence, (data.x, told)) <= 0.02
    size = function(lambda: weight(model, 0).square().sum() / 64)
    objective = mean(class_loss(model), (data.x, data.y)) + 2.0 * size
    return Problem(model.parameters(), objective, {"divergence": capped})


@STRUCTURES.case()
def sparse_code(seed: int) -> Problem:
    """An autoencoder of digits whose mean activity is capped."""
    x = table("digits").raw / 16.0
    model = made(seed, lambda: mlp(64, 16, 64))

    def loss(rows: Tensor) -> Tensor:
        error: Tensor = model(rows) - rows
        return error.square().sum(1)

    def activity(rows: Tensor) -> Tensor:
        hidden: Tensor = model[1](model[0](rows))
        return hidden.mean(1)

    size = function(lambda: weight(model, 2).norm()) <= 2.5
    capped = {"activity": mean(activity, x) <= 0.05, "size": size}
    return Problem(model.parameters(), mean(loss, x), capped)


class TiedCode(nn.Module):
    """An autoencoder that decodes with the transpose of the matrix it encodes with."""

    def __init__(self, inputs: int, width: int) -> None:
        """One matrix, two biases."""
        super().__init__()
        self.layer = nn.Linear(inputs, width)
        self.bias = nn.Parameter(torch.zeros(inputs))

    def forward(self, x: Tensor) -> Tensor:
        """The decoded input."""
        hidden = torch.tanh(self.layer(x))
        return hidden @ self.layer.weight + self.bias


@STRUCTURES.case()
def tied_layers(seed: int) -> Problem:
    """A tied autoencoder of digits: the error on the digit 8 is capped."""
    data = table("digits")
    x = data.raw / 16.0
    model = made(seed, lambda: TiedCode(64, 12))

    def loss(rows: Tensor) -> Tensor:
        error: Tensor = model(rows) - rows
        return error.square().sum(1)

    capped = mean(loss, x[data.y == 8]) <= 1.2
    return Problem(model.parameters(), mean(loss, x[data.y != 8]), {"eights": capped})


@STRUCTURES.case()
def heat_equation(seed: int) -> Problem:
    """A network solves ``u'' = -sin`` under caps on three of its values."""
    x = torch.linspace(0.0, math.pi, 200)[:, None]
    model = made(seed, lambda: mlp(1, 24, 1, activation=nn.Tanh))
    h, places = 0.05, {"left": 0.0, "middle": 0.5, "right": 1.0}

    def loss(points: Tensor) -> Tensor:
        left, here, right = (model(points + k * h) for k in (-1, 0, 1))
        bend: Tensor = (left - 2.0 * here + right) / h**2 + torch.sin(points)
        return bend.square().squeeze(-1)

    ends = {name: torch.full((1, 1), k * math.pi) for name, k in places.items()}
    capped = {
        name: function(lambda end=end: (model(end) - 0.3).square().sum())  # type: ignore[misc]
        <= 1e-4
        for name, end in ends.items()
    }
    return Problem(model.parameters(), mean(loss, x), capped)


@STRUCTURES.case(steps=200)
def many_rows(seed: int) -> Problem:
    """300,000 rows and 3,200 parameters: more than anchors look at each time."""
    g = drawn(35)
    x = torch.randn(300_000, 16, generator=g)
    y = (x[:, :4].prod(1) + x[:, 5] + torch.randn(300_000, generator=g) > 0).long()
    model = made(seed, lambda: mlp(16, 64, 32, 1))
    loss = sign_loss(model)
    capped = mean(loss, (x[y == 1], y[y == 1])) <= 0.35
    objective = mean(loss, (x[y == 0], y[y == 0]))
    return Problem(model.parameters(), objective, {"positive": capped})


@STRUCTURES.case()
def two_heads(seed: int) -> Problem:
    """One body, two heads: the first task is learned under a cap on the second."""
    data = table("digits")
    model = made(seed, lambda: mlp(64, 24, 12))

    def digit(batch: Batch) -> Tensor:
        return cross_entropy(model(batch[0])[:, :10], batch[1], reduction="none")

    def parity(batch: Batch) -> Tensor:
        score = model(batch[0])[:, 10]
        return softplus((1.0 - 2.0 * (batch[1] % 2)) * score)

    size = 1e-2 * function(lambda: weight(model, 0).square().sum())
    capped = mean(parity, (data.x, data.y)) <= 0.02
    objective = mean(digit, (data.x, data.y)) + size
    return Problem(model.parameters(), objective, {"parity": capped})
