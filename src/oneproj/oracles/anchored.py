"""``"anchored"``: minibatches, corrected by what is known at the proximal centre.

With x the anchor, at which c(x) and its gradient were seen on all data (the gradient on
``SLOPES`` of more), and B a fresh minibatch, the constraint at z is estimated by

    ``c_B(z) - c_B(x) + c(x)``,

and its gradient by the same combination. Both are unbiased, as c_B is. Their variance
is that of ``c_B(z) - c_B(x)``, at most ``L^2 |z - x|^2 / |B|`` for losses that are
L-Lipschitz: it vanishes at the anchor, near which the proximal term keeps z. So a hinge
of it is nearly a hinge of c, where a hinge of c_B alone is biased upwards.

More than ``SLOPES`` examples are all seen at every fourth anchor only, and more rarely
where that is costly. At the anchors between, c(x) is the value at the last such anchor,
y, plus the mean change since then of the examples S of the gradient: unbiased, with a
variance of ``L^2 |x - y|^2 / |S|`` at most. Minibatches are then of S. If all is never
seen, c(x) is the mean over S.

At x itself the minibatch would cancel, so none is looked at there. Elsewhere the anchor
remembers ``c_B(x)``, example by example, and where it saw a sample only, minibatches
are of that. A second look at the minibatch, with the parameters back at x, is then for
constraints that push only, whose gradient it takes. Models that train, and parameters
of few bits, are looked at twice in any case.
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
from oneproj.parameters import Vector
from oneproj.terms.base import AbstractTerm


class Anchored(AbstractOracle):
    """Every constraint on a fresh minibatch, with the anchor as control variate.

    ``anchor()`` renews the anchor where the parameters are; a method with a proximal
    centre calls it there. For the others the anchor renews itself every
    ``renew_every`` updates.
    """

    _age = 0
    _remembers = True
    _there: dict[str, tuple[float, Tensor | None]]
    """``c_B(x)`` of the minibatches of this update, and what carries its gradient; None
    if that is to be made."""

    def anchor(self) -> Anchor:
        """Make the present point the anchor."""
        self._anchor, self._age = super().anchor(), 0
        return self._anchor

    def state_dict(self) -> dict[str, Any]:
        """The anchor in force, and how old it is."""
        anchor = None if self._anchor is None else self._anchor.state_dict()
        return super().state_dict() | {"anchor": anchor, "age": self._age}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        super().load_state_dict(state)
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
        residuals = super().add_penalty()
        self._there = {}  # graphs are large
        return residuals

    def _see_constraints(self) -> dict[str, tuple[float, Tensor | None]]:
        known, self._there = self._known, {}
        if self._age == 1 and self._is_at(known.point):
            # A minibatch would cancel itself: what is known is the estimate.
            return {name: (value, None) for name, value in known.values.items()}
        forgotten = []
        for constraint in self._sampled:
            drawn, each = known.draw(constraint, self._batch_size, self._generator)
            self._drawn[constraint.name] = drawn
            if each is None:
                forgotten.append(constraint)
            else:
                self._there[constraint.name] = each.mean().item(), None
        if forgotten:
            with self._at_anchor():
                self._there |= {c.name: self._on_batch(c) for c in forgotten}
        return super()._see_constraints()

    def _see(self, constraint: AbstractTerm) -> tuple[float, Tensor | None]:
        name = constraint.name
        if name not in self._there:  # it has no data
            return self._sample(constraint)
        here, carrier = self._on_batch(constraint)
        return here - self._there[name][0] + self._known.values[name], carrier

    def _add_gradients(
        self,
        weighted: Sequence[tuple[AbstractTerm, float]],
        seen: Mapping[str, tuple[float, Tensor | None]],
    ) -> None:
        super()._add_gradients(weighted, seen)
        sampled = [(c, w) for c, w in weighted if c.name in self._there]
        if sampled:
            self._counts.constraint_gradients += len(sampled)
            with self._at_anchor():
                self._descend([(self._carrier(c), -w) for c, w in sampled])
            for c, w in sampled:
                self._add(self._known.jacobian[c.name], w)

    def _carrier(self, constraint: AbstractTerm) -> Tensor:
        """What carries the gradient of ``c_B(x)``; the parameters are at x."""
        carrier = self._there[constraint.name][1]
        return self._on_batch(constraint)[1] if carrier is None else carrier

    def _full_gradient(self, constraint: AbstractTerm) -> Vector:
        return self._known.jacobian[constraint.name]

    def _is_at(self, point: Vector) -> bool:
        pairs = zip(self._problem.parameters, point, strict=True)
        return all(torch.equal(p, there) for p, there in pairs)

    @property
    def _known(self) -> Anchor:
        """The anchor in force, which ``add_penalty`` sees to."""
        return self._anchor or self.anchor()

    @contextmanager
    def _at_anchor(self) -> Iterator[None]:
        """Let the parameters be at the anchor's point for a while.

        They exchange their memory for that of the point: nothing is copied, and a graph
        that was made there can be gone back through on a second visit.
        """
        parameters: Vector = self._problem.parameters
        here = [p.data for p in parameters]
        try:
            for p, there in zip(parameters, self._known.point, strict=True):
                p.data = there
            yield
        finally:
            for p, own in zip(parameters, here, strict=True):
                p.data = own
