"""What was computed before a call, or is out of reach of autograd, is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import oneproj
from oneproj import InvalidProblemError

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def flat_before(layer: nn.Linear) -> Callable[[], Tensor]:
    flat = torch.cat([p.view(-1) for p in layer.parameters()])
    return flat.sum  # whose graph saves nothing: torch goes through it again


def part_of_a_copy(layer: nn.Linear) -> Callable[[], Tensor]:
    turned = layer.weight.T.reshape(-1)[:3]
    return lambda: turned.view(3, 1).sum()


def product_before(layer: nn.Linear) -> Callable[[], Tensor]:
    product = layer.weight @ layer.weight.T
    return product.norm


def weight_of_a_pruned_layer(layer: nn.Linear) -> Callable[[], Tensor]:
    prune.l1_unstructured(layer, "weight", 2)
    return lambda: layer.weight.norm() + layer.bias.sum()


STALE = [flat_before, part_of_a_copy, product_before, weight_of_a_pruned_layer]


@pytest.mark.parametrize("make", STALE)
def test_what_was_computed_before_is_refused(
    make: Callable[[nn.Linear], Callable[[], Tensor]],
) -> None:
    layer = nn.Linear(4, 3)
    stale = oneproj.function(make(layer))
    with pytest.raises(InvalidProblemError, match=r"'cap' uses a tensor .* before it"):
        oneproj.project(layer.parameters(), {"cap": stale <= 0.01})
    with pytest.raises(InvalidProblemError, match="'objective' uses a tensor"):
        oneproj.Problem(layer.parameters(), stale, {})


def test_views_that_were_taken_before_move_with_their_parameter() -> None:
    theta = torch.ones(5, requires_grad=True)
    weight, bias = theta[:4].view(2, 2).T, theta[4]
    size = oneproj.function(lambda: weight.square().sum() + bias.square())
    assert oneproj.project(theta, {"size": size <= 1.0}).status.ok
    assert 0.99 <= float(theta.detach().square().sum()) <= 1.0


def test_rows_that_torch_forbids_once_they_have_moved_are_refused_before() -> None:
    weight = torch.ones(2, 3, requires_grad=True)
    first, _ = weight.unbind()
    with pytest.raises(
        InvalidProblemError, match="computed from the parameters before"
    ):
        oneproj.Problem(weight, oneproj.function(first.sum), {})


def test_what_was_computed_before_of_others_is_a_constant() -> None:
    encoder, head = nn.Linear(4, 3), nn.Linear(3, 1)
    features = encoder(X)  # of a model that does not move here
    size = oneproj.function(lambda: head(features).square().mean())
    done = oneproj.project(head.parameters(), {"size": size <= 0.01})
    assert done.status.ok
    assert float(head(features).square().mean().detach()) <= 0.01


class Checkpointed(nn.Module):
    """Two layers, of which the first is computed again by the backward pass."""

    def __init__(self, *, reentrant: bool, always: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1)
        self._reentrant, self._always = reentrant, always

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training or self._always):
            return self.last(self.first(x)).squeeze(-1)
        inner = x.clone().requires_grad_()
        hidden = checkpoint(self.first, inner, use_reentrant=self._reentrant)
        return self.last(hidden).squeeze(-1)


def build(model: Checkpointed) -> oneproj.Problem:
    loss = oneproj.mean(lambda batch: (model(batch) - 1.0).square(), data=X)
    size = oneproj.function(lambda: model.last.weight.square().sum()) <= 0.1
    return oneproj.Problem(model.parameters(), loss, {"size": size}, model=model)


def test_a_reentrant_checkpoint_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="use_reentrant=False"):
        build(Checkpointed(reentrant=True, always=True))


def test_so_it_is_if_it_is_there_in_training_only() -> None:
    problem = build(Checkpointed(reentrant=True, always=False))
    with pytest.raises(InvalidProblemError, match="use_reentrant=False"):
        oneproj.solve(problem, steps=3)


def test_other_checkpoints_are_fine() -> None:
    model = Checkpointed(reentrant=False, always=True)
    before = model.first.weight.detach().clone()
    assert oneproj.solve(build(model), steps=30).feasible
    assert not torch.equal(model.first.weight, before)
