"""``"anchored"``: minibatches, corrected by an evaluation at the proximal centre.

Let x be the anchor, where c(x) and its gradient were evaluated on all data (the
gradient on at most ``GRADIENT_EXAMPLES`` examples), and B a new minibatch. At z the
constraint is estimated by

    ``c_B(z) - c_B(x) + c(x)``,

and its gradient by the same combination: a control variate, as in SVRG (Johnson and
Zhang, 2013). Both are unbiased, as c_B is. For losses that are L-Lipschitz the variance
is at most ``L^2 |z - x|^2 / |B|``: it vanishes at the anchor, and the proximal term
keeps z near. So the hinge of the estimate is nearly the hinge of c, where the hinge of
c_B alone is biased upwards.

Larger data. More than ``GRADIENT_EXAMPLES`` examples are evaluated at every fourth
anchor. Where that is too costly, a random sample stands for them, and is drawn again
after ``ANCHORS_PER_REFERENCE`` anchors. In between, c(x) is the value at the last such
anchor, y, plus the mean change since then of the examples S of the gradient: unbiased,
with a variance of at most ``L^2 |x - y|^2 / |S|``, and that of the sample's mean if
there is one. Minibatches are then drawn from S.

Cost. At x itself the two terms of B cancel, so no minibatch is evaluated. Elsewhere
``c_B(x)`` is the mean of values that the anchor remembers. B is evaluated at x, with
the parameters moved there, only for the gradient of constraints that have a weight. One
minibatch serves ``UPDATES_PER_BATCH`` updates in a row: after the first, z depends on
B, and the estimates have a bias that grows with ``z - x`` and the curvature of
``c_B - c``.

Models in training mode, and parameters of few bits, give an example another value in
another batch. Then nothing is remembered: every update draws a minibatch and evaluates
it at z and at x. A constraint with so few examples that all of them cost no more
(``plan.at_once``) is evaluated on all data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from oneproj.oracles.anchor import Anchor
from oneproj.oracles.base import AbstractOracle
from oneproj.problem.autograd import accumulate
from oneproj.problem.terms import AbstractTerm
from oneproj.vectors.arithmetic import Vector

UPDATES_PER_BATCH = 3
"""Updates in a row that use one minibatch. On NASA, credit and ClimSim abstention, 8
seeds each, 3 took 0.85 to 0.92 of the time of 1. Objectives differed by 0.6 percent,
less than between seeds; those near zero by 1e-4."""


@dataclass
class AnchoredBatch:
    """A minibatch B of a constraint, with what is known of it at the anchor x.

    Attributes:
        indices: Its examples; None for all.
        value: ``c_B(x)``.
        correction: ``grad c(x) - grad c_B(x)``; None until the constraint has a weight.
        uses: The number of updates that have used it.
        graph: ``c_B(x)`` with its graph, where the anchor remembers no values of
            examples. Such a minibatch is used once.
    """

    indices: Tensor | None
    value: float
    correction: list[Tensor] | None = None
    uses: int = 1
    graph: Tensor | None = None


class Anchored(AbstractOracle):
    """Constraints on minibatches, with the anchor as control variate.

    ``anchor()`` takes an anchor at the parameters; a method with a proximal centre
    calls it there. For other methods a new one is taken every ``renew_every`` updates.
    """

    name = "anchored"
    uses_anchors = True
    _age = 0
    """Updates since the anchor was taken."""
    _batches: Mapping[str, AnchoredBatch] = MappingProxyType({})
    """The minibatches in use, by constraint."""

    def anchor(self) -> Anchor:
        """Take an anchor at the parameters, and use it from now on."""
        self._anchor, self._age, self._batches = super().anchor(), 0, {}
        return self._anchor

    def state_dict(self) -> dict[str, Any]:
        """Return the anchor in use, its age, and the minibatches in use."""
        anchor = None if self._anchor is None else self._anchor.state_dict()
        batches = {name: dict(vars(batch)) for name, batch in self._batches.items()}
        parts = {"anchor": anchor, "age": self._age, "batches": batches}
        return super().state_dict() | parts

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        super().load_state_dict(state)
        anchor, device = state["anchor"], self.problem.parameters[0].device
        self._anchor = None if anchor is None else Anchor.of_state(anchor, device)
        self._age = state["age"]
        self._batches = {
            n: AnchoredBatch(**batch) for n, batch in state["batches"].items()
        }

    def add_penalty(self) -> dict[str, float]:
        """Add a stochastic gradient of p(c), corrected by the anchor."""
        if self._penalty is None:
            return {}
        every = math.inf if self._renew_every is None else self._renew_every
        if self._anchor is None or self._age >= every:
            self.anchor()
        self._age += 1
        try:
            return super().add_penalty()
        finally:  # graphs take memory
            batches = self._batches.items()
            self._batches = {name: b for name, b in batches if b.graph is None}

    def _estimates(self) -> dict[str, tuple[float, Tensor | None]]:
        known = self._known
        if self._age == 1 and self._is_at(known.point):
            # The minibatch would cancel: the anchor's values are the estimates.
            return {name: (value, None) for name, value in known.values.items()}
        constraints = self.problem.constraints.values()
        large = [c for c in constraints if not self._is_small(c)]
        self._batches = {c.name: self._minibatch(c) for c in large}
        return super()._estimates()

    def _minibatch(self, constraint: AbstractTerm) -> AnchoredBatch:
        """Return the minibatch to use in this update."""
        batch = self._batches.get(constraint.name)
        if batch is not None and batch.uses < UPDATES_PER_BATCH:
            batch.uses += 1
            return batch
        drawn, each = self._known.draw(constraint, self.batch_size, self.generator)
        if drawn is not None and each is not None:
            return AnchoredBatch(drawn, each.mean().item())
        with self._at_anchor():
            value, graph = self.evaluate_batch(constraint, drawn)
        return AnchoredBatch(drawn, value, graph=graph)

    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """Return ``c_B(z) - c_B(x) + c(x)``, or the value on all of small data."""
        batch = self._batches.get(constraint.name)
        if batch is None:
            return self.evaluate_all(constraint)
        here, graph = self.evaluate_batch(constraint, batch.indices)
        return here - batch.value + self._known.values[constraint.name], graph

    def _add_gradients(
        self, pushing: Sequence[tuple[AbstractTerm, float, Tensor | None]]
    ) -> None:
        super()._add_gradients(pushing)
        for c, w, graph in pushing:
            if c.name in self._batches and graph is not None:
                self._add(self._correction(c), w)

    def _correction(self, constraint: AbstractTerm) -> Vector:
        """Return ``grad c(x) - grad c_B(x)``, computed once per minibatch."""
        batch = self._batches[constraint.name]
        if batch.correction is None:
            self.counts.constraint_gradients += 1
            found = [row.clone() for row in self._known.jacobian[constraint.name]]
            with self._at_anchor():
                graph = batch.graph
                if graph is None:
                    graph = self.evaluate_batch(constraint, batch.indices)[1]
                accumulate(found, -graph, self.problem.parameters)
            batch.correction = found
        return batch.correction

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        return self._known.jacobian[constraint.name]

    def _is_at(self, point: Vector) -> bool:
        pairs = zip(self.problem.parameters, point, strict=True)
        return all(torch.equal(p, there) for p, there in pairs)

    @property
    def _known(self) -> Anchor:
        """The anchor in use; ``add_penalty`` takes the first."""
        return self._anchor or self.anchor()

    @contextmanager
    def _at_anchor(self) -> Iterator[None]:
        """Move the parameters to the anchor's point within this context.

        Their storage is exchanged for that of the point: nothing is copied, and a graph
        that was built there can be backpropagated through in a later visit.
        """
        parameters: Vector = self.problem.parameters
        here = [p.data for p in parameters]
        try:
            for p, there in zip(parameters, self._known.point, strict=True):
                p.data = there
            yield
        finally:
            for p, kept in zip(parameters, here, strict=True):
                p.data = kept
