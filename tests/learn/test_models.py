"""What ``model=`` takes, and that its weights come from the seed alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oneproj import InvalidProblemError
from oneproj.learn.models import Score, linear, make_network, own_random_numbers


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [(None, 4), (5, 26), ((5, 2), 35), ([5], 26), (lambda k: nn.Linear(k, 1), 4)],
)
def test_widths_and_factories_make_networks(model: object, parameters: int) -> None:
    made = make_network(model, 3, generator())
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert {p.dtype for p in made.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    "model", [nn.Linear(3, 1), "linear", 0.5, (5, 0), (2.5,), lambda _: "no module"]
)
def test_other_models_are_refused(model: object) -> None:
    with pytest.raises(InvalidProblemError, match="model"):
        make_network(model, 3, generator())


def test_a_module_must_return_one_score_per_row() -> None:
    score = Score(nn.Linear(3, 2).double(), torch.ones(4, 3, dtype=torch.float64))
    with pytest.raises(InvalidProblemError, match=r"one score per row"):
        score(torch.ones(4, 3, dtype=torch.float64))


def test_columns_are_scaled_by_what_they_hold() -> None:
    # Numbers by their deviation, two values by their difference, a constant by nothing.
    rows = [[1e6, 7.0, 1.0], [1e6 + 3, 7.0, 0.0], [1e6 + 6, 7.0, 0.0]]
    x = torch.tensor(rows, dtype=torch.float64)
    seen = []
    score = Score(nn.Linear(3, 1).double(), x)
    score.network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    score(x)
    assert seen[0][:, 0].tolist() == pytest.approx([-(1.5**0.5), 0.0, 1.5**0.5])
    assert seen[0][:, 1].tolist() == [0.0, 0.0, 0.0]
    assert seen[0][:, 2].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_weights_do_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    linear(3, generator=generator())
    with own_random_numbers(3):
        first = nn.Linear(3, 1).weight.tolist()
    with own_random_numbers(3):
        assert nn.Linear(3, 1).weight.tolist() == first
    with own_random_numbers(4):
        assert nn.Linear(3, 1).weight.tolist() != first
    assert torch.equal(torch.get_rng_state(), before)
