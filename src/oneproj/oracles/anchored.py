"""``"anchored"``: minibatches, corrected by what is known at the proximal centre.

With x the anchor, at which c(x) and its gradient were seen on all data, and B a fresh
minibatch, the constraint at z is estimated by

    ``c_B(z) - c_B(x) + c(x)``,

and its gradient by the same combination. Both are unbiased, as c_B is. Their variance
is that of ``c_B(z) - c_B(x)``, at most ``L^2 |z - x|^2 / |B|`` for losses that are
L-Lipschitz: it vanishes at the anchor, near which the proximal term keeps z. So a hinge
of it is nearly a hinge of c, where a hinge of c_B alone is biased upwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from oneproj.oracles.anchor import Anchor
from oneproj.oracles.base import AbstractOracle
from oneproj.parameters import Vector, assign, snapshot
from oneproj.terms import AbstractTerm


class Anchored(AbstractOracle):
    """Every constraint on a fresh minibatch, with the anchor as control variate.

    ``anchor()`` renews the anchor where the parameters are; a method with a proximal
    centre calls it there. For the others the anchor renews itself every
    ``renew_every`` updates.
    """

    _anchor: Anchor | None = None
    _age = 0
    _there: dict[str, float]
    """``c_B(x)`` of the minibatches of this update."""

    def anchor(self) -> Anchor:
        """Make the present point the anchor."""
        self._anchor, self._age = super().anchor(), 0
        return self._anchor

    def state_dict(self) -> dict[str, Any]:
        """The anchor in force, and how old it is."""
        anchor = None if self._anchor is None else self._anchor.state_dict()
        return {"anchor": anchor, "age": self._age}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        kept, like = state["anchor"], self._problem.parameters
        self._anchor = None if kept is None else Anchor.of_state(kept, like)
        self._age = state["age"]

    def add_penalty(self) -> dict[str, float]:
        """Add a stochastic gradient of p(c), corrected by the anchor."""
        if self._penalty is None:
            return {}
        every = math.inf if self._renew_every is None else self._renew_every
        if self._anchor is None or self._age >= every:
            self.anchor()
        self._age += 1
        return super().add_penalty()

    def _see_constraints(self) -> dict[str, tuple[float, Tensor | None]]:
        sampled = [c for c in self._problem.constraints.values() if c.size is not None]
        for constraint in sampled:
            self._draw(constraint)
        with torch.no_grad(), self._at_anchor():
            self._there = {c.name: float(self._on_batch(c)) for c in sampled}
        return super()._see_constraints()

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        if constraint.size is None:
            carrier = self._sample(constraint)
            return float(carrier.detach().double()), carrier
        carrier = self._on_batch(constraint)
        here, there = float(carrier.detach()), self._there[constraint.name]
        return here - there + self._known.values[constraint.name], carrier

    def _add_gradients(
        self,
        weighted: Sequence[tuple[AbstractTerm, float]],
        seen: Mapping[str, tuple[float, Tensor | None]],
    ) -> None:
        super()._add_gradients(weighted, seen)
        sampled = [(c, w) for c, w in weighted if c.size is not None]
        if not sampled:
            return
        gradients = [p.grad for p in self._problem.parameters]
        with self._at_anchor():
            losses = torch.stack([w * self._on_batch(c) for c, w in sampled])
            there = torch.autograd.grad(
                losses.sum(), self._problem.parameters, allow_unused=True
            )
        for gradient, part in zip(gradients, there, strict=True):
            if gradient is not None and part is not None:
                gradient.sub_(part)
        for constraint, w in sampled:
            self._add(self._known.jacobian[constraint.name], w)

    @property
    def _known(self) -> Anchor:
        if self._anchor is None:  # add_penalty makes one before anything asks for it
            message = "the anchor is not there yet"
            raise AttributeError(message)
        return self._anchor

    @contextmanager
    def _at_anchor(self) -> Iterator[None]:
        """Hold the anchor's point in the parameters for a while."""
        parameters: Vector = self._problem.parameters
        here = snapshot(parameters)
        assign(parameters, self._known.point)
        try:
            yield
        finally:
            assign(parameters, here)
