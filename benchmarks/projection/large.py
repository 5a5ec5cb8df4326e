"""Problems whose time and memory are measured: linear scores, networks of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from oneproj.problem.functions import Mean, mean
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm, Constraint
from oneproj.projection.base import AbstractProjector
from oneproj.results import Projection
from oneproj.training.solve import solve
from oneproj.vectors.arithmetic import Vector, assign, dimension, snapshot

Start = Literal["random", "trained"]
STARTS: tuple[Start, ...] = get_args(Start)

LINEAR_SIZE = 18
"""Two linear scores with nine weights each, as in the paper's Gaussian experiment."""
LINEAR_EXAMPLES = 600
"""Of each class: the paper's Gaussian experiment trains on 1,200."""
INPUTS, MANY_INPUTS = 30, 1000
EXAMPLES = 1900
"""As the smallest network experiment of the paper has in its constraint."""
WIDE, WIDE_EXAMPLES = 10**4, 500
"""From so many parameters on there are fewer examples, or no rival ends in time."""
HUGE, HUGE_EXAMPLES = 10**6, 250
"""From here on networks have many inputs as well, so that a gradient takes about a
second and its hidden layer little memory."""
LINEAR_CAP, NETWORK_CAP, TIGHT_CAP = 0.4, 0.5, 0.1
"""Of the logistic risk; log 2 is that of a score of 0."""
UPDATES, HUGE_UPDATES = 500, 50
"""Of the training that leads to the trained start."""
LOOSER = 0.005
"""By how much looser caps it sees: else every other iterate is feasible already, and
there is nothing to time."""


@dataclass(frozen=True)
class Large:
    """Parameters, constraints on them and a start; timed runs begin with ``reset``."""

    parameters: list[Tensor]
    constraints: Mapping[str, Constraint]
    objective: Mean
    """What training minimises, at odds with the constraints."""
    start: list[Tensor]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return dimension(self.parameters)

    def reset(self) -> None:
        """Go back to the start."""
        assign(self.parameters, self.start)


def make_large(
    size: int, start: Start, generator: torch.Generator, cap: float = NETWORK_CAP
) -> Large:
    """A problem with at least ``size`` parameters: linear at 18, else a network.

    The random start is that of training; the trained one is what the method itself
    would project: where ``oneproj.solve`` is after 500 updates, 50 if it is huge. The
    cap is that of a network's risk.

    Example:
        >>> made = make_large(18, "trained", torch.Generator().manual_seed(0))
        >>> made.size, 0 < max(c.value() for c in made.constraints.values()) < 1
        (18, True)
    """
    linear = size == LINEAR_SIZE
    made = _linear(generator) if linear else _network(size, generator, cap)
    if start == "random":
        return made
    looser = {
        name: Constraint(c.term, c.bound + LOOSER, sense=c.sense)
        for name, c in made.constraints.items()
    }
    problem = Problem(
        made.parameters,
        objective=made.objective,
        constraints=looser,
        radius=math.inf,
    )
    updates = UPDATES if size < HUGE else HUGE_UPDATES
    with suppress(_ReachedError):
        solve(problem, steps=updates, projector=_Stop(), progress=False)
    return replace(made, start=snapshot(made.parameters))


class _ReachedError(Exception):
    """The run is where it would project."""


class _Stop(AbstractProjector):
    """Leaves the point that it is given."""

    name = "stop"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        del constraints
        return None

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        del parameters, constraints
        raise _ReachedError


def _draw(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64)


def _linear(generator: torch.Generator) -> Large:
    """Two classes of examples, and a third that wants to be on their wrong side."""
    width = LINEAR_SIZE // 2
    weights = [_draw(generator, width).requires_grad_() for _ in range(2)]
    scores = [_draw(generator, LINEAR_EXAMPLES, width) + 0.5 for _ in range(2)]
    constraints = {
        f"class {j}": _logistic_risk(w, data) <= LINEAR_CAP
        for j, (w, data) in enumerate(zip(weights, scores, strict=True))
    }
    others = _draw(generator, LINEAR_EXAMPLES, width) - 0.25

    def losses(batch: Tensor) -> Tensor:
        return softplus(-(batch @ weights[0])) + softplus(-(batch @ weights[1]))

    objective = mean(losses, data=others)
    start = snapshot(weights)
    return Large(weights, constraints, objective, start)


def _logistic_risk(w: Tensor, data: Tensor) -> Mean:
    return mean(lambda x: softplus(-(x @ w)), data=data, curvature="convex")


def _network(size: int, generator: torch.Generator, cap: float) -> Large:
    """One hidden layer of Softplus units; the label is the sign of the first input.

    The objective wants the sign of the second one.
    """
    inputs = MANY_INPUTS if size >= HUGE else INPUTS
    hidden = math.ceil(size / (inputs + 2))
    first = (_draw(generator, inputs, hidden) / inputs**0.5).requires_grad_()
    bias = torch.zeros(hidden, dtype=torch.float64, requires_grad=True)
    last = (_draw(generator, hidden) / hidden**0.5).requires_grad_()
    x = _draw(generator, _examples(size), inputs)
    signs = torch.where(x > 0, 1.0, -1.0).double()

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, wanted = batch
        return softplus(-wanted * (softplus(rows @ first + bias) @ last))

    parameters = [first, bias, last]
    constraints = {"risk": mean(losses, data=(x, signs[:, 0])) <= cap}
    objective = mean(losses, data=(x, signs[:, 1]))
    start = snapshot(parameters)
    return Large(parameters, constraints, objective, start)


def _examples(size: int) -> int:
    if size >= HUGE:
        return HUGE_EXAMPLES
    return WIDE_EXAMPLES if size >= WIDE else EXAMPLES
