"""An anchor: the constraints and their gradients at one point, seen thoroughly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from oneproj.parameters import Vector, snapshot
from oneproj.problem import Problem
from oneproj.results import Counts
from oneproj.terms import AbstractTerm, accumulate, evaluating

PIECE = 4096
"""Examples per forward pass of a sampled anchor."""


@dataclass(frozen=True)
class Anchor:
    """Values and gradients of all constraints at a point, on all data or many.

    Holds one vector of the model's size per constraint, and one for the point.
    """

    point: list[Tensor]
    values: dict[str, float]
    jacobian: dict[str, list[Tensor]]

    def state_dict(self) -> dict[str, Any]:
        """The anchor as plain containers."""
        return dict(vars(self))

    @classmethod
    def of_state(cls, state: Mapping[str, Any], like: Vector) -> Self:
        """The anchor of such a state, on the devices of the parameters."""
        rows = {name: on_devices(row, like) for name, row in state["jacobian"].items()}
        return cls(on_devices(state["point"], like), dict(state["values"]), rows)


def take_anchor(
    problem: Problem,
    *,
    size: int | None,
    generator: torch.Generator,
    counts: Counts,
) -> Anchor:
    """Look at the constraints where the parameters are.

    Args:
        problem: Whose constraints; its parameters hold the point.
        size: Of the random sample that stands for larger data; None for all data.
        generator: Draws that sample.
        counts: A full look is a pass and a gradient, a sampled one a gradient.

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
    values, jacobian = {}, {}
    for name, constraint in problem.constraints.items():
        counts.constraint_gradients += 1
        if size is None or (constraint.size or 0) <= size:
            counts.constraint_passes += constraint.size is not None
            found = constraint.value_and_gradient(problem.parameters)
        else:
            indices = constraint.draw(size, generator)
            with evaluating(constraint.model):
                found = _on_sample(constraint, indices, problem.parameters)
        values[name], jacobian[name] = found
    return Anchor(snapshot(problem.parameters), values, jacobian)


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
    pieces = (None,) if indices is None else torch.split(indices, PIECE)
    gradient = [torch.zeros_like(p) for p in parameters]
    total = 0.0
    for piece in pieces:
        share = 1.0 if piece is None or indices is None else len(piece) / len(indices)
        value = share * term.batch_value(piece)
        accumulate(gradient, value, parameters)
        total += float(value.detach())
    term.check_finite(total, gradient)
    return total, gradient
