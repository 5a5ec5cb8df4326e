"""``strength="auto"``: penalties that find their own strengths.

A hinge ``lam_j [c_j]_+`` is exact where ``lam_j`` exceeds the multiplier of ``c_j``.
The stronger it is beyond that, the more it slows the objective down. At a solution

    ``grad f + sum_j mu_j grad c_j = 0``,  ``mu >= 0``,

so at every anchor the multipliers are estimated by nonnegative least squares from the
mean of the objective gradients since the last anchor and the constraints' gradients at
this one. A strength is ``strength_over_multiplier`` times the estimate. A penalty that
is too weak balances the objective where the constraint is violated; the estimate there
is the strength itself, which so doubles from anchor to anchor until it is enough.

**Patience.** One gradient says too little of a constraint with kinks, such as a maximum
or a spectral norm: it shows one piece, and balancing it takes less than the whole. So a
constraint that is violated at ``patience`` anchors in a row without improving gets a
least strength, which doubles until the constraint improves, and halves at every anchor
that satisfies it.

**Limit.** A gradient that is nearly zero, as that of a rate with saturated sigmoids,
asks for a strength without limit. No push is planned beyond ``push_limit`` times the
objective's gradient. Where a bound is more than ``far_moves`` moves away for its
gradient, the updates until the next anchor may meet a steeper slope: the same limit
holds for each of their pushes (``most_push``), and the strength does not decay.

**Rounding.** A sharp hinge pushes fully on one side of the bound and not at all on the
other. Adam takes that for noise and shortens its steps along the bound as well. A hinge
that is rounded over ``hinge_width`` of what its constraint changes by between two
anchors, with twice the multiplier as strength, balances the objective at the bound
itself. The width is at most the largest residual or slack that any anchor saw, and
falls with the steps: what is left at the end is the exact penalty.

All estimates scale with the objective and the constraints: no unit is built in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oneproj.defaults import Defaults
from oneproj.oracles.anchor import Anchor
from oneproj.oracles.penalties import Hinges
from oneproj.schema import Resumable
from oneproj.vectors.arithmetic import Vector, distance, norm
from oneproj.vectors.qp import estimate_multipliers, gram

LARGEST = 1e30
"""No strength is larger: float32 ends at 3e38."""
UNSEEN = 1e-8
"""Norm of a push that Adam does not see: it adds as much to every gradient's size."""


@contextmanager
def limited_push(parameters: Vector, most: float) -> Iterator[None]:
    """Shorten what a block adds to ``.grad`` to a length of ``most``.

    Example:
        >>> w = torch.zeros(2, requires_grad=True)
        >>> w.grad = torch.tensor([1.0, 0.0])
        >>> with limited_push([w], 5.0):
        ...     w.grad += torch.tensor([3e6, 4e6])
        >>> w.grad.tolist()
        [4.0, 4.0]
    """
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    yield
    pairs = [
        (p.grad, torch.zeros_like(p.grad) if b is None else b)
        for p, b in zip(parameters, before, strict=True)
        if p.grad is not None
    ]
    totals, objective = [total for total, _ in pairs], [b for _, b in pairs]
    push = list(torch._foreach_sub(totals, objective)) if totals else []
    length = norm(push)
    if length > most:
        torch._foreach_copy_(totals, objective)
        torch._foreach_add_(totals, push, alpha=most / length)


class Patience(Resumable):
    """Least strengths of constraints that stay violated and do not improve.

    Example:
        >>> patience = Patience(Defaults())
        >>> climbing = [0.1 * k for k in range(1, 9)]
        >>> [patience.floor("norm", c, alone=3.0, present=0.1) for c in climbing]
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 6.0]
        >>> patience.floor("norm", -0.1, alone=3.0, present=6.0)
        3.0
    """

    STATE = ("_residuals", "_floors", "_most")

    def __init__(self, defaults: Defaults) -> None:
        """Begin without residuals."""
        self._defaults = defaults
        self._residuals: dict[str, list[float]] = {}
        self._floors: dict[str, float] = {}
        self._most: dict[str, float] = {}  # the largest ``alone`` so far

    def floor(self, name: str, c: float, *, alone: float, present: float) -> float:
        """Return the least strength of a constraint until the next anchor.

        Args:
            name: Of the constraint.
            c: Its residual at this anchor.
            alone: The strength with which it would balance the objective alone.
            present: Its strength until now.
        """
        anchors = self._defaults.patience
        recent = self._residuals[name] = [*self._residuals.get(name, []), c][-anchors:]
        most = max(self._most.get(name, 0.0), alone)
        floor = self._floors.get(name, 0.0)
        stuck = len(recent) == anchors and min(recent) > 0
        if c <= 0:
            floor /= 2.0
        elif stuck and c >= self._defaults.patience_fall * max(recent):
            raised = max(alone, 2.0 * max(floor, present))
            floor = max(floor, min(raised, self._defaults.push_limit * most))
        self._floors[name], self._most[name] = floor, most
        return floor

    def limit(self, name: str, most: float) -> None:
        """Lower a least strength; on a plateau any strength seems too weak."""
        self._floors[name] = min(self._floors.get(name, 0.0), most)
        self._most[name] = min(self._most.get(name, 0.0), most)


class _Forces(NamedTuple):
    """What an anchor says of the objective and of what could balance it."""

    pull: float
    """The norm of the objective's mean gradient."""
    steepness: dict[str, float]
    """The norm of each constraint's gradient."""
    multipliers: dict[str, float]
    """The estimates, of the constraints that are within reach."""


