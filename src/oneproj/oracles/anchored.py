"""``"anchored"``: minibatches whose values are corrected at the proximal centre.

Let x be the anchor, where c(x) was evaluated on all data, and B a new minibatch. At z
the value of the constraint is estimated by

    ``c_B(z) - c_B(x) + c(x)``,

a control variate. It is unbiased, as c_B is, and for losses that are L-Lipschitz its
variance is at most ``L^2 |z - x|^2 / |B|``: it vanishes at the anchor, and the proximal
term keeps z near. So the hinge of the estimate is nearly the hinge of c, where the
hinge of c_B alone is biased upwards. The gradient is that of ``c_B`` at z, unbiased as
it is: correcting it as well, as SVRG does (Johnson and Zhang, 2013), took a third more
gradients and an exchange of parameters, and was worth nothing but on sparse embeddings
with small minibatches (``benchmarks/NOTES.md``).

Larger data. More than ``GRADIENT_EXAMPLES`` examples are evaluated at every fourth
anchor. Where that is too costly, a random sample stands for them, and is drawn again
after ``ANCHORS_PER_REFERENCE`` anchors. In between, c(x) is the value at the last such
anchor, y, plus the mean change since then of the examples S of the gradient: unbiased,
with a variance of at most ``L^2 |x - y|^2 / |S|``, and that of the sample's mean if
there is one. Minibatches are then drawn from S.

Cost. ``c_B(x)`` is the mean of values that the anchor remembers, so a minibatch is
evaluated once. At x itself the two terms of B cancel and none is evaluated. Models in
training mode, and parameters of few bits, give an example another value in another
batch: then nothing is remembered, and the value is that of the minibatch alone. A
constraint with so few examples that all of them cost no more (``plan.at_once``) is
evaluated on all data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oneproj.oracles.anchor import Anchor
from oneproj.oracles.base import AbstractOracle
from oneproj.problem.terms import AbstractTerm
from oneproj.vectors.arithmetic import Vector


class Anchored(AbstractOracle):
    """Constraints on minibatches, with the anchor as control variate of their values.

    ``anchor()`` takes an anchor at the parameters; a method with a proximal centre
    calls it there. For other methods a new one is taken every ``renew_every`` updates.
    """

    name = "anchored"
    uses_anchors = True
    _age = 0
    """Updates since the anchor was taken."""

    def anchor(self) -> Anchor:
        """Take an anchor at the parameters, and use it from now on."""
        self._anchor, self._age = super().anchor(), 0
        return self._anchor

    def state_dict(self) -> dict[str, Any]:
        """Return the anchor in use, and its age."""
        anchor = None if self._anchor is None else self._anchor.state_dict()
        return super().state_dict() | {"anchor": anchor, "age": self._age}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        super().load_state_dict(state)
        anchor, device = state["anchor"], self.problem.parameters[0].device
        self._anchor = None if anchor is None else Anchor.of_state(anchor, device)
        self._age = state["age"]

    def add_penalty(self) -> dict[str, float]:
        """Add a stochastic gradient of p(c), with weights at the corrected values."""
        if self._penalty is None:
            return {}
        every = math.inf if self._renew_every is None else self._renew_every
        if self._anchor is None or self._age >= every:
            self.anchor()
        self._age += 1
        return super().add_penalty()

    def _estimates(self) -> dict[str, tuple[float, Tensor | None]]:
        known = self.known
        if self._age == 1 and self._is_at(known.point):
            # The minibatch would cancel: the anchor's values are the estimates.
            return {name: (value, None) for name, value in known.values.items()}
        return super()._estimates()

    def estimate(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        """Return ``c_B(z) - c_B(x) + c(x)``, or the value on all of small data."""
        if self._is_small(constraint):
            return self.evaluate_all(constraint)
        known = self.known
        drawn, each = known.draw(constraint, self.batch_size, self.generator)
        here, graph = self.evaluate_batch(constraint, drawn)
        if each is None:
            return here, graph
        return here - each.mean().item() + known.values[constraint.name], graph

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        return self.known.jacobian[constraint.name]

    def _is_at(self, point: Vector) -> bool:
        pairs = zip(self.problem.parameters, point, strict=True)
        return all(torch.equal(p, there) for p, there in pairs)

    @property
    def known(self) -> Anchor:
        """The anchor in use; it is taken here if there is none yet."""
        return self._anchor or self.anchor()
