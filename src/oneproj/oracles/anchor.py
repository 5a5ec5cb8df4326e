"""An anchor: the constraints and their gradients at one point, seen thoroughly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.parameters import PLAIN, Vector, snapshot
from oneproj.problem import Problem
from oneproj.results import Counts
from oneproj.terms.base import AbstractTerm, Survey, accumulate
from oneproj.terms.modes import evaluating

SLOPES = 2048
"""Examples that give the gradient where the value is made of more. A hinge needs the
value to be exact; the gradient's error here is far below that of any minibatch."""
PIECE = 4096
"""Examples per forward pass of a sample."""
LOOKS = 4
"""Anchors per look at all of more than ``SLOPES`` examples. At the others the value is
that of the last such look plus the mean change of the gradient's examples since: its
error is far below that of any minibatch as well, and vanishes with the steps."""


class Whole(NamedTuple):
    """The last look at all data of a constraint."""

    value: float
    each: Tensor
    """The value of each example."""
    looks: int
    """Anchors that it served."""


@dataclass(frozen=True)
class Anchor:
    """Values and gradients of all constraints at a point, on all data or many.

    Gradients are of ``SLOPES`` examples at most. Holds one vector of the model's size
    per constraint, one for the point, and a number per example that it remembers.
    """

    point: list[Tensor]
    values: dict[str, float]
    jacobian: dict[str, list[Tensor]]
    each: dict[str, Tensor] = field(default_factory=dict)
    """The value of each example that is remembered: of all, or of a sample."""
    sample: dict[str, Tensor] = field(default_factory=dict)
    """Which examples those are, where they are not all."""
    wholes: dict[str, Whole] = field(default_factory=dict)
    """Of constraints with more than ``SLOPES`` examples, for the next anchor."""

    def draw(
        self, constraint: AbstractTerm, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor | None, Tensor | None]:
        """Indices of a minibatch, and what is remembered of its examples, or None."""
        each, among = self.each.get(constraint.name), self.sample.get(constraint.name)
        if each is None or among is None:
            drawn = constraint.draw(batch_size, generator)
            return drawn, None if each is None else each[drawn]
        size = (batch_size,)
        places = torch.randint(len(among), size, generator=generator, device="cpu")
        return among[places], each[places]

    def state_dict(self) -> dict[str, Any]:
        """The anchor as plain containers."""
        wholes = {name: tuple(whole) for name, whole in self.wholes.items()}
        return vars(self) | {"wholes": wholes}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], like: Vector) -> Self:
        """The anchor of such a state, on the devices of the parameters."""
        rows = {name: on_devices(row, like) for name, row in state["jacobian"].items()}
        device = like[0].device
        each = {name: t.to(device) for name, t in state["each"].items()}
        wholes = {
            name: Whole(value, t.to(device), looks)
            for name, (value, t, looks) in state["wholes"].items()
        }
        point, values = on_devices(state["point"], like), dict(state["values"])
        return cls(point, values, rows, each, dict(state["sample"]), wholes)


