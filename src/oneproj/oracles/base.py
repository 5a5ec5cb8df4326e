"""What an oracle is, and the two that need no anchors: exact and minibatch.

The sampler of the objective's minibatches is here as well.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError, NonFiniteError
from oneproj.oracles.anchor import Anchor, BestAnchor, take_anchor
from oneproj.oracles.penalties import AbstractPenalty
from oneproj.oracles.plan import GRADIENT_EXAMPLES, AnchorPlan
from oneproj.problem.autograd import add_gradient
from oneproj.problem.checks import check_complete, nodes
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Constrained, Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.schema import Resumable
from oneproj.vectors.arithmetic import Vector, is_finite

MOST_SHUFFLED = 10**6
"""Examples up to which a term is shuffled: the order takes 8 MB. Draws from more are
independent: few examples would repeat, and to shuffle 10^7 takes as long as 500 small
updates."""


class Sampler(Resumable):
    """Draws minibatches without replacement: an epoch uses no example twice.

    Each minibatch is a uniform sample, so its mean is unbiased, and the means of one
    epoch average to less variance than independent draws. The theorems assume
    independent draws, which ``term.draw`` makes.

    Args:
        term: The term whose examples are drawn.
        batch_size: Examples per minibatch; a term with no more examples is used whole.
        generator: Shuffles the examples at the start of each epoch.

    Example:
        >>> import oneproj
        >>> risk = oneproj.mean(lambda batch: batch, data=torch.arange(6.0))
        >>> sampler = Sampler(risk, 2, torch.Generator().manual_seed(0))
        >>> sorted(torch.cat([sampler.draw() for _ in range(3)]).tolist())
        [0, 1, 2, 3, 4, 5]
    """

    STATE = ("_order", "_used")

    def __init__(
        self, term: AbstractTerm, batch_size: int, generator: torch.Generator
    ) -> None:
        """Start with no order; the first draw shuffles."""
        self._term, self._batch_size, self._generator = term, batch_size, generator
        self._order: Tensor | None = None
        self._used = 0

    def draw(self) -> Tensor | None:
        """Return the next indices; None for all data, or for a term without data."""
        n, b = self._term.size, self._batch_size
        if n is None or n > MOST_SHUFFLED:
            return self._term.draw(b, self._generator)
        if n <= b:
            return None
        if self._order is None or self._used + b > n:
            self._order = torch.randperm(n, generator=self._generator, device="cpu")
            self._used = 0
        self._used += b
        return self._order[self._used - b : self._used]


@dataclass(frozen=True)
class Estimate:
    """The values that one update used: estimates, where minibatches gave them.

    Args:
        objective: The value of the objective.
        residuals: The value of each constraint by name; empty without a penalty.

    Example:
        >>> Estimate(0.25, {"risk": -0.1}).residuals["risk"]
        -0.1
    """

    objective: float
    residuals: Mapping[str, float]


class AbstractOracle(Resumable, ABC):
    """Estimates ``f + p(c)`` and puts a stochastic gradient of it into ``.grad``.

    A subclass says how a constraint is estimated, in ``estimate``. The weights of the
    penalty, the gradients, the counts and the checks are done here. Pass the class to
    ``solve(oracle=...)``; every run makes an oracle of its own.

    Args:
        problem: The problem to evaluate, or parameters and constraints alone.
        penalty: Of the constraint values; None for the objective alone.
        batch_size: Examples per minibatch, of the objective and each constraint.
        generator: Draws the minibatches.
        counts: Where every evaluation is counted.
        plan: How much data anchors evaluate.
        renew_every: Updates after which an oracle with anchors takes a new one; None
            if the method calls ``anchor()``.
        shuffle: Whether the objective's minibatches come from a ``Sampler``, or are
            independent draws, as the theorems assume.
        best: Keeps the best feasible anchor; None for nowhere.

    Attributes:
        name: What ``Solution.settings`` and messages call the oracle.
        uses_anchors: Whether estimates use an anchor: a method with a proximal centre
            then takes one there, and the anchor keeps the value of each example.
        shuffles: Whether the objective is shuffled every epoch; with a schedule of the
            theorems it never is.

    Example:
        Every constraint on a minibatch ten times as large as the objective's:

        >>> import oneproj
        >>> class LargeBatch(oneproj.oracles.AbstractOracle):
        ...     name = "large-batch"
        ...
        ...     def estimate(self, constraint):
        ...         indices = constraint.draw(10 * self.batch_size, self.generator)
        ...         return self.evaluate_batch(constraint, indices)
        >>> w = torch.zeros(2, requires_grad=True)
        >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> problem = oneproj.Problem(
        ...     w,
        ...     objective=oneproj.mean(lambda x: (x - w).square().sum(1), data=x),
        ...     constraints={"cap": oneproj.mean(lambda x: x @ w - w[0], x) <= -1.0},
        ... )
        >>> solution = oneproj.solve(problem, oracle=LargeBatch, batch_size=8)
        >>> solution.feasible, solution.settings["oracle"]
        (True, 'large-batch')
    """

    STATE = ("_sampler",)
    name: ClassVar[str]
    uses_anchors: ClassVar[bool] = False
    shuffles: ClassVar[bool] = True
    _anchor: Anchor | None = None

    def __init__(
        self,
        problem: Constrained,
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
        """Keep what to evaluate and where to count."""
        self.problem, self.batch_size = problem, batch_size
        self.generator, self.counts = generator, counts
        self._penalty, self._plan, self._renew_every = penalty, plan, renew_every
        self._best = BestAnchor() if best is None else best
        self._objective = problem.objective if isinstance(problem, Problem) else None
        self._drawn: dict[str, Tensor | None] = {}  # the last minibatch of each term
        self._checked: set[str] = set()  # terms whose graph was checked once
        self._constant: set[str] = set()  # whose last minibatch has no gradient
        self._unchecked: list[AbstractTerm] = []  # whose gradients may not be finite
        self._sampler: Sampler | None = None
        if shuffle and self._objective is not None:
            self._sampler = Sampler(self._objective, batch_size, generator)

    @abstractmethod
    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """Return a value of the constraint, and a scalar that has its gradient.

        None in place of the scalar means: if the penalty gives the constraint a
        weight, add the gradient on all data. ``evaluate_batch`` and ``evaluate_all``
        return such pairs; the first element is what the penalty is given.
        """

    def evaluate_batch(
        self, term: AbstractTerm, indices: Tensor | None
    ) -> tuple[float, Tensor]:
        """Return the value on a minibatch, as a number and as a differentiable scalar.

        Args:
            term: A constraint of the problem, or its objective.
            indices: Of the examples, from ``term.draw``; None for all of them.

        Raises:
            NonFiniteError: The value is NaN or inf.
        """
        self._drawn[term.name] = indices
        self._constant.discard(term.name)
        graph = term.batch_value(indices)
        if not graph.requires_grad:
            self._constant.add(term.name)
        elif term.name not in self._checked:
            # In training mode the graph can differ from the one that Problem checked.
            self._checked.add(term.name)
            check_complete(term.name, nodes(graph))
        value = graph.item()
        term.check_finite(value)
        return value, graph

    def evaluate_all(self, term: AbstractTerm) -> tuple[float, Tensor]:
        """Return the value on all data, by one forward pass in evaluation mode."""
        self.counts.constraint_passes += term.has_data
        with evaluating(term.model):
            return self.evaluate_batch(term, None)

    def penalize(self, penalty: AbstractPenalty) -> None:
        """Use another penalty from now on."""
        self._penalty = penalty

    def anchor(self) -> Anchor:
        """Evaluate all constraints and their gradients, on as much data as planned."""
        anchor = take_anchor(
            self.problem,
            plan=self._plan,
            generator=self.generator,
            counts=self.counts,
            remember=self.uses_anchors,
            last=self._anchor,
        )
        if isinstance(self.problem, Problem):
            self._best.offer(anchor, self.problem, self.counts)
        return anchor

    def backward(self) -> Estimate:
        """Put a stochastic gradient of ``f + p(c)`` into ``.grad``.

        Raises:
            NonFiniteError: A value or the gradient is NaN or inf; it names the term.
        """
        objective = self.backward_objective(alone=self._penalty is None)
        return Estimate(objective, self.add_penalty())

    def backward_objective(self, *, alone: bool = True) -> float:
        """Put a stochastic gradient of f into ``.grad``, and return the value of f.

        Unless it is ``alone``, ``add_penalty`` checks that the sum is finite.
        """
        objective, parameters = self._objective, self.problem.parameters
        if objective is None:
            message = "There is no objective: the oracle sees constraints alone."
            raise ValueError(message)
        for p in parameters:
            p.grad = None
        if self._sampler is None:
            indices = objective.draw(self.batch_size, self.generator)
        else:
            indices = self._sampler.draw()
        value, graph = self.evaluate_batch(objective, indices)
        self._best.see(value)
        self.counts.objective_gradients += 1
        add_gradient([graph], [1.0], parameters)
        self._unchecked = [objective]
        if alone:
            self._check_gradient()
        return value

    def add_penalty(self) -> dict[str, float]:
        """Add a stochastic gradient of p(c) to ``.grad``, and return the values of c.

        By the chain rule it is ``sum_j w_j grad c_j``, with the penalty's weights at
        the estimated values. Constraints without weight take no backward pass.
        """
        if self._penalty is None:
            return {}
        estimates = self._estimates()
        values = {name: value for name, (value, _) in estimates.items()}
        weights = self._penalty.weigh(list(values.values()))
        pairs = zip(self.problem.constraints.values(), weights, strict=True)
        pushing = [(c, w, estimates[c.name][1]) for c, w in pairs if w != 0]
        if pushing:
            self._add_gradients(pushing)
            self._unchecked += [constraint for constraint, _, _ in pushing]
        if self._unchecked:
            self._check_gradient()
        return values

    def _estimates(self) -> dict[str, tuple[float, Tensor | None]]:
        """Estimate every constraint; return the pairs by name."""
        found = {}
        for name, constraint in self.problem.constraints.items():
            found[name] = self.estimate(constraint)
            self._check_estimate(constraint, found[name])
        return found

    def _check_estimate(
        self,
        constraint: AbstractTerm,
        found: Any,  # noqa: ANN401 - whatever the user's function returned
    ) -> None:
        """Refuse what an oracle of the user's own may return by mistake."""
        fits = isinstance(found, tuple) and len(found) == 2  # noqa: PLR2004 - a pair
        value, graph = found if fits else (None, None)
        scalar = graph is None or (isinstance(graph, Tensor) and graph.ndim == 0)
        if not (isinstance(value, int | float) and scalar):
            message = (
                f"estimate() of the oracle {self.name!r} must return a number and a "
                f"scalar tensor to differentiate, or None for the full gradient; for "
                f"{constraint.name!r} it returned {found!r}. evaluate_batch() and "
                "evaluate_all() return such pairs."
            )
            raise InvalidProblemError(message)
        constraint.check_finite(value)
        if graph is None or graph.requires_grad or constraint.name in self._constant:
            return
        message = (
            f"estimate() of the oracle {self.name!r} returned a scalar of "
            f"{constraint.name!r} that has no gradient, so the constraint would have "
            "no effect. Do not detach it, nor compute it under torch.no_grad(); or "
            "return None in its place for the gradient on all data."
        )
        raise InvalidProblemError(message)

    def _is_small(self, constraint: AbstractTerm) -> bool:
        """Whether all data of a constraint costs no more than its minibatches."""
        return constraint.size is None or constraint.size <= self._plan.at_once

    def _add_gradients(
        self, pushing: Sequence[tuple[AbstractTerm, float, Tensor | None]]
    ) -> None:
        """Add ``sum_j w_j grad c_j``: one backward pass for all that have a graph."""
        graphs = [(graph, w) for _, w, graph in pushing if graph is not None]
        self.counts.constraint_gradients += len(graphs)
        moving = [(graph, w) for graph, w in graphs if graph.requires_grad]
        if moving:
            values, weights = zip(*moving, strict=True)
            add_gradient(values, weights, self.problem.parameters)
        for constraint, w, graph in pushing:
            if graph is None:
                self._add(self._full_gradient(constraint), w)

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        self.counts.constraint_gradients += 1
        self.counts.constraint_passes += constraint.has_data
        return constraint.value_and_gradient(self.problem.parameters)[1]

    def _add(self, gradient: Vector, weight: float) -> None:
        """Add a known gradient to ``.grad``."""
        parameters = self.problem.parameters
        sums = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        torch._foreach_add_(sums, list(gradient), alpha=weight)
        for p, total in zip(parameters, sums, strict=True):
            p.grad = total

    def _check_gradient(self) -> None:
        """Raise if ``.grad`` is not finite, and name the term that made it so."""
        parameters, added = self.problem.parameters, self._unchecked
        self._unchecked = []
        gradients = [p.grad for p in parameters if p.grad is not None]
        # Finite norms imply finite entries; only a norm that overflowed needs them.
        norms = torch._foreach_norm(gradients, 2) if gradients else ()
        if math.isfinite(sum(map(Tensor.item, norms))) or is_finite(gradients):
            return
        # The sum does not show which term it was, so each is evaluated again, except
        # gradients on all data, which were checked when they were computed.
        for term in (term for term in added if term.name in self._drawn):
            value = term.batch_value(self._drawn[term.name])
            parts = torch.autograd.grad(value, parameters, allow_unused=True)
            dense = [part.to_dense() for part in parts if part is not None]
            term.check_finite(0.0, dense)
        pushing = [term for term in added if term is not self._objective]
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

    An update at an anchor reuses what the anchor evaluated on all data.
    """

    name = "exact"

    def anchor(self) -> Anchor:
        """Evaluate all constraints and their gradients at the parameters."""
        self._anchor = super().anchor()
        return self._anchor

    def add_penalty(self) -> dict[str, float]:
        """Add the gradient of p(c)."""
        try:
            return super().add_penalty()
        finally:
            self._anchor = None  # the parameters move now

    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """Return the value on all data; large data have their gradient if needed."""
        known = self._known(constraint)
        if known is not None:
            return known.values[constraint.name], None
        if self._is_small(constraint):
            return self.evaluate_all(constraint)
        self.counts.constraint_passes += 1
        return constraint.value(), None

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        known = self._known(constraint)
        if known is not None:
            return known.jacobian[constraint.name]
        return super()._full_gradient(constraint)

    def _known(self, constraint: AbstractTerm) -> Anchor | None:
        """Return the anchor, if its value and gradient are those of all examples."""
        size = (
            GRADIENT_EXAMPLES
            if self._plan.size is None
            else min(GRADIENT_EXAMPLES, self._plan.size)
        )
        return self._anchor if (constraint.size or 0) <= size else None


class Minibatch(AbstractOracle):
    """Every constraint on a new minibatch of its own, as in the paper's experiments."""

    name = "minibatch"
    shuffles = False

    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """Return the value on independently drawn examples."""
        indices = constraint.draw(self.batch_size, self.generator)
        return self.evaluate_batch(constraint, indices)
