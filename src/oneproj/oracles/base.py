"""A sampler of examples: without replacement, shuffled again after each epoch.

What an oracle is: a gradient in ``.grad`` and an account of what was seen.

``"exact"``: every constraint on all of its data, at every update.

``"minibatch"``: every constraint on a fresh minibatch of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.oracles.anchor import Anchor, BestAnchor, sees_all, take_anchor
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.oracles.plan import AnchorPlan
from oneproj.problem.autograd import add_gradient
from oneproj.problem.checks import check_complete, nodes
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.schema import AbstractSchema, Equal, Fields, Integer, Maybe
from oneproj.tensor_schema import TensorSchema
from oneproj.vectors.arithmetic import Vector, is_finite

LARGEST = 10**6
"""Examples of which a permutation is kept, 8 MB. Of more the draws are independent:
hardly any would repeat, and 10^7 take as long to shuffle as 500 small updates."""


class Sampler:
    """Deals the minibatches of a term so that an epoch sees no example twice.

    Every minibatch is uniform by itself, so its mean is unbiased, and together those of
    an epoch leave little to chance: what one has too much of, the others have not. The
    theorems assume independent draws instead; those are ``term.draw``.

    Args:
        term: What to sample.
        batch_size: Examples of a minibatch; all of them where there are no more.
        generator: Shuffles.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
        >>> sampler = Sampler(risk, 2, torch.Generator().manual_seed(0))
        >>> sorted(torch.cat([sampler.draw() for _ in range(3)]).tolist())
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self, term: AbstractTerm, batch_size: int, generator: torch.Generator
    ) -> None:
        """Start with no order; the first draw shuffles."""
        self._term, self._batch_size, self._generator = term, batch_size, generator
        self._order: Tensor | None = None
        self._used = 0

    def draw(self) -> Tensor | None:
        """Indices of the next minibatch; None for all data, or where there is none."""
        n, b = self._term.size, self._batch_size
        if n is None or n > LARGEST:
            return self._term.draw(b, self._generator)
        if n <= b:
            return None
        if self._order is None or self._used + b > n:
            self._order = torch.randperm(n, generator=self._generator, device="cpu")
            self._used = 0
        self._used += b
        return self._order[self._used - b : self._used]

    def state_dict(self) -> dict[str, Any]:
        """The order of this epoch, and how many examples of it were drawn."""
        return {"order": self._order, "used": self._used}

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        n = self._term.size or 0
        order = TensorSchema((n,), torch.int64, least=0, most=n - 1)
        return Fields({"order": Maybe(order), "used": Integer(least=0, most=n)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state.

        Example:
            >>> import oneproj
            >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
            >>> first, second = (Sampler(risk, 2, torch.Generator()) for _ in range(2))
            >>> _ = first.draw(); second.load_state_dict(first.state_dict())
            >>> torch.equal(first.draw(), second.draw())
            True
        """
        self._order, self._used = state["order"], state["used"]


@dataclass(frozen=True)
class Estimate:
    """What an oracle saw at one point: estimates, unless the term has no data."""

    objective: float
    residuals: Mapping[str, float]


class AbstractOracle(ABC):
    """Looks at a problem with a penalty and fills ``.grad``; None penalises nothing.

    Args:
        problem: What to look at.
        penalty: Of the constraint values; ``penalize`` exchanges it.
        batch_size: Examples per minibatch, of the objective and each constraint.
        generator: Draws the minibatches.
        counts: Where every look is counted.
        plan: What anchors see.
        renew_every: Updates after which an anchor that is used renews itself; None
            where the method calls ``anchor()`` when it is time.
        shuffle: Whether the objective's minibatches come from a sampler, or are drawn
            independently of each other, as the theorems assume.
        best: Where the best feasible anchor is kept; None for nowhere.
    """

    _remembers: ClassVar[bool] = False
    """Whether anchors keep the value of each example."""
    _anchor: Anchor | None = None
    """The one in force, of an oracle that uses anchors."""

    def __init__(
        self,
        problem: Problem,
        penalty: AbstractPenalty | None,
        *,
        batch_size: int,
        generator: torch.Generator,
        counts: Counts,
        plan: AnchorPlan = AnchorPlan(),  # noqa: B008 - it cannot change
        renew_every: int | None = None,
        shuffle: bool = False,
        best: BestAnchor | None = None,
    ) -> None:
        """Keep what to look at and where to count."""
        self._problem = problem
        self._penalty = penalty
        self._batch_size = batch_size
        self._generator = generator
        self._counts = counts
        self._plan, self._renew_every = plan, renew_every
        self._best = BestAnchor() if best is None else best
        self._drawn: dict[str, Tensor | None] = {}
        self._seen: set[str] = set()
        self._unchecked: list[AbstractTerm] = []
        """Whose gradients are in ``.grad`` and may not be finite."""
        objective = problem.objective
        self._sampler = Sampler(objective, batch_size, generator) if shuffle else None

    def penalize(self, penalty: AbstractPenalty) -> None:
        """Look with another penalty from now on."""
        self._penalty = penalty

    def anchor(self) -> Anchor:
        """All constraints and their gradients, on as much data as planned."""
        taken = take_anchor(
            self._problem,
            plan=self._plan,
            generator=self._generator,
            counts=self._counts,
            remember=self._remembers,
            last=self._anchor,
        )
        self._best.offer(taken, self._problem)
        return taken

    def state_dict(self) -> dict[str, Any]:
        """What the next look depends on, beyond the penalty and the generator."""
        return {
            "sampler": None if self._sampler is None else self._sampler.state_dict()
        }

    def state_schema(self) -> AbstractSchema:
        """What such a state looks like."""
        return Fields(self._schemas())

    def _schemas(self) -> dict[str, AbstractSchema]:
        """The schema of each part of the state."""
        return {
            "sampler": Equal(None)
            if self._sampler is None
            else self._sampler.state_schema()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        if self._sampler is not None:
            self._sampler.load_state_dict(state["sampler"])

    def backward(self) -> Estimate:
        """Put a stochastic gradient of ``f + p(c)`` into ``.grad``; say what was seen.

        Raises:
            NonFiniteError: A value or the gradient is NaN or inf; it names the term.
        """
        objective = self.see_objective(alone=self._penalty is None)
        return Estimate(objective, self.add_penalty())

    def see_objective(self, *, alone: bool = True) -> float:
        """Put a stochastic gradient of f into ``.grad``; returns the value seen.

        One that is not ``alone`` is checked together with what ``add_penalty`` adds.
        """
        parameters = self._problem.parameters
        for p in parameters:
            p.grad = None
        value, f = self._sample_objective()
        self._best.see(value)
        self._counts.objective_gradients += 1
        add_gradient([f], [1.0], parameters)
        self._unchecked = [self._problem.objective]
        if alone:
            self._check_gradient()
        return value

    def add_penalty(self) -> dict[str, float]:
        """Add a stochastic gradient of p(c) to ``.grad``; returns the values seen."""
        if self._penalty is None:
            return {}
        seen = self._see_constraints()
        weighted = self._weigh(seen, self._penalty)
        if weighted:
            self._add_gradients(weighted, seen)
            self._unchecked += [constraint for constraint, _ in weighted]
        if self._unchecked:
            self._check_gradient()
        return {name: value for name, (value, _) in seen.items()}

    @abstractmethod
    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """A value, and what carries its gradient; None for a full gradient later."""

    def _is_seen_at_once(self, constraint: AbstractTerm) -> bool:
        """Whether all of a constraint is seen for what a minibatch would cost."""
        return constraint.size is None or constraint.size <= self._plan.at_once

    def _see_at_once(self, constraint: AbstractTerm) -> tuple[float, Tensor]:
        """The value on all data, and what carries its gradient: one forward pass."""
        self._counts.constraint_passes += constraint.size is not None
        self._drawn[constraint.name] = None
        with evaluating(constraint.model):
            return self._on_batch(constraint)

    def _see_constraints(self) -> dict[str, tuple[float, Tensor | None]]:
        constraints = self._problem.constraints
        return {name: self._see(constraint) for name, constraint in constraints.items()}

    def _weigh(
        self,
        seen: Mapping[str, tuple[float, Tensor | None]],
        penalty: AbstractPenalty,
    ) -> list[tuple[AbstractTerm, float]]:
        """The constraints that the penalty pushes on, each with its weight."""
        weights = penalty.weigh([value for value, _ in seen.values()])
        pairs = zip(self._problem.constraints.values(), weights, strict=True)
        return [(constraint, w) for constraint, w in pairs if w != 0]

    def _add_gradients(
        self,
        weighted: Sequence[tuple[AbstractTerm, float]],
        seen: Mapping[str, tuple[float, Tensor | None]],
    ) -> None:
        """Add ``sum_j w_j grad c_j``, from one backward pass where there are graphs."""
        looks = [
            (constraint, w, seen[constraint.name][1]) for constraint, w in weighted
        ]
        carried = [(carrier, w) for _, w, carrier in looks if carrier is not None]
        self._counts.constraint_gradients += len(carried)
        self._descend(carried)
        for constraint, w, carrier in looks:
            if carrier is None:
                self._add(self._full_gradient(constraint), w)

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        self._counts.constraint_gradients += 1
        self._counts.constraint_passes += 1
        return constraint.value_and_gradient(self._problem.parameters)[1]

    def _descend(self, carried: Sequence[tuple[Tensor, float]]) -> None:
        """Add the gradient of ``sum_j w_j v_j``, by one backward pass."""
        moving = [(v, w) for v, w in carried if v.requires_grad]
        if moving:
            values, weights = zip(*moving, strict=True)
            add_gradient(values, weights, self._problem.parameters)

    def _add(self, gradient: Vector, weight: float) -> None:
        pairs = list(zip(self._problem.parameters, gradient, strict=True))
        reached = [(p.grad, part) for p, part in pairs if p.grad is not None]
        if reached:
            sums, parts = zip(*reached, strict=True)
            torch._foreach_add_(sums, parts, alpha=weight)
        for p, part in pairs if len(reached) < len(pairs) else ():
            p.grad = weight * part if p.grad is None else p.grad

    def _on_batch(self, term: AbstractTerm) -> tuple[float, Tensor]:
        """The value on the minibatch that was drawn last, and what carries it."""
        carrier = term.batch_value(self._drawn[term.name])
        if carrier.requires_grad and term.name not in self._seen:
            # In training mode it may be another graph than that which was tried.
            self._seen.add(term.name)
            check_complete(term.name, nodes(carrier))
        value = carrier.item()
        if not math.isfinite(value):
            quantity = f"the value of {term.name!r}"
            raise NonFiniteError(quantity)
        return value, carrier

    def _sample(self, term: AbstractTerm) -> tuple[float, Tensor]:
        self._drawn[term.name] = term.draw(self._batch_size, self._generator)
        return self._on_batch(term)

    def _sample_objective(self) -> tuple[float, Tensor]:
        objective = self._problem.objective
        if self._sampler is None:
            return self._sample(objective)
        self._drawn[objective.name] = self._sampler.draw()
        return self._on_batch(objective)

    def _check_gradient(self) -> None:
        """Raise if ``.grad`` is not finite, and name the term that made it so."""
        parameters, added = self._problem.parameters, self._unchecked
        self._unchecked = []
        slopes = [p.grad for p in parameters if p.grad is not None]
        # As a rule the lengths are finite, and with them all else.
        lengths = torch._foreach_norm(slopes, 2) if slopes else ()
        if math.isfinite(sum(map(Tensor.item, lengths))) or is_finite(slopes):
            return
        # The sum does not tell which term it was, so look at each of them again.
        # Full gradients are not among them: they were checked when they were made.
        for term in (term for term in added if term.name in self._drawn):
            value = term.batch_value(self._drawn[term.name])
            parts = torch.autograd.grad(value, parameters, allow_unused=True)
            if not is_finite([part.to_dense() for part in parts if part is not None]):
                quantity = f"the gradient of {term.name!r}"
                raise NonFiniteError(quantity)
        pushing = [term for term in added if term is not self._problem.objective]
        names = ", ".join(repr(term.name) for term in pushing) or "nothing"
        quantity = f"the gradient of 'objective' plus the penalty on {names}"
        if parameters[0].dtype is torch.float16:
            quantity += (
                " (float16 ends at 65504: train in float32 or bfloat16, or give a "
                "smaller strength)"
            )
        raise NonFiniteError(quantity)


class Exact(AbstractOracle):
    """Every constraint on all of its data, at every update.

    What an anchor has just seen on all of it is not looked at again.
    """

    _fresh: Anchor | None = None
    """The anchor where the parameters are, until the next penalty is added."""

    def anchor(self) -> Anchor:
        """All constraints and their gradients where the parameters are."""
        self._fresh = super().anchor()
        return self._fresh

    def add_penalty(self) -> dict[str, float]:
        """Add the gradient of p(c)."""
        try:
            return super().add_penalty()
        finally:
            self._fresh = None  # the parameters move now

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        known = self._known(constraint)
        if known is not None:
            return known.values[constraint.name], None
        if self._is_seen_at_once(constraint):
            return self._see_at_once(constraint)
        self._counts.constraint_passes += 1
        return constraint.value(), None

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        known = self._known(constraint)
        if known is not None:
            return known.jacobian[constraint.name]
        return super()._full_gradient(constraint)

    def _known(self, constraint: AbstractTerm) -> Anchor | None:
        return self._fresh if sees_all(constraint, self._plan) else None


class Minibatch(AbstractOracle):
    """Every constraint on a fresh minibatch of its own."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        return self._sample(constraint)
