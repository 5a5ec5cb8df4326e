"""An anchor: the constraints and their gradients at one point, seen thoroughly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.oracles.plan import LOOKS, SLOPES, AnchorPlan, sees_the_same
from oneproj.problem.autograd import accumulate
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.schema import check_like, check_names, check_range, check_tensor
from oneproj.vectors.arithmetic import Vector, on_devices, snapshot

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
    on_all_data: bool = True
    """Whether every value is that of all examples, seen here."""

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
    def of_state(cls, state: Mapping[str, Any], problem: Problem) -> Self:
        """The anchor of such a state, on the devices of the problem's parameters.

        Raises:
            SchemaError: It is not an anchor of this problem.
        """
        _check(state, problem)
        like = problem.parameters
        rows = {name: on_devices(row, like) for name, row in state["jacobian"].items()}
        device = like[0].device
        each = {name: t.to(device) for name, t in state["each"].items()}
        wholes = {
            name: Whole(value, t.to(device), looks)
            for name, (value, t, looks) in state["wholes"].items()
        }
        point, values = on_devices(state["point"], like), dict(state["values"])
        sample, whole = dict(state["sample"]), state["on_all_data"]
        return cls(point, values, rows, each, sample, wholes, whole)


@dataclass
class BestAnchor:
    """The feasible anchor of a run with the lowest objective, as minibatches tell.

    An anchor counts if it saw all data. Its objective is estimated by the mean of the
    minibatches since the anchor before, so that it costs no evaluation. The first
    anchor has none: it is the start. The point is that of the anchor, not a copy.

    Attributes:
        objective: The estimate; None where no feasible anchor was seen.
        parameters: The point, if there is one.
        buffers: Of the problem's model there, by name: training moves batch norm's.
        total: Of the minibatches' objectives since the last anchor.
        count: The number of those minibatches.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> term = oneproj.function(w.sum)
        >>> problem = oneproj.Problem(w, term, {"cap": term <= 2.0})
        >>> best = BestAnchor()
        >>> best.see(3.0)
        >>> best.offer(Anchor([torch.ones(1)], {"cap": -1.0}, {}), problem)
        >>> best.objective
        3.0
    """

    objective: float | None = None
    parameters: list[Tensor] = field(default_factory=list)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    total: float = 0.0
    count: int = 0

    def see(self, objective: float) -> None:
        """Take the objective of a minibatch into account."""
        self.total += objective
        self.count += 1

    def offer(self, anchor: Anchor, problem: Problem) -> None:
        """Keep an anchor, taken where the problem's parameters are, if it is better."""
        total, count, self.total, self.count = self.total, self.count, 0.0, 0
        feasible = anchor.on_all_data and max(anchor.values.values(), default=0.0) <= 0
        if not feasible or count == 0:
            return
        estimate = total / count
        if self.objective is None or estimate < self.objective:
            self.objective, self.parameters = estimate, anchor.point
            model = problem.model
            named = () if model is None else model.named_buffers()
            self.buffers = {name: buffer.detach().clone() for name, buffer in named}


def _check(state: Mapping[str, Any], problem: Problem) -> None:
    """Require an anchor in which every example that is remembered has one value."""
    like, terms = problem.parameters, problem.constraints
    numbers, rows = dict.fromkeys(terms, 0.0), dict.fromkeys(terms, like)
    parts = {"point": like, "values": numbers, "jacobian": rows}
    remembered = {"each": {}, "sample": {}, "wholes": {}, "on_all_data": True}
    check_like(state, parts | remembered, "anchor")
    for part in ("each", "sample", "wholes"):
        check_names(state[part], f"anchor.{part}", terms, needed=())
    for name in state["each"].keys() | state["sample"].keys():
        seen = terms[name].size or 0
        if name in state["sample"]:
            check_indices(state["sample"][name], terms[name])
            seen = len(state["sample"][name])
        check_range(seen, f"the examples of {name}", 1)
        check_tensor(state["each"].get(name), f"anchor.each.{name}", (seen,))
    for name, whole in state["wholes"].items():
        value, each, looks = whole
        check_like(value, 0.0, "anchor.wholes.value")
        check_tensor(each, "anchor.wholes.each", (terms[name].size or 0,))
        check_range(looks, "anchor.wholes.looks", 1)


def check_indices(indices: Any, term: AbstractTerm) -> None:  # noqa: ANN401 - whatever a file had
    """Require indices of examples of a term.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
        >>> check_indices(torch.tensor([5, 0]), risk)
    """
    check_tensor(
        indices, "indices", (None,), torch.int64, within=(0, (term.size or 0) - 1)
    )


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
    taken, on_all_data = Anchor(snapshot(parameters), {}, {}), True
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
            on_all_data = False
        else:
            counts.constraint_passes += rows > 0
            each = _look_at_all(taken, constraint, few, parameters, generator)
            if remember and each is not None:
                taken.each[name] = each
                if rows > few:
                    taken.wholes[name] = Whole(taken.values[name], each, looks=1)
    return replace(taken, on_all_data=on_all_data)


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
