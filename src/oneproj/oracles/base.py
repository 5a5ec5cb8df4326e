"""Oracles: how a method sees the objective, the constraints and their gradients.

Each ``backward()`` leaves a stochastic gradient of ``f + p(c)`` in ``.grad``. The
penalty's gradient is ``sum_j w_j grad c_j`` with weights from the values seen, so one
backward pass of ``f + sum_j w_j c_j`` does it.

- ``exact``: c on all of its data at every update. What the theorems assume.
- ``minibatch``: c on a fresh minibatch. What the paper's experiments do; inside a
  hinge the estimate is biased upwards, ``E [c_batch]_+ >= [c]_+``.

The objective is seen on a minibatch by both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.errors import NonFiniteError
from oneproj.parameters import is_finite
from oneproj.penalties import AbstractPenalty
from oneproj.problem import Problem
from oneproj.results import Counts
from oneproj.terms import AbstractTerm


@dataclass(frozen=True)
class Sight:
    """What an oracle saw at one point: estimates, unless the term has no data."""

    objective: float
    residuals: Mapping[str, float]


class AbstractOracle(ABC):
    """Looks at a problem with a penalty and fills ``.grad``; None penalises nothing."""

    def __init__(
        self,
        problem: Problem,
        penalty: AbstractPenalty | None,
        *,
        batch_size: int,
        generator: torch.Generator,
        counts: Counts,
    ) -> None:
        """Keep what to look at and where to count."""
        self._problem = problem
        self._penalty = penalty
        self._batch_size = batch_size
        self._generator = generator
        self._counts = counts
        self._drawn: dict[str, Tensor | None] = {}

    @torch.enable_grad()
    def backward(self) -> Sight:
        """Put a stochastic gradient of ``f + p(c)`` into ``.grad``; say what was seen.

        Raises:
            NonFiniteError: A value or the gradient is NaN or inf; it names the term.
        """
        parameters = self._problem.parameters
        for p in parameters:
            p.grad = None
        f = self._sample(self._problem.objective)
        self._counts.objective_gradients += 1
        seen = {} if self._penalty is None else self._see_constraints()
        weighted = self._weigh(seen)
        loss = f
        for constraint, w in weighted:
            carrier = seen[constraint.name][1]
            if carrier is not None:
                loss = loss + w * carrier
        # Into the problem's parameters only: other leaves of the graph are not ours.
        loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
        for constraint, w in weighted:
            if seen[constraint.name][1] is None:
                self._add_full_gradient(constraint, w)
        self._check_gradient([constraint for constraint, _ in weighted])
        residuals = {name: value for name, (value, _) in seen.items()}
        return Sight(float(f.detach()), residuals)

    @abstractmethod
    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """A value, and what carries its gradient; None for a full gradient later."""

    def _see_constraints(self) -> dict[str, tuple[float, Tensor | None]]:
        constraints = self._problem.constraints
        return {name: self._see(constraint) for name, constraint in constraints.items()}

    def _weigh(
        self, seen: Mapping[str, tuple[float, Tensor | None]]
    ) -> list[tuple[AbstractTerm, float]]:
        """The constraints that the penalty pushes on, each with its weight."""
        if self._penalty is None:
            return []
        values = torch.tensor([v for v, _ in seen.values()], dtype=torch.float64)
        weights = self._penalty.weights(values).tolist()
        pairs = zip(self._problem.constraints.values(), weights, strict=True)
        pushed = [(constraint, w) for constraint, w in pairs if w != 0]
        self._counts.constraint_gradients += len(pushed)
        return pushed

    def _sample(self, term: AbstractTerm) -> Tensor:
        indices = term.draw(self._batch_size, self._generator)
        self._drawn[term.name] = indices
        value = term.batch_value(indices)
        if not bool(torch.isfinite(value.detach())):
            quantity = f"the value of {term.name!r}"
            raise NonFiniteError(quantity)
        return value

    def _add_full_gradient(self, constraint: AbstractTerm, weight: float) -> None:
        parameters = self._problem.parameters
        _, gradient = constraint.value_and_gradient(parameters)
        self._counts.constraint_passes += 1
        for p, part in zip(parameters, gradient, strict=True):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.add_(part, alpha=weight)

    def _check_gradient(self, pushed: Sequence[AbstractTerm]) -> None:
        parameters = self._problem.parameters
        if is_finite([p.grad for p in parameters if p.grad is not None]):
            return
        # The sum does not tell which term it was, so look at each of them again.
        # Full gradients are not among them: they were checked when they were made.
        seen = (self._problem.objective, *pushed)
        for term in (term for term in seen if term.name in self._drawn):
            value = term.batch_value(self._drawn[term.name])
            parts = torch.autograd.grad(value, parameters, allow_unused=True)
            if not is_finite([part for part in parts if part is not None]):
                quantity = f"the gradient of {term.name!r}"
                raise NonFiniteError(quantity)
        names = ", ".join(repr(term.name) for term in pushed) or "nothing"
        quantity = f"the gradient of 'objective' plus the penalty on {names}"
        raise NonFiniteError(quantity)


class Exact(AbstractOracle):
    """Every constraint on all of its data, at every update."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        if constraint.size is None:
            value = self._sample(constraint)
            return float(value.detach().double()), value
        self._counts.constraint_passes += 1
        return constraint.value(), None


class Minibatch(AbstractOracle):
    """Every constraint on a fresh minibatch of its own."""

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        value = self._sample(constraint)
        return float(value.detach().double()), value


ORACLES: dict[str, type[AbstractOracle]] = {"exact": Exact, "minibatch": Minibatch}
"""Every oracle by name."""
