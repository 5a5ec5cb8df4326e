"""An anchor: the constraints and their gradients at one point, seen thoroughly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.oracles.plan import LOOKS, AnchorPlan, sees_the_same
from oneproj.problem.autograd import accumulate
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.schema import AbstractSchema, Fields, Integer, Named, Number, Row, require
from oneproj.tensor_schema import TensorSchema, vector_like
from oneproj.vectors.arithmetic import Vector, on_devices, snapshot

SLOPES = 2048
"""Examples that give the gradient where the value is made of more. A hinge needs the
value to be exact; the gradient's error here is far below that of any minibatch."""
PIECE = 4096
"""Examples per forward pass of a sample."""


class Whole(NamedTuple):
    """The last look at all data of a constraint."""

    value: float
    each: Tensor
    """The value of each example."""
    looks: int
    """Anchors that it served."""


class Sample(NamedTuple):
    """A look at some examples of a constraint, drawn at random."""

    indices: Tensor
    value: float
    gradient: list[Tensor]
    each: Tensor
    """The value of each."""


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

    @staticmethod
    def state_schema(
        constraints: Mapping[str, AbstractTerm], like: Vector
    ) -> AbstractSchema:
        """What such a state looks like; constraints without data have no examples."""
        numbers = Named(Number(finite=True), constraints, complete=True)
        rows = Named(vector_like(like), constraints, complete=True)
        terms = constraints.items()
        return _AnchorSchema(
            Fields(
                {
                    "point": vector_like(like),
                    "values": numbers,
                    "jacobian": rows,
                    "each": Fields(
                        {}, {n: TensorSchema((None,), None) for n, _ in terms}
                    ),
                    "sample": Fields({}, {n: indices_of(term) for n, term in terms}),
                    "wholes": Fields({}, {n: _whole(term) for n, term in terms}),
                }
            ),
            {name: term.size or 0 for name, term in terms},
        )

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


@dataclass(frozen=True)
class _AnchorSchema(AbstractSchema):
    """An anchor in which every remembered example has one value."""

    parts: Fields
    sizes: Mapping[str, int]
    """The number of examples of each constraint."""

    def check(self, value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever a file had
        state: dict[str, Any] = self.parts.check(value, where)
        for name in state["sample"].keys() | state["each"].keys():
            seen = len(state["sample"].get(name, range(self.sizes[name])))
            each = state["each"].get(name)
            fits = each is not None and len(each) == seen > 0
            require(fits, each, f"{where}.each.{name}", f"of length {seen}")
        return state


def _whole(term: AbstractTerm) -> Row:
    """The schema of the last look at all data of a constraint."""
    each = TensorSchema((term.size or 0,), None)
    return Row((Number(finite=True), each, Integer(least=1)))


def indices_of(term: AbstractTerm) -> TensorSchema:
    """The schema of indices of a term's examples.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
        >>> indices_of(risk).most
        5
    """
    return TensorSchema((None,), torch.int64, least=0, most=(term.size or 0) - 1)


def sees_all(constraint: AbstractTerm, plan: AnchorPlan) -> bool:
    """Whether anchors have both value and gradient of all examples of a constraint.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> long = oneproj.mean(lambda x: x @ w, data=torch.ones(3000, 1)) <= 1.0
        >>> sees_all(long.named("long"), AnchorPlan())
        False
    """
    most = SLOPES if plan.size is None else min(SLOPES, plan.size)
    return (constraint.size or 0) <= most


def take_anchor(
    problem: Problem,
    *,
    plan: AnchorPlan,
    generator: torch.Generator,
    counts: Counts,
    remember: bool = False,
    last: Anchor | None = None,
) -> Anchor:
    """Look at the constraints where the parameters are.

    Args:
        problem: Whose constraints; its parameters hold the point.
        plan: Of how much data. All of more than ``SLOPES`` examples is seen at every
            ``LOOKS``-th anchor, where what was seen is remembered. At the others the
            value is that of the last such look plus the mean change of the gradient's
            examples since: its error is far below that of any minibatch as well, and
            vanishes with the steps.
        generator: Draws the samples.
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
        >>> rest = {"generator": torch.Generator(), "counts": Counts()}
        >>> anchor = take_anchor(problem, plan=AnchorPlan(), **rest)
        >>> anchor.values, anchor.jacobian
        ({'c': 3.0}, {'c': [tensor([4.])]})
    """
    parameters = problem.parameters
    remember = remember and sees_the_same(problem)
    wholes = last.wholes if remember and last is not None else {}
    taken = Anchor(snapshot(parameters), {}, {})
    for name, constraint in problem.constraints.items():
        counts.constraint_gradients += 1
        # A gradient of so few examples, and so many anchors per look at all; 0: never.
        rows, few, every = constraint.size or 0, SLOPES, LOOKS
        if plan.size is not None and rows > plan.size:
            few, every = plan.size, (plan.whole_every or 0) if remember else 0
        whole = wholes.get(name) if every else None
        if every == 0 or (whole is not None and whole.looks < every):
            seen = _sample(constraint, few, parameters, generator)
            _add_sample(taken, name, seen, whole, remember=remember)
        else:
            counts.constraint_passes += rows > 0
            each = _look_at_all(taken, constraint, few, parameters, generator)
            if remember and each is not None:
                taken.each[name] = each
                if rows > few:
                    taken.wholes[name] = Whole(taken.values[name], each, looks=1)
    return taken


def _look_at_all(
    taken: Anchor,
    constraint: AbstractTerm,
    few: int,
    parameters: Vector,
    generator: torch.Generator,
) -> Tensor | None:
    """Add a constraint on all data, with the slope of a few; the value of each."""
    name, rows = constraint.name, constraint.size or 0
    value, slope, each = constraint.survey(parameters if rows <= few else None)
    if slope is None:  # of a larger sample it would be that of ``SLOPES`` as well
        slope = _sample(constraint, min(few, SLOPES), parameters, generator).gradient
    taken.values[name], taken.jacobian[name] = value, slope
    return each


def _add_sample(
    taken: Anchor, name: str, seen: Sample, whole: Whole | None, *, remember: bool
) -> None:
    """Add a constraint on a sample, or its change there since all of it was seen."""
    value = seen.value
    if whole is not None:
        then = whole.each[seen.indices].double()
        value = whole.value + (seen.each.double() - then).mean().item()
        taken.wholes[name] = whole._replace(looks=whole.looks + 1)
    taken.values[name], taken.jacobian[name] = value, seen.gradient
    if remember:
        taken.each[name], taken.sample[name] = seen.each, seen.indices


@torch.enable_grad()
def _sample(
    term: AbstractTerm, size: int, parameters: Vector, generator: torch.Generator
) -> Sample:
    """Look at so many random examples; the gradient is that of ``SLOPES`` of them."""
    indices = term.draw(size, generator)
    if indices is None:  # who asks knows that there is data
        message = f"{term.name!r} has no examples to draw from"
        raise ValueError(message)
    gradient = [torch.zeros_like(p) for p in parameters]
    with evaluating(term.model):
        each = term.examples(indices[:SLOPES])
        accumulate(gradient, each.mean(), parameters)
        with torch.no_grad():
            starts = range(SLOPES, len(indices), PIECE)
            rest = [term.examples(indices[k : k + PIECE]) for k in starts]
    each = torch.cat([each.detach(), *rest])
    value = each.double().mean().item()
    term.check_finite(value, gradient)
    return Sample(indices, value, gradient, each)
