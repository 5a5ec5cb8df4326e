"""One small problem in many disguises, to see whether defaults survive them.

Two classes of Gaussian examples and a logistic score: the risk of the first class is
minimised while the risk of the second stays below a cap. A variation changes one
thing: the unit of a loss, of the features or of a constraint, the number of
constraints, the balance of the classes, the cap. None of it changes the difficulty of
the optimum, or only a little; all of it changes what a step size or a penalty means.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Softplus
from torch.nn.functional import softplus

import oneproj
from oneproj.problem.problem import Problem
from oneproj.problem.terms import Curvature

EXAMPLES, FEATURES, SEPARATION = 2000, 10, 1.6
RADIUS = 100.0


@dataclass(frozen=True)
class Variation:
    """What differs from the plain problem.

    Example:
        >>> problem = Variation("two", constraints=2).problem(hidden=0, seed=0)
        >>> sorted(problem.constraints)
        ['part 0', 'part 1']
    """

    name: str
    loss_unit: float = 1.0
    feature_unit: float = 1.0
    constraint_unit: float = 1.0
    constraints: int = 1
    """The capped class is split into as many parts, each with its own constraint."""
    share: float = 0.5
    """Of the examples that belong to the capped class."""
    cap: float = 0.25

    def problem(self, *, hidden: int, seed: int) -> Problem:
        """The problem with a linear score, or one hidden layer of that width."""
        generator = torch.Generator().manual_seed(seed)
        inside = torch.rand(EXAMPLES, generator=generator) < self.share
        apart = torch.randn(FEATURES, generator=generator)
        x = torch.randn(EXAMPLES, FEATURES, generator=generator)
        x += torch.outer(inside.float() - 0.5, SEPARATION * apart / apart.norm())
        x *= self.feature_unit
        score = _score(hidden, generator)

        def objective(batch: Tensor) -> Tensor:
            return self.loss_unit * softplus(score(batch).squeeze(1))

        def capped(batch: Tensor) -> Tensor:
            return self.constraint_unit * softplus(-score(batch).squeeze(1))

        members = x[inside]
        curvature: Curvature | None = None if hidden else "convex"
        parts = [members[k :: self.constraints] for k in range(self.constraints)]
        bound = self.constraint_unit * self.cap
        return Problem(
            score.parameters(),
            objective=oneproj.mean(objective, x[~inside]),
            constraints={
                f"part {k}": oneproj.mean(capped, part, curvature=curvature) <= bound
                for k, part in enumerate(parts)
            },
            radius=RADIUS,
        )


def _score(hidden: int, generator: torch.Generator) -> Module:
    layers: list[Module] = [Linear(FEATURES, 1)]
    if hidden:
        layers = [Linear(FEATURES, hidden), Softplus(), Linear(hidden, 1)]
    for layer in layers:
        if isinstance(layer, Linear):
            torch.nn.init.zeros_(layer.bias)
            width = layer.in_features**-0.5
            torch.nn.init.normal_(layer.weight, std=width, generator=generator)
    return Sequential(*layers)


VARIATIONS = (
    Variation("plain"),
    Variation("loss x 0.001", loss_unit=1e-3),
    Variation("loss x 1000", loss_unit=1e3),
    Variation("features x 10", feature_unit=10.0),
    Variation("features x 0.1", feature_unit=0.1),
    Variation("constraint x 100", constraint_unit=100.0),
    Variation("constraint x 0.01", constraint_unit=0.01),
    Variation("2 constraints", constraints=2),
    Variation("5 constraints", constraints=5),
    Variation("20 constraints", constraints=20),
    Variation("classes 90/10", share=0.1),
    Variation("classes 99/1", share=0.01),
    Variation("cap inactive", cap=2.0),
    Variation("cap loose", cap=0.6),
    Variation("cap tight", cap=0.1),
    Variation("cap extreme", cap=0.01),
)
"""The plain problem and its disguises."""
