"""Models: shapes, parameter counts, starts from a generator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import softplus

from oneproj.errors import InvalidProblemError
from oneproj_paper.tasks.models import Score, Scores, count_parameters


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("make", "inputs", "hidden", "count"),
    [
        (Score, 10, (), 11),
        (Score, 124, (8,), 124 * 8 + 8 + 8 + 1),
        (Scores, 8, (), 2 * 9),
        (Scores, 248, (32, 16), 2 * (248 * 32 + 32 + 32 * 16 + 16 + 16 + 1)),
        (Scores, 27, (8,), 2 * (27 * 8 + 8 + 8 + 1)),
        (Scores, 11, (16, 8), 2 * (11 * 16 + 16 + 16 * 8 + 8 + 8 + 1)),
    ],
)
def test_parameter_counts_follow_from_the_stated_shapes(
    make: type[Score | Scores], inputs: int, hidden: tuple[int, ...], count: int
) -> None:
    model = make(inputs, hidden, generator=generator())
    assert count_parameters(model) == count
    assert model.is_linear == (not hidden)


def test_a_network_computes_what_its_layers_say() -> None:
    score = Score(3, (4, 2), generator=generator(), dtype=torch.float64)
    x = torch.randn(5, 3, generator=generator(1), dtype=torch.float64)
    a, p, b, q, c, r = score.parameters()
    by_hand = softplus(softplus(x @ a.T + p) @ b.T + q) @ c.T + r
    torch.testing.assert_close(score(x), by_hand[:, 0])


def test_relu_is_a_choice_and_others_are_refused() -> None:
    score = Score(2, (4,), "relu", generator=generator())
    assert any(isinstance(layer, torch.nn.ReLU) for layer in score.layers)
    with pytest.raises(InvalidProblemError, match=r"no activation 'tanh'.*softplus"):
        Score(2, (4,), "tanh", generator=generator())  # type: ignore[arg-type]


def test_the_two_scores_are_independent() -> None:
    scores = Scores(3, (4,), generator=generator())
    x = torch.randn(5, 3, generator=generator(1))
    assert not torch.equal(scores.class_0(x), scores.class_1(x))
    assert torch.equal(scores(x)[:, 1], scores.class_1(x))
    reached = torch.autograd.grad(
        scores(x)[:, 0].sum(), list(scores.class_1.parameters()), allow_unused=True
    )
    assert all(g is None or not g.any() for g in reached)


def test_a_copy_has_weights_of_its_own() -> None:
    scores = Scores(3, generator=generator())
    twin = copy.deepcopy(scores)
    twin.class_0.layers[0].weight.data.zero_()  # type: ignore[union-attr]
    assert scores.pair[0].layers[0].weight.any()  # type: ignore[union-attr]
    assert not twin.pair[0].layers[0].weight.any()  # type: ignore[union-attr]


def test_the_start_is_bounded_and_fixed_by_the_generator() -> None:
    first, again, other = (
        Scores(16, (4,), generator=generator(seed)) for seed in (1, 1, 2)
    )
    for p, q, r in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(p, q)
        assert not torch.equal(p, r)
    weight = first.class_0.layers[0].weight
    assert 0.2 < weight.abs().max() <= 0.25  # type: ignore[operator, union-attr]


def test_the_start_is_the_same_in_every_dtype_and_draws_nothing_global() -> None:
    before = torch.get_rng_state()
    double = Score(9, (5,), generator=generator(), dtype=torch.float64)
    single = Score(9, (5,), generator=generator())
    assert torch.equal(torch.get_rng_state(), before)
    for p, q in zip(double.parameters(), single.parameters(), strict=True):
        assert q.dtype == torch.float32
        assert torch.equal(p.float(), q)
