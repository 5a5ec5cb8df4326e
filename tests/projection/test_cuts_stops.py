"""Where the search for the nearest point may end, and where it may not yet."""

from __future__ import annotations

import math
from statistics import mean

import torch
from torch import Tensor, nn

import oneproj
from oneproj.projection.cuts import Cuts


def wave(
    seed: int,
) -> tuple[list[Tensor], dict[str, oneproj.problem.terms.AbstractTerm]]:
    """A network u(t) for ``u'' + u = 0``, ``u(0) = 1``; smooth, and far from both."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, width in ((1, 12), (12, 12), (12, 1)):
        layer = nn.Linear(inputs, width)
        for part in (layer.weight, layer.bias):
            most = 1 / math.sqrt(inputs)
            nn.init.uniform_(part, -most, most, generator=generator)
        layers += [layer, nn.Tanh()]
    net = nn.Sequential(*layers[:-1]).double()

    def squared_residual(t: Tensor) -> Tensor:
        t = t.clone().requires_grad_()
        with torch.enable_grad():
            u = net(t)
            (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), t, create_graph=True)
        return (bend + u).square().squeeze(-1)

    t = torch.linspace(0, 3, 40, dtype=torch.float64)[:, None]
    stated = {
        "equation": oneproj.mean(squared_residual, data=t) <= 1e-2,
        "start": oneproj.function(lambda: (net(t[:1]) - 1).square().sum()) <= 1e-3,
    }
    return list(net.parameters()), dict(stated)


# By runs to a KKT residual of 1e-6. The first once ended where steps that were slow
# outside first led inside, at 1.68; the others by the stop for kinks.
NEAREST = [1.37995, 1.44787, 1.00719, 1.03194, 1.46803, 1.21216, 1.37181, 1.33287]


def test_smooth_problems_end_near_their_nearest_points() -> None:
    ratios = []
    for seed, nearest in enumerate(NEAREST):
        parameters, stated = wave(seed)
        done = oneproj.project(parameters, stated)
        assert done.kkt_residual < 0.2
        assert done.remark == ""
        ratios.append(done.distance / nearest)
    assert max(ratios) <= 1.01, "what the stop for kinks may cost"
    assert mean(ratios) <= 1.004


def test_a_sum_of_absolute_values_is_a_polytope_found_facet_by_facet() -> None:
    w = torch.tensor([2.0, 0.3, -1.0], dtype=torch.float64, requires_grad=True)
    done = oneproj.project(w, {"sum": oneproj.function(lambda: w.abs().sum()) <= 1.0})
    # The nearest point of the L1 ball is (1, 0, 0).
    assert done.distance <= 1.001 * math.sqrt(1.0 + 0.09 + 1.0)


def test_an_answer_of_the_cuts_has_their_multipliers() -> None:
    # A maximum of linear functions: the answer lies on many, each with its gradient.
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    w = torch.randn(8, generator=generator, dtype=torch.float64, requires_grad=True)
    highest = oneproj.function(lambda: torch.max(A @ w)) <= 0.5
    done = oneproj.project(w, {"highest": highest}, projector=Cuts(max_evaluations=60))
    assert done.kkt_residual < 1e-6
    assert done.multipliers["highest"] > 0
    assert "A nearer feasible point" not in done.remark
    assert "The KKT residual is that of linearisations" in done.remark