class AutoStrength(Resumable):
    """Estimates multipliers and keeps a hinge per constraint safely above them.

    Args:
        defaults: The numbers of the rules above.

    Example:
        >>> strength = AutoStrength(Defaults())
        >>> strength.watch([torch.tensor([-6.0])])       # f falls at rate 6
        >>> anchor = Anchor([], {"cap": 0.1}, {"cap": [torch.tensor([2.0])]})
        >>> strength.adapt(anchor).strengths
        (6.0,)
    """

    STATE = (
        *("_sum", "_count", "_last", "_longest", "most_push"),
        *("_strengths", "_widths", "_largest", "_patience"),
    )

    def __init__(self, defaults: Defaults) -> None:
        """Begin without gradients."""
        self._defaults = defaults
        self._sum: list[Tensor] | None = None
        self._count = 0
        self._last: list[Tensor] | None = None  # the point of the last anchor
        self._strengths: dict[str, float] = {}
        self._widths: dict[str, float] = {}
        self._largest: dict[str, float] = {}  # |c_j| at any anchor
        self._longest = 0.0  # the longest move between two anchors
        self.most_push: float | None = None
        """Longest push of the penalty until the next anchor; None for any length."""
        self._patience = Patience(defaults)

    @property
    def has_seen(self) -> bool:
        """Whether an objective gradient was seen since the last anchor."""
        return self._sum is not None

    def watch(
        self,
        gradient: Vector,
        *,
        scale: float = 1.0,
        less: Sequence[tuple[float, Vector]] = (),
    ) -> None:
        """Add an objective gradient to the mean.

        Args:
            gradient: It, or what holds it.
            scale: By which it is multiplied.
            less: Vectors, with weights, that are then subtracted.
        """
        self._count += 1
        if self._sum is None:
            self._sum = [torch.zeros_like(part) for part in gradient]
        torch._foreach_add_(self._sum, [g.detach() for g in gradient], alpha=scale)
        for weight, vector in less:
            torch._foreach_add_(self._sum, list(vector), alpha=-weight)

    def adapt(self, anchor: Anchor) -> Hinges:
        """Return the penalty until the next anchor, and begin a new mean."""
        if self._sum is None:
            message = "adapt() was called before any objective gradient was seen."
            raise ValueError(message)
        defaults = self._defaults
        moved = 0.0 if self._last is None else distance(anchor.point, self._last)
        self._longest = max(self._longest, moved)
        forces = _forces(self._sum, self._count, anchor, moved)
        push = max(defaults.push_limit * forces.pull, defaults.least_push)
        self.most_push = None
        for name, L in forces.steepness.items():
            c = anchor.values[name]
            far = c > defaults.far_moves * self._longest * L
            if far:
                self.most_push = push
            strength = self._strength(name, c, forces, far=far)
            self._strengths[name] = self._limit(name, strength, forces, push)
            self._largest[name] = max(abs(c), self._largest.get(name, 0.0))
            width = defaults.hinge_width * moved * L
            self._widths[name] = min(width, self._largest[name])
        self._sum, self._count, self._last = None, 0, anchor.point
        return self.penalty

    @property
    def penalty(self) -> Hinges:
        """The penalty until the next anchor."""
        return Hinges(tuple(self._strengths.values()), tuple(self._widths.values()))

    def _limit(self, name: str, strength: float, forces: _Forces, push: float) -> float:
        """Lower a strength whose push would be longer than that."""
        L = forces.steepness[name]
        if forces.pull == 0 or L == 0:  # nothing says what is too much
            return strength
        most = min(push / L, LARGEST)
        self._patience.limit(name, most)
        return min(strength, most)

    def _strength(self, name: str, c: float, forces: _Forces, *, far: bool) -> float:
        """The strength of a constraint with the residual c."""
        L, defaults = forces.steepness[name], self._defaults
        present = self._strengths.get(name, 0.0)
        alone = forces.pull / L if L > 0 else 0.0
        floor = self._patience.floor(name, c, alone=alone, present=present)
        found = defaults.strength_over_multiplier * forces.multipliers.get(name, 0.0)
        least = defaults.strength_floor * alone if name in forces.multipliers else 0.0
        kept = present if far else defaults.strength_decay * present
        strength = max(found, kept, least, floor)
        # Where f is stationary nothing says how strong: any push that is seen will do.
        return max(strength, 1.0) if c > 0 and strength * L < UNSEEN else strength


def _forces(total: Vector, count: int, anchor: Anchor, moved: float) -> _Forces:
    """Estimate multipliers from a sum of objective gradients and an anchor.

    Only constraints that are violated, or would be after a move as long as the last,
    get an estimate: the flatter another one is, the larger its multiplier would seem.
    """
    G = gram([total, *anchor.jacobian.values()])
    index = {name: j for j, name in enumerate(anchor.jacobian, start=1)}
    steepness = {name: math.sqrt(G[j, j]) for name, j in index.items()}
    names = [
        name
        for name, L in steepness.items()
        if anchor.values[name] > 0 or anchor.values[name] + moved * L > 0
    ]
    near = [0, *(index[name] for name in names)]
    mu = estimate_multipliers(G[np.ix_(near, near)]) / count  # of the mean gradient
    estimates = dict(zip(names, mu.tolist(), strict=True))
    return _Forces(math.sqrt(G[0, 0]) / count, steepness, estimates)