def take_anchor(
    problem: Problem,
    *,
    size: int | None,
    generator: torch.Generator,
    counts: Counts,
    remember: bool = False,
    last: Anchor | None = None,
) -> Anchor:
    """Look at the constraints where the parameters are.

    Args:
        problem: Whose constraints; its parameters hold the point.
        size: Of the random sample that stands for larger data; None for all data.
        generator: Draws that sample.
        counts: A full look is a pass and a gradient, a sampled one a gradient. Of more
            than ``SLOPES`` examples a full look has the value, and they the gradient.
        remember: Whether to keep the value of each example, where a minibatch of them
            would see the same.
        last: The anchor before; what it remembers saves looks at all data.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> term = oneproj.function(lambda: w.square().sum())
        >>> problem = oneproj.Problem(w, objective=term, constraints={"c": term <= 1.0})
        >>> anchor = take_anchor(
        ...     problem, size=None, generator=torch.Generator(), counts=Counts())
        >>> anchor.values, anchor.jacobian
        ({'c': 3.0}, {'c': [tensor([4.])]})
    """
    parameters = problem.parameters
    remember = remember and _sees_the_same(problem)
    wholes = last.wholes if remember and last is not None else {}
    taken = Anchor(snapshot(parameters), {}, {})
    for name, constraint in problem.constraints.items():
        counts.constraint_gradients += 1
        whole = wholes.get(name)
        again = whole is not None and whole.looks < LOOKS
        indices = constraint.draw(SLOPES, generator) if again else None
        if whole is not None and indices is not None:
            _look_again(taken, constraint, whole, indices, parameters)
            continue
        rows = constraint.size or 0
        in_full = size is None or rows <= size
        counts.constraint_passes += in_full and rows > 0
        if in_full:
            found = constraint.survey(parameters if rows <= SLOPES else None)
        else:
            indices = constraint.draw(size or rows, generator)
            found = Survey(*_on_sample(constraint, indices, parameters), None)
        value, slope, each = found
        if slope is None:
            indices = constraint.draw(SLOPES, generator)
            slope = _on_sample(constraint, indices, parameters)[1]
        taken.values[name], taken.jacobian[name] = value, slope
        if remember and each is not None:
            taken.each[name] = each
            if rows > SLOPES:
                taken.wholes[name] = Whole(value, each, looks=1)
    return taken


@torch.enable_grad()
def _look_again(
    taken: Anchor,
    constraint: AbstractTerm,
    whole: Whole,
    indices: Tensor,
    parameters: Vector,
) -> None:
    """Add a constraint to an anchor by the change on a sample since all was seen."""
    name = constraint.name
    gradient = [torch.zeros_like(p) for p in parameters]
    with evaluating(constraint.model):
        each = constraint.examples(indices)
        accumulate(gradient, each.mean(), parameters)
    each = each.detach()
    change = (each.double() - whole.each[indices].double()).mean().item()
    value = whole.value + change
    constraint.check_finite(value, gradient)
    taken.values[name], taken.jacobian[name] = value, gradient
    taken.each[name], taken.sample[name] = each, indices
    taken.wholes[name] = whole._replace(looks=whole.looks + 1)


def _sees_the_same(problem: Problem) -> bool:
    """Whether an example has the value in a minibatch that it has among all data.

    Not if the model trains, for it evaluates here. Nor in few bits, where much of the
    value is rounding that depends on the size of the batch.
    """
    modules = () if problem.model is None else problem.model.modules()
    exact = all(p.dtype in PLAIN for p in problem.parameters)
    return exact and not any(module.training for module in modules)


def on_devices(vector: Vector, like: Vector) -> list[Tensor]:
    """A vector that was read from a file, where the parameters are.

    Example:
        >>> on_devices([torch.ones(1)], [torch.zeros(1)])
        [tensor([1.])]
    """
    return [t.to(p.device) for t, p in zip(vector, like, strict=True)]


@torch.enable_grad()
def _on_sample(
    term: AbstractTerm, indices: Tensor | None, parameters: Vector
) -> tuple[float, list[Tensor]]:
    """The value on a sample, and the gradient on its first ``SLOPES``."""
    if indices is None:
        return term.value_and_gradient(parameters)
    gradient, total = [torch.zeros_like(p) for p in parameters], 0.0
    steep, rest = indices[:SLOPES], indices[SLOPES:]
    with evaluating(term.model):
        for piece in torch.split(steep, PIECE):
            value = len(piece) * term.batch_value(piece)
            accumulate(gradient, value / len(steep), parameters)
            total += value.item()
        with torch.no_grad():
            for piece in torch.split(rest, PIECE) if len(rest) else ():
                total += len(piece) * term.batch_value(piece).item()
    term.check_finite(total, gradient)
    return total / len(indices), gradient
