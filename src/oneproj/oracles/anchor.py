"""Anchors: all constraints and their gradients at one point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from oneproj.oracles.plan import (
    ANCHORS_PER_PASS,
    GRADIENT_EXAMPLES,
    AnchorPlan,
    is_exact,
    sees_the_same,
)
from oneproj.problem.autograd import accumulate
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Constrained, Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.rates.terms import parts
from oneproj.rates.thresholds import ThresholdMover
from oneproj.results import Counts
from oneproj.vectors.arithmetic import Vector, assign, snapshot

SAMPLE_CHUNK = 4096
"""Examples per forward pass of a sample."""


class ConstraintEvaluation(NamedTuple):
    """One constraint at one point, evaluated on all of its examples or on a sample.

    Attributes:
        value: The mean over these examples.
        each: The value of each of them; None for a constraint without data.
        gradient: That of ``GRADIENT_EXAMPLES`` of them at most; empty where only values
            are kept.
        indices: Which examples they are; None for all data.
        anchors: The number of anchors that have used it.
    """

    value: float
    each: Tensor | None
    gradient: list[Tensor]
    indices: Tensor | None = None
    anchors: int = 1


@dataclass(frozen=True)
class Anchor:
    """Values and gradients of all constraints at a point, on all data or a sample.

    Gradients are of ``GRADIENT_EXAMPLES`` examples at most. In memory it is one vector
    of the model's size per constraint, one for the point, and a number per example.

    Attributes:
        point: Where the constraints were evaluated.
        values: The value of each constraint.
        jacobian: The gradient of each constraint.
        each: The value of each example that is remembered: of all, or of a sample.
        sample: Which examples those are, where they are not all.
        references: The last evaluation on all data, or on a sample large enough to
            stand for it, where anchors in between use fewer examples.
        on_all_data: Whether every value is that of all examples at this point.

    Example:
        >>> anchor = Anchor([torch.ones(1)], {"cap": -0.5}, {"cap": [torch.ones(1)]})
        >>> anchor.values["cap"], anchor.on_all_data
        (-0.5, True)
    """

    point: list[Tensor]
    values: dict[str, float]
    jacobian: dict[str, list[Tensor]]
    each: dict[str, Tensor] = field(default_factory=dict)
    sample: dict[str, Tensor] = field(default_factory=dict)
    references: dict[str, ConstraintEvaluation] = field(default_factory=dict)
    on_all_data: bool = True

    def draw(
        self, constraint: AbstractTerm, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return indices of a minibatch, and the remembered values of its examples."""
        each, among = self.each.get(constraint.name), self.sample.get(constraint.name)
        if each is None or among is None:
            drawn = constraint.draw(batch_size, generator)
            return drawn, None if each is None else each[drawn]
        size = (batch_size,)
        places = torch.randint(len(among), size, generator=generator, device="cpu")
        return among[places], each[places]

    def state_dict(self) -> dict[str, Any]:
        """Return the anchor as plain containers."""
        references = {name: tuple(found) for name, found in self.references.items()}
        return vars(self) | {"references": references}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], device: torch.device) -> Self:
        """Return the anchor of such a state, with the examples' values on a device."""
        each = {name: t.to(device) for name, t in state["each"].items()}
        references = {
            name: ConstraintEvaluation(value, t.to(device), *rest)
            for name, (value, t, *rest) in state["references"].items()
        }
        return cls(**{**state, "each": each, "references": references})


@dataclass
class BestAnchor:
    """The feasible anchor of a run with the lowest estimated objective.

    An anchor counts if its values are those of all data. The estimate is the mean of
    the objective's minibatches since the anchor before, so it costs no evaluation. The
    first anchor is the start and has no estimate. The point is not copied.

    An infeasible anchor with a lower estimate counts too, if its rates hold once
    thresholds are moved. Its objective is then that of all data.

    Attributes:
        objective: The estimate; None where no feasible anchor was seen.
        parameters: The point, if there is one.
        buffers: Those of the problem's model at that point, such as batch norm's.
        total: Sum of the minibatches' objectives since the last anchor.
        count: Number of those minibatches.
        moved: Whether the point is an anchor whose thresholds were moved.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> term = oneproj.function(w.sum)
        >>> problem = oneproj.Problem(w, term, {"cap": term <= 2.0})
        >>> best, anchor = BestAnchor(), Anchor([torch.ones(1)], {"cap": -1.0}, {})
        >>> best.see(3.0)
        >>> best.offer(anchor, problem, Counts())
        >>> best.objective
        3.0
    """

    objective: float | None = None
    parameters: list[Tensor] = field(default_factory=list)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    total: float = 0.0
    count: int = 0
    moved: bool = False

    def see(self, objective: float) -> None:
        """Add the objective of a minibatch to the estimate."""
        self.total += objective
        self.count += 1

    def offer(self, anchor: Anchor, problem: Problem, counts: Counts) -> None:
        """Keep an anchor at the problem's parameters if it is feasible and better."""
        total, count, self.total, self.count = self.total, self.count, 0.0, 0
        if count == 0 or not anchor.on_all_data:
            return
        estimate = total / count
        if self.objective is not None and estimate >= self.objective:
            return
        if max(anchor.values.values(), default=0.0) <= 0:
            self._keep(estimate, anchor.point, problem, moved=False)
        else:
            self._offer_moved(anchor, problem, counts)

    def _offer_moved(self, anchor: Anchor, problem: Problem, counts: Counts) -> None:
        """Keep an infeasible anchor with moved thresholds, if these make it feasible.

        The problem holds the anchor afterwards.
        """
        rated = {n: c for n, c in problem.constraints.items() if parts(c).rates}
        if not rated:
            return
        counts.constraint_passes += len(rated)
        if not ThresholdMover(problem.parameters, rated).move(anchor.values):
            return
        counts.constraint_passes += len(problem.constraints)
        if all(c.value() <= 0 for c in problem.constraints.values()):
            objective, point = problem.objective.value(), snapshot(problem.parameters)
            if self.objective is None or objective < self.objective:
                self._keep(objective, point, problem, moved=True)
        assign(problem.parameters, anchor.point)

    def _keep(
        self, objective: float, point: list[Tensor], problem: Problem, *, moved: bool
    ) -> None:
        self.objective, self.parameters, self.moved = objective, point, moved
        model = problem.model
        named = () if model is None else model.named_buffers()
        self.buffers = {name: buffer.detach().clone() for name, buffer in named}


