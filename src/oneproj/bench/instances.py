"""The projection problems that are timed: linear scores, and networks of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from oneproj.averages import Mean, mean
from oneproj.parameters import assign, combine, snapshot
from oneproj.projection.cuts import Cuts
from oneproj.terms import AbstractTerm

Start = Literal["random", "near"]
STARTS: tuple[Start, ...] = get_args(Start)

LINEAR_SIZE = 18
"""Two linear scores with nine weights each, as in the paper's Gaussian experiment."""
INPUTS = 30
EXAMPLES = 500
LINEAR_CAP, NETWORK_CAP = 0.4, 0.5
"""Of the logistic risk; log 2 is that of a score of 0."""
NEAR = 0.02
"""How far outside the near start is, as a share of the random start's distance."""


@dataclass(frozen=True)
class Instance:
    """Parameters, constraints on them and a start; timed runs begin with ``reset``."""

    parameters: list[Tensor]
    constraints: Mapping[str, AbstractTerm]
    start: list[Tensor]
    scores: list[Tensor] | None
    """The signed inputs of each linear score; None for a network."""

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.parameters)

    def reset(self) -> None:
        """Go back to the start."""
        assign(self.parameters, self.start)


def make_instance(size: int, start: Start, generator: torch.Generator) -> Instance:
    """A problem with at least ``size`` parameters: linear at 18, else a network.

    The near start is 2 % of the way back from the nearest feasible point to the random
    start: slightly infeasible, like the last iterate of the method.

    Example:
        >>> made = make_instance(18, "near", torch.Generator().manual_seed(0))
        >>> made.size, 0 < max(c.value() for c in made.constraints.values()) < 0.05
        (18, True)
    """
    linear = size == LINEAR_SIZE
    made = _linear(generator) if linear else _network(size, generator)
    if start == "random":
        return made
    Cuts().project(made.parameters, made.constraints)
    nearby = combine([NEAR, 1.0 - NEAR], [made.start, made.parameters])
    assign(made.parameters, nearby)
    return Instance(made.parameters, made.constraints, nearby, made.scores)


def _draw(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64)


def _linear(generator: torch.Generator) -> Instance:
    width = LINEAR_SIZE // 2
    weights = [_draw(generator, width).requires_grad_() for _ in range(2)]
    scores = [_draw(generator, EXAMPLES, width) + 0.5 for _ in range(2)]
    constraints = {
        f"class {j}": _logistic_risk(w, data) <= LINEAR_CAP
        for j, (w, data) in enumerate(zip(weights, scores, strict=True))
    }
    return Instance(weights, constraints, snapshot(weights), scores)


def _logistic_risk(w: Tensor, data: Tensor) -> Mean:
    return mean(lambda x: softplus(-(x @ w)), data=data, curvature="convex")


def _network(size: int, generator: torch.Generator) -> Instance:
    """One hidden layer of Softplus units; the label is the sign of the first input."""
    hidden = math.ceil(size / (INPUTS + 2))
    first = (_draw(generator, INPUTS, hidden) / INPUTS**0.5).requires_grad_()
    bias = torch.zeros(hidden, dtype=torch.float64, requires_grad=True)
    last = (_draw(generator, hidden) / hidden**0.5).requires_grad_()
    x = _draw(generator, EXAMPLES, INPUTS)
    sign = torch.where(x[:, 0] > 0, 1.0, -1.0).double()

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, signs = batch
        return softplus(-signs * (softplus(inputs @ first + bias) @ last))

    parameters = [first, bias, last]
    constraints = {"risk": mean(losses, data=(x, sign)) <= NETWORK_CAP}
    return Instance(parameters, constraints, snapshot(parameters), None)
