"""Models that are trained already: what they know is capped, what is new is learned."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, linear, log_softmax

from benchmarks.train_battery.ingredients import (
    Batch,
    class_loss,
    drawn,
    fit,
    images,
    made,
    mlp,
    noisy,
    table,
)
from benchmarks.train_battery.problems_networks import Attention, small_cnn
from benchmarks.train_battery.registry import Family
from oneproj import Problem, function, mean

TRAINED = Family("trained models")
LETTERS, LENGTH = 20, 12
"""Of the language, and of its texts."""


class CharacterModel(nn.Module):
    """Letters from the three before them: an embedding, a hidden layer, scores."""

    def __init__(self, width: int = 16, hidden: int = 64) -> None:
        """Of a language with ``LETTERS``."""
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.body = mlp(3 * width, hidden, LETTERS)

    def forward(self, text: Tensor) -> Tensor:
        """Logarithms of probabilities (batch, place, letter), from the fourth on."""
        before = self.letters(text).unfold(1, 3, 1)[:, :-1].flatten(2)
        return log_softmax(self.body(before), 2)


def _texts(dialect: int) -> Tensor:
    """2,000 texts of a Markov chain; dialects share half of their habits."""
    habits = torch.randn(LETTERS, LETTERS, generator=drawn(40))
    own = torch.randn(LETTERS, LETTERS, generator=drawn(41 + dialect))
    chances = (2.0 * habits + 1.2 * own).softmax(1)
    g = drawn(50 + dialect)
    letters = [torch.randint(LETTERS, (2000,), generator=g)]
    for _ in range(LENGTH - 1):
        letters.append(torch.multinomial(chances[letters[-1]], 1, generator=g)[:, 0])
    return torch.stack(letters, 1)


@cache
def _language_model(seed: int) -> CharacterModel:
    model, text = made(seed, CharacterModel), _texts(0)

    def loss(batch: Batch) -> Tensor:
        return _surprise(model, batch[0])

    return fit(model, loss, (text, text), steps=800, lr=0.003, seed=seed)


def _surprise(model: nn.Module, text: Tensor) -> Tensor:
    told: Tensor = model(text)
    return -told.gather(2, text[:, 3:, None]).squeeze(2).mean(1)


@TRAINED.case()
def language_model_kl(seed: int) -> Problem:
    """A character model learns a dialect within a divergence of 0.1 from its start."""
    trained = _language_model(seed)
    model, text = copy.deepcopy(trained), _texts(0)
    with torch.no_grad():
        told = trained(text)

    def divergence(batch: Batch) -> Tensor:
        each = kl_div(model(batch[0]), batch[1], reduction="none", log_target=True)
        return each.sum(2).mean(1)

    objective = mean(lambda batch: _surprise(model, batch), _texts(1))
    capped = mean(divergence, (text, told)) <= 0.1
    return Problem(model.parameters(), objective, {"divergence": capped}, model=model)


def _split() -> tuple[Batch, Batch]:
    """Images of the digits 0 to 4, and of 5 to 9."""
    data = images()
    return data.where(data.y < 5), data.where(data.y >= 5)


@cache
def _trained_cnn(
    seed: int, dropout: float = 0.0, *, shifted: bool = False
) -> nn.Module:
    model = made(seed, lambda: small_cnn(norm=True, dropout=dropout))
    data = images()
    old = (data.x, data.y) if shifted else _split()[0]
    return fit(model, class_loss(model), old, steps=400, lr=0.003, seed=seed)


@TRAINED.case()
def trained_cnn_old_risk(seed: int) -> Problem:
    """A trained CNN in evaluation mode learns spoilt digits under an old-risk cap."""
    model = copy.deepcopy(_trained_cnn(seed, shifted=True)).eval()
    data, loss = images(), class_loss(model)
    noise = torch.randn(data.x.shape, generator=drawn(42))
    spoilt = (data.x.rot90(1, (2, 3)) + 0.2 * noise, data.y)
    capped = mean(loss, (data.x, data.y)) <= 0.05
    return Problem(model.parameters(), mean(loss, spoilt), {"old": capped}, model=model)


def _continual(seed: int) -> Problem:
    model = copy.deepcopy(_trained_cnn(seed, 0.3))
    old, new = _split()
    loss = class_loss(model)
    return Problem(
        model.parameters(),
        mean(loss, new),
        {"old digits": mean(loss, old) <= 0.03},
        model=model,
    )


@TRAINED.case(steps=500)
def continual_cnn_500(seed: int) -> Problem:
    """A CNN with batch norm and dropout learns new digits under a cap on the old."""
    return _continual(seed)


@TRAINED.case(steps=2000)
def continual_cnn_2000(seed: int) -> Problem:
    """The same with four times as many updates."""
    return _continual(seed)


class LowRank(nn.Module):
    """A frozen linear layer plus a product of two trainable factors (LoRA)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        """The second factor begins at zero, so the layer begins as it was."""
        super().__init__()
        self.layer = layer.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, changed."""
        changed: Tensor = self.layer(x) + linear(linear(x, self.down), self.up)
        return changed


@cache
def _trained_mlp(seed: int) -> nn.Sequential:
    data, model = table("digits"), made(seed, lambda: mlp(64, 48, 10))
    old = data.where(data.y < 8)
    return fit(model, class_loss(model), old, steps=400, lr=0.003, seed=seed)


def _two_new_digits(model: nn.Module) -> Problem:
    data, loss = table("digits"), class_loss(model)
    new = data.y >= 8
    capped = mean(loss, data.where(~new)) <= 0.03
    parameters = [p for p in model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in parameters]

    def moved() -> Tensor:
        pairs = zip(parameters, start, strict=True)
        return torch.stack([(p - p0).square().sum() for p, p0 in pairs]).sum()

    targets = noisy(data.y[new], (8, 9), 0.3)
    objective = mean(loss, (data.x[new], targets)) + 0.02 * function(moved)
    return Problem(parameters, objective, {"old digits": capped})


@TRAINED.case()
def lora_network(seed: int) -> Problem:
    """Factors of rank 4 on a trained network: two new digits, the old ones capped."""
    trained = copy.deepcopy(_trained_mlp(seed))
    model = made(
        seed,
        lambda: nn.Sequential(
            *(LowRank(m, 4) if isinstance(m, nn.Linear) else m for m in trained)
        ),
    )
    return _two_new_digits(model)


@TRAINED.case()
def finetuned_network(seed: int) -> Problem:
    """All weights of a trained network: two new digits, the old ones capped."""
    model = copy.deepcopy(_trained_mlp(seed))
    return _two_new_digits(model)


def _places(which: int) -> Batch:
    """Sequences of tokens: is there one of a kind in the first half?"""
    x = torch.randint(12, (1500, 10), generator=drawn(60 + which))
    return x, (x[:, :5] < 2 + which).any(1).long()


@cache
def _trained_attention(seed: int) -> Attention:
    model = made(seed, lambda: Attention(12, 10, 16, 2))
    return fit(model, class_loss(model), _places(0), steps=400, lr=0.003, seed=seed)


@TRAINED.case(steps=300)
def lora_attention(seed: int) -> Problem:
    """Factors of rank 2 on a trained attention model, under a cap on its old task."""
    model = copy.deepcopy(_trained_attention(seed)).requires_grad_(requires_grad=False)

    def adapt() -> Attention:
        for name in ("queries", "keys", "values", "head"):
            setattr(model, name, LowRank(getattr(model, name), 2))
        return model

    made(seed, adapt)
    loss = class_loss(model)
    capped = mean(loss, _places(0)) <= 0.25
    return Problem(
        [p for p in model.parameters() if p.requires_grad],
        mean(loss, _places(1)),
        {"old task": capped},
        model=model,
    )