def take_anchor(
    problem: Constrained,
    *,
    plan: AnchorPlan,
    generator: torch.Generator,
    counts: Counts,
    remember: bool = False,
    last: Anchor | None = None,
) -> Anchor:
    """Evaluate the constraints and their gradients at the parameters.

    Args:
        problem: Its parameters hold the point.
        plan: How many examples are evaluated. Of constraints with more than
            ``GRADIENT_EXAMPLES`` examples, the values of all (or of a sample that
            stands for them) are evaluated at every ``ANCHORS_PER_PASS``-th anchor if
            they are remembered. In between, the value is the last such one plus the
            mean change since then of the examples of the gradient: unbiased, with an
            error that vanishes as the steps do.
        generator: Draws the samples.
        counts: An evaluation on all data counts as a pass and a gradient, one on a
            sample as a gradient.
        remember: Whether to keep the value of each example, where a minibatch would
            give the example the same value.
        last: The anchor before, whose evaluations on all data are used again.

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
    parameters, sampled = problem.parameters, False
    compares = remember and is_exact(problem)
    remember = remember and sees_the_same(problem)
    references = last.references if compares and last is not None else {}
    anchor = Anchor(snapshot(parameters), {}, {})
    for name, constraint in problem.constraints.items():
        counts.constraint_gradients += 1
        rows, gradient_size = constraint.size or 0, GRADIENT_EXAMPLES
        anchors_per_reference = ANCHORS_PER_PASS  # 0: there is never a reference
        if plan.size is not None and rows > plan.size:
            gradient_size = plan.size
            anchors_per_reference = (plan.reference_every or 0) if compares else 0
        reference = references.get(name)
        if reference is not None and reference.anchors >= anchors_per_reference:
            reference = None  # it is time for a new one
        if reference is not None or anchors_per_reference == 0:
            sampled = True
            sample = (constraint, gradient_size, parameters, generator)
            found = _on_sample(*sample, reference)
            if reference is not None:
                used = reference.anchors + 1
                anchor.references[name] = reference._replace(anchors=used)
        else:
            reference_size = plan.reference_size or rows
            if gradient_size < rows and reference_size < rows:
                sampled = True
                found = _on_sample(constraint, reference_size, parameters, generator)
            else:
                counts.constraint_passes += constraint.has_data
                found = _on_all_data(constraint, gradient_size, parameters, generator)
            if compares and rows > gradient_size and found.each is not None:
                anchor.references[name] = found._replace(gradient=[])
        anchor.values[name], anchor.jacobian[name] = found.value, found.gradient
        if remember and found.each is not None:
            anchor.each[name] = found.each
            if found.indices is not None:
                anchor.sample[name] = found.indices
    return replace(anchor, on_all_data=not sampled)


def _on_all_data(
    constraint: AbstractTerm,
    gradient_size: int,
    parameters: Vector,
    generator: torch.Generator,
) -> ConstraintEvaluation:
    """Evaluate a constraint on all data; the gradient on so many examples at most."""
    small = (constraint.size or 0) <= gradient_size
    value, gradient, each = constraint.full_pass(parameters if small else None)
    if gradient is None:
        size = min(gradient_size, GRADIENT_EXAMPLES)
        gradient = _on_sample(constraint, size, parameters, generator).gradient
    return ConstraintEvaluation(value, each, gradient)


@torch.enable_grad()
def _on_sample(
    term: AbstractTerm,
    size: int,
    parameters: Vector,
    generator: torch.Generator,
    reference: ConstraintEvaluation | None = None,
) -> ConstraintEvaluation:
    """Evaluate random examples; the gradient is of the first ``GRADIENT_EXAMPLES``.

    With an earlier evaluation of many the value is that one plus the mean change of
    some of them.
    """
    indices = term.draw(size, generator)
    if indices is None:  # the caller knows that there is data
        message = f"{term.name!r} has no examples to draw from"
        raise ValueError(message)
    places = indices
    if reference is not None and reference.indices is not None:
        places = torch.randint(
            len(reference.indices), (size,), generator=generator, device="cpu"
        )
        indices = reference.indices[places]
    gradient = [torch.zeros_like(p) for p in parameters]
    with evaluating(term.model):
        each = term.examples(indices[:GRADIENT_EXAMPLES])
        accumulate(gradient, each.mean(), parameters)
        with torch.no_grad():
            starts = range(GRADIENT_EXAMPLES, len(indices), SAMPLE_CHUNK)
            rest = [term.examples(indices[k : k + SAMPLE_CHUNK]) for k in starts]
    each = torch.cat([each.detach(), *rest])
    value = each.double().mean().item()
    term.check_finite(value, gradient)
    if reference is not None and reference.each is not None:
        change = each.double() - reference.each[places].double()
        value = reference.value + change.mean().item()
    return ConstraintEvaluation(value, each, gradient, indices)
