"""A product of closed-form sets, each on a parameter of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.problem.terms import AbstractTerm
from oneproj.sets.base import (
    AbstractDistanceSet,
    AbstractSet,
    AbstractThinSet,
    SetConstraint,
)
from oneproj.sets.boxes import Box
from oneproj.vectors.arithmetic import Vector, is_finite, norm

MARGIN_UNITS = 2.0
"""The first margin, in rounding units of the nearest point."""
FACES = 50
"""Faces of a box that are returned at a point, at most."""
MARGIN_TRIES = 40
"""The margin doubles each time; 40 doublings cover the rounding of any dtype."""


class Region:
    """The points whose tensors lie in their sets.

    The nearest point of a product is the product of the nearest points.

    Args:
        parameters: Those of the problem.
        sets: Name to set; no two are on the same tensor.

    Example:
        >>> from oneproj.sets.balls import Ball
        >>> w, b = torch.tensor([3.0, 4.0]), torch.tensor([9.0])
        >>> region = Region([w, b], {"size": Ball(1.0).on(w)})
        >>> region.parts([w, b])["size"]
        tensor([0.6000, 0.8000], dtype=torch.float64)
        >>> region.member([w, b], like=[w, b])
        [tensor([0.6000, 0.8000]), tensor([9.])]
    """

    def __init__(self, parameters: Vector, sets: Mapping[str, SetConstraint]) -> None:
        """Find the index of every set's tensor."""
        where = {id(tensor): i for i, tensor in enumerate(parameters)}
        self.places = {name: where[id(c.tensor)] for name, c in sets.items()}
        self._sets = {name: constraint.members for name, constraint in sets.items()}
        self._exact = {name: members.bare() for name, members in self._sets.items()}

    @property
    def convex(self) -> bool:
        """Whether all of the sets are convex."""
        return all(members.convex for members in self._sets.values())

    def parts(self, y: Vector) -> dict[str, Tensor]:
        """P(y) of every tensor that has a set, by its name, in float64.

        NaN where y is not finite.
        """
        found = {}
        for name, i in self.places.items():
            wide = y[i].double()
            finite = bool(torch.isfinite(wide).all())
            found[name] = self._exact[name].project(wide) if finite else wide * math.nan
        return found

    def normals(self, y: Vector) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Unit normals of the faces of boxes that y is outside of, 50 for each box.

        Beside a normal there are a point of the face, and the place of the tensor among
        the parameters.
        """
        for name, part in self.parts(y).items():
            i = self.places[name]
            out = (y[i].double() - part).flatten()
            for entry in out.abs().topk(min(FACES, out.numel())).indices:
                if out[entry] == 0:
                    break
                normal = torch.zeros_like(out)
                normal[entry] = out[entry].sign()
                yield normal.view(part.shape), part, i

    def nearest(self, y: Vector) -> list[Tensor]:
        """P(y) in the dtypes of y, not aimed inside against rounding."""
        point = list(y)
        for name, part in self.parts(y).items():
            point[self.places[name]] = part.to(point[self.places[name]])
        return point

    def member(self, y: Vector, like: Vector) -> list[Tensor]:
        """The nearest member in the dtypes of ``like``, up to rounding.

        Raises:
            NonFiniteError: The point is not finite.
        """
        if not is_finite([y[i] for i in self.places.values()]):
            quantity = "a point that the projection would try"
            raise NonFiniteError(quantity)
        point = [x.to(kept) for x, kept in zip(y, like, strict=True)]
        for name, part in self.parts(y).items():
            i, members = self.places[name], self._sets[name]
            # In a band it aims at the middle, the exact set, and not at the edge.
            aim = part if isinstance(members, AbstractThinSet) else y[i]
            point[i] = nearest_member(members, aim, part.to(like[i]), nearest=part)
        return point


def region_of(parameters: Vector, constraints: Mapping[str, AbstractTerm]) -> Region:
    """The sets among the constraints; of several on one tensor, the hardest for cuts.

    Hardest are sets without interior, then those with many normals at a point; a ball
    is as easy as any function.

    Example:
        >>> region_of([], {}).places
        {}
    """
    optimised = {id(tensor) for tensor in parameters}
    sets = {
        name: constraint
        for name, constraint in constraints.items()
        if isinstance(constraint, SetConstraint) and id(constraint.tensor) in optimised
    }
    kinds, hardest = (AbstractDistanceSet, AbstractThinSet), dict[int, str]()
    hardness = {
        n: sum(isinstance(c.members, k) for k in kinds) for n, c in sets.items()
    }
    for name in sorted(sets, key=hardness.__getitem__):
        hardest[id(sets[name].tensor)] = name
    return Region(parameters, {name: sets[name] for name in hardest.values()})


def boxes_of(parameters: Vector, constraints: Mapping[str, AbstractTerm]) -> Region:
    """The boxes among the sets of ``region_of``.

    Example:
        >>> boxes_of([], {}).places
        {}
    """
    region = region_of(parameters, constraints)
    boxes = {}
    for name in region.places:
        constraint = constraints[name]
        if isinstance(constraint, SetConstraint) and isinstance(
            constraint.members, Box
        ):
            boxes[name] = constraint
    return Region(parameters, boxes)


@torch.no_grad()
def nearest_member(
    members: AbstractSet, outside: Tensor, least: Tensor, nearest: Tensor | None = None
) -> Tensor:
    """The nearest point of a set, aimed inside until it is a member when rounded.

    Args:
        members: The set.
        outside: The point to project, in any precision.
        least: A point of the dtype that is wanted, to return if none is better.
        nearest: P(outside), if it is known already.

    Example:
        >>> from oneproj.sets.balls import Ball
        >>> x = torch.tensor([3.0, 4.0])
        >>> [round(entry, 6) for entry in nearest_member(Ball(1.0), x, x).tolist()]
        [0.6, 0.8]
    """
    exact, best = outside.double(), least
    if nearest is None:
        nearest = members.project(exact)
    margin = rounding_margin(nearest, least.dtype)
    lowest = float(members.residual(least.double()))
    for _ in range(MARGIN_TRIES):
        x = members.project(exact, margin=margin).to(least)
        residual = float(members.residual(x.double()))
        if residual < lowest:
            best, lowest = x, residual
        if residual <= 0:
            break
        margin = 2.0 * max(margin, residual)
    return best


def rounding_margin(nearest: Tensor, dtype: torch.dtype) -> float:
    """How far rounding a set's nearest point to a dtype can move it.

    Rounding moves it by an eps of its dtype; adding up n squares in float64, in any
    order, moves the residual by about sqrt(n) of float64's.

    Example:
        >>> rounding_margin(torch.full((4,), 0.5).double(), torch.float64)
        8.881784197001252e-16
    """
    unit = MARGIN_UNITS * torch.finfo(dtype).eps
    unit += math.sqrt(nearest.numel()) * torch.finfo(torch.float64).eps
    return unit * norm([nearest])
