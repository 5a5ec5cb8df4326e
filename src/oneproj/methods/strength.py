"""A limit to what is added to a gradient.

Multipliers: the constraint gradients' share in balancing the objective's.

``argmin_{mu >= 0} |v + sum_j mu_j grad c_j|`` is a quadratic program in the inner
products of these vectors, which are formed here, and solved.

Where patience with a violated constraint ends: a floor under its strength.

One gradient says too little of a constraint with kinks. At an anchor the largest of
many values, a matrix norm or the worst group's risk, has the gradient of one of them;
the multiplier that it yields is that one's share of what all of them need. A penalty of
that strength loses, and the residual climbs while the estimates shrink.

So what counts in the end is whether the residual falls. One that is positive at
``ANCHORS`` anchors in a row, and at the last of them about as large as ever among them,
gets a floor: the strength that would balance the whole objective alone, or twice the
present one, up to ``MOST`` times the largest that would. Every anchor at which the
constraint is met halves its floor. Elsewhere the estimates have the say.

Far outside there is less time. A start that minimises the objective has next to no
gradient, whatever the bound will cost; strengths that are taken from it do not move a
base step at all, or grow behind an objective whose slope grows faster. So where a bound
is more than ``MOVES`` moves away and its residual did not fall by a quarter in the last
two, the floor is ``OVER`` times what would balance the objective alone, and at least a
strength whose push is ``FELT``, which has to do with no gradient of the objective.

``strength="auto"``: penalties that find their own strengths.

A hinge ``lam_j [c_j]_+`` is exact where ``lam_j`` exceeds the multiplier of ``c_j``,
and the stronger it is beyond that, the more it slows the objective down. At a solution

    ``grad f + sum_j mu_j grad c_j = 0``,  ``mu >= 0``,

so at every anchor the multipliers are estimated by nonnegative least squares from what
is at hand: the mean of the objective gradients since the last anchor, and the gradients
of the constraints at this one. A penalty that is too weak balances the objective where
the constraint is violated; the estimate there is the strength itself, which therefore
grows by ``SAFETY`` from anchor to anchor until it is enough. Where it does not, because
a gradient shows one piece of a constraint with kinks, ``patience`` ends.

A gradient that is nearly zero, as that of a rate whose sigmoids are saturated, asks for
a strength without limit, and so do many gradients that cancel each other. The next
steps meet the slope again, and a push of a thousand times the objective's stays in the
memory of a base step for hundreds of updates. So no push is planned that is more than
``MOST`` times what the objective pulls with, both as large as they were of late. And
where a bound is far away for its gradient, which may then be that of a plateau, no push
is larger either that the updates until the next anchor meet (``most_push``).

The hinges are rounded. A sharp one pushes with all of its strength on one side of the
bound and not at all on the other, so that iterates that follow the bound are pushed to
and fro: base steps with a memory, such as Adam's, take that for noise and shorten their
steps *along* the bound as well. Rounded over ``ROUNDED`` of what a constraint changes
by between two anchors, a strength of ``SAFETY = 2`` times the multiplier balances the
objective at the bound, from update to update. As the steps decay the width does, and
what is left is the exact penalty. In many dimensions a move is nearly orthogonal to a
gradient, and the product of their lengths says little of the change. So no hinge is
wider than the largest residual, or slack, that any anchor saw: one that is pushes with
half of its strength wherever it is, and holds nothing.

The estimates scale as the objective and the constraints do, so no unit is built in.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from oneproj.oracles.anchor import Anchor
from oneproj.oracles.penalties import Hinges
from oneproj.schema import (
    AbstractSchema,
    EmptyOr,
    Fields,
    Integer,
    Items,
    Maybe,
    Named,
    Number,
)
from oneproj.tensor_schema import vector_like
from oneproj.vectors.arithmetic import SMALL, Array, Vector, distance, norm, on_devices
from oneproj.vectors.qp import solve_nonnegative_qp


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
    reached = [(p.grad, b) for p, b in zip(parameters, before, strict=True)]
    slopes = [slope for slope, _ in reached if slope is not None]
    own = [
        torch.zeros_like(slope) if b is None else b
        for slope, b in reached
        if slope is not None
    ]
    push = list(torch._foreach_sub(slopes, own)) if slopes else []
    length = norm(push)
    if length > most:
        torch._foreach_copy_(slopes, own)
        torch._foreach_add_(slopes, push, alpha=most / length)


PARALLEL = 1e-6
"""Two gradients whose angle has a smaller squared sine are left to the general solver.
"""


@torch.no_grad()
def gram(vectors: Sequence[Vector]) -> Array:
    """All inner products, formed and added up in float64.

    Example:
        >>> gram([[torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 0.0])]]).tolist()
        [[5.0, 3.0], [3.0, 9.0]]
    """
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device="cpu")
    for pieces in zip(*(_pieces(vector) for vector in vectors), strict=True):
        rows = torch.stack([piece.double() for piece in pieces])
        total += (rows @ rows.T).cpu()
    G: Array = total.numpy()
    return G


def _pieces(vector: Vector) -> list[Tensor]:
    """The same numbers in few flat tensors, small enough to be copied one by one."""
    flat = [part.reshape(-1) for part in vector]
    large = [part for part in flat if part.numel() > SMALL]
    small = [part for part in flat if part.numel() <= SMALL]
    blocks = [block for part in large for block in torch.split(part, SMALL)]
    devices = dict.fromkeys(part.device for part in small)
    joined = [torch.cat([t for t in small if t.device == on]) for on in devices]
    return joined + blocks


def least_residual(P: list[list[float]], w: list[float]) -> list[float]:
    """``argmin_{mu >= 0} mu'P mu / 2 + w'mu``, in plain numbers where mu has few.

    Example:
        >>> least_residual([[2.0]], [-6.0])
        [3.0]
    """
    m = len(w)
    if m == 1:
        return [_alone(P[0][0], w[0])]
    if m == 2:  # noqa: PLR2004 - two numbers
        (a, b), (_, d) = P
        if a * d - b * b > PARALLEL * a * d:
            return _pair(a, b, d, *w)
    found = solve_nonnegative_qp(np.array(P).reshape(m, m), np.array(w))
    mu: list[float] = found.z.tolist()
    return mu


def _alone(a: float, w: float) -> float:
    """``argmin_{x >= 0} a x^2 / 2 + w x``; 0 where nothing is curved."""
    return max(0.0, -w / a) if a > 0 else 0.0


def _pair(a: float, b: float, d: float, v: float, w: float) -> list[float]:
    """The same for two: in the interior, or else on the better of the two axes."""
    x, y, det = b * w - d * v, b * v - a * w, a * d - b * b
    if min(x, y) >= 0:
        return [x / det, y / det]
    x, y = _alone(a, v), _alone(d, w)
    return [x, 0.0] if v * x <= w * y else [0.0, y]


ANCHORS = 7
"""In a row. Fewer would take the first moves, that leave a bound and come back, for a
penalty that is too weak."""
AS_LARGE = 0.9
"""The share of the largest residual above which the last has not fallen."""
MOST = 32.0
"""The largest floor. n pieces of a maximum with orthogonal gradients need up to sqrt(n)
times the strength that balances the objective with one of them."""
MOVES = 3.0
"""Of the longest length between two anchors. A bound that is nearer may be met by the
next of them, and then the gradients at hand say what it costs."""
SOON, FALLEN = 3, 0.75
"""So many anchors in a row, and the share of the first residual that is slow."""
OVER = 10.0
"""Far outside nothing is lost by a strength that is too large, and it is soon less."""
FELT = 1e-4
"""The norm of a gradient that base steps answer to: those of Adam do not if it is not
large compared with their epsilon, 1e-8."""


class Patience:
    """Remembers residuals, and raises strengths that they show to be too weak.

    Example:
        >>> patience = Patience()
        >>> climbing = [0.1 * k for k in range(1, 9)]
        >>> [patience.floor("norm", c, alone=3.0, present=0.1) for c in climbing]
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 6.0]
        >>> patience.floor("norm", -0.1, alone=3.0, present=6.0)
        3.0
    """

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: dict[str, list[float]] = {}
        self._largest: dict[str, float] = {}
        self._floors: dict[str, float] = {}

    def floor(
        self, name: str, c: float, *, alone: float, present: float, felt: float = 0.0
    ) -> float:
        """The least strength of a constraint until the next anchor.

        Args:
            name: Of the constraint.
            c: Its residual at this anchor.
            alone: The strength with which it would balance the objective alone.
            present: Its strength until now.
            felt: The strength with which it is felt, if it is far outside; else 0.
        """
        seen = [*self._seen.get(name, []), c][-ANCHORS:]
        most = max(self._largest.get(name, 0.0), alone)
        floor, recent = self._floors.get(name, 0.0), seen[-SOON:]
        slow = len(recent) == SOON and min(recent) > 0 and c > FALLEN * recent[0]
        if c <= 0:
            floor /= 2.0
        elif felt > 0 and slow:
            floor = max(floor, OVER * alone, felt)
        elif len(seen) == ANCHORS and min(seen) > 0 and c >= AS_LARGE * max(seen):
            raised = max(alone, 2.0 * max(floor, present))
            floor = max(floor, min(raised, MOST * most))
        self._seen[name], self._largest[name], self._floors[name] = seen, most, floor
        return floor

    def limit(self, name: str, most: float) -> None:
        """Forget what was asked for on a plateau, where any strength seems too weak."""
        self._floors[name] = min(self._floors.get(name, 0.0), most)
        self._largest[name] = min(self._largest.get(name, 0.0), most)

    def state_dict(self) -> dict[str, Any]:
        """What was seen of each constraint, and its floor."""
        return {
            "seen": copy.deepcopy(self._seen),
            "largest": dict(self._largest),
            "floors": dict(self._floors),
        }

    @staticmethod
    def state_schema(names: Collection[str]) -> AbstractSchema:
        """What such a state looks like, for constraints of these names."""
        size = Number(least=0.0, finite=True)
        seen = Items(Number(finite=True), least=1, most=ANCHORS)
        return Fields(
            {
                "seen": Named(seen, names),
                "largest": Named(size, names),
                "floors": Named(size, names),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self._seen = copy.deepcopy(state["seen"])
        self._largest, self._floors = dict(state["largest"]), dict(state["floors"])


SAFETY = 2.0
"""The ratio of a strength to the multiplier that it has to exceed."""
KEPT = 0.4
"""The share of a strength that is kept from one anchor to the next, at least."""
FLOOR = 0.01
"""Of the strength that would balance the objective alone: the least, near a bound. The
first strength of a violated constraint is all of it."""

ROUNDED = 0.3
"""The width of a rounded hinge, by what its constraint changes by along its gradient on
a way as long as that between the last two anchors, and no more than its values."""
FADED = 0.8
"""What is left at the next anchor of how large something was. Adam with a beta of 0.95
forgets as fast: ten updates leave 0.77 of the size of a gradient."""
HUGE = 1e30
"""No strength is larger: beyond 3e38 it is no number of float32."""


class _Forces(NamedTuple):
    """What an anchor says of the objective and of what could balance it."""

    pull: float
    """The norm of the objective's mean gradient."""
    steepness: dict[str, float]
    """The norm of each constraint's gradient."""
    multipliers: dict[str, float]
    """The estimates, of the constraints that are within reach."""


class AutoStrength:
    """Estimates multipliers and keeps a hinge per constraint safely above them.

    Example:
        >>> strength = AutoStrength()
        >>> strength.watch([torch.tensor([-6.0])])       # f falls at rate 6
        >>> anchor = Anchor([], {"cap": 0.1}, {"cap": [torch.tensor([2.0])]})
        >>> strength.adapt(anchor).strengths
        (6.0,)
    """

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._sum: list[Tensor] | None = None
        self._count = 0
        self._last: list[Tensor] | None = None
        """Where the last anchor was."""
        self._longest = 0.0
        """The most that was between two anchors."""
        self._strengths: dict[str, float] = {}
        self._widths: dict[str, float] = {}
        self._largest: dict[str, float] = {}
        """The most that a constraint was away from its bound, at any anchor."""
        self._patience = Patience()
        self.most_push: float | None = None
        """What the penalty may push with until the next anchor; None for anything."""
        self._recent: dict[str, float] = {}
        """Steepness, and the objective's pull: the maximum, of which the past fades."""

    def watch(self, gradient: Vector) -> None:
        """Add an objective gradient to the mean."""
        self._count += 1
        if self._sum is None:
            self._sum = [part.detach().clone() for part in gradient]
        else:
            torch._foreach_add_(self._sum, list(gradient))

    def adapt(self, anchor: Anchor) -> Hinges:
        """The penalty until the next anchor; the mean starts anew."""
        if self._sum is None:
            message = "adapt() was called before any objective gradient was seen."
            raise ValueError(message)
        moved = 0.0 if self._last is None else distance(anchor.point, self._last)
        self._longest = max(self._longest, moved)
        forces = _forces(self._sum, self._count, anchor, moved)
        self._strengths = {
            name: self._strength(name, anchor.values[name], forces)
            for name in anchor.jacobian
        }
        limit = self._limit(forces)
        values, longest = anchor.values, self._longest
        far = [n for n, L in forces.steepness.items() if _is_far(values[n], longest, L)]
        self.most_push = limit if far else None
        for name, L in forces.steepness.items():
            away = max(abs(anchor.values[name]), self._largest.get(name, 0.0))
            self._largest[name] = away
            self._widths[name] = min(ROUNDED * moved * L, away)
        self._sum, self._count, self._last = None, 0, anchor.point
        return self._hinges()

    def _hinges(self) -> Hinges:
        """The penalty in force."""
        return Hinges(tuple(self._strengths.values()), tuple(self._widths.values()))

    def _limit(self, forces: _Forces) -> float:
        """Lower the strengths whose push would be out of all proportion.

        Returns the largest that is not.
        """
        sizes = forces.steepness | {"objective": forces.pull}  # no constraint's name
        kept = {name: FADED * size for name, size in self._recent.items()}
        self._recent = {n: max(size, kept.get(n, 0.0)) for n, size in sizes.items()}
        pull = self._recent["objective"]
        most = max(MOST * pull, FELT)
        for name in forces.steepness:
            L = self._recent[name]
            if pull > 0 and L > 0:  # else nothing says what the proportion is
                limit = min(most / L, HUGE)
                self._strengths[name] = min(self._strengths[name], limit)
                self._patience.limit(name, limit)
        return most

    def _strength(self, name: str, c: float, forces: _Forces) -> float:
        """Safely above the estimate, and not below what else asks for more.

        That is most of the last strength, a share of what would balance the objective
        alone, and the floor where patience ends.
        """
        L, present = forces.steepness[name], self._strengths.get(name, 0.0)
        # The strength with which it would balance the whole objective alone.
        alone = forces.pull / L if L > 0 else 0.0
        near, first = name in forces.multipliers, not self._strengths
        share = 0.0 if not near else 1.0 if first else FLOOR
        far = _is_far(c, self._longest, L)
        kept = present if far else KEPT * present  # a push that fades slows down
        felt = FELT / L if far and L > 0 else 0.0
        floor = self._patience.floor(name, c, alone=alone, present=present, felt=felt)
        found = SAFETY * forces.multipliers.get(name, 0.0)
        strength = max(found, kept, share * alone, floor)
        # At a stationary point of f nothing says how strong; any push leaves it.
        return 1.0 if strength == 0 and c > 0 else strength

    def state_dict(self) -> dict[str, Any]:
        """What was seen since the last anchor, the last anchor, and the strengths."""
        return {
            "sum": None if self._sum is None else [t.clone() for t in self._sum],
            "count": self._count,
            "last": self._last,
            "longest": self._longest,
            "strengths": dict(self._strengths),
            "widths": dict(self._widths),
            "largest": dict(self._largest),
            "patience": self._patience.state_dict(),
            "recent": dict(self._recent),
            "most_push": self.most_push,
        }

    @staticmethod
    def state_schema(names: Collection[str], like: Vector) -> AbstractSchema:
        """What such a state looks like, for constraints of these names."""
        size, point = Number(least=0.0, finite=True), Maybe(vector_like(like))
        each = EmptyOr(Named(size, names, complete=True))
        sizes = EmptyOr(Named(size, [*names, "objective"], complete=True))
        return Fields(
            {
                "sum": point,
                "count": Integer(least=0),
                "last": point,
                "longest": size,
                "strengths": each,
                "widths": each,
                "largest": each,
                "patience": Patience.state_schema(names),
                "recent": sizes,
                "most_push": Maybe(Number(least=0.0)),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any], like: Vector) -> Hinges | None:
        """Go on from such a state; returns the penalty in force, None before any.

        Example:
            >>> first, second = AutoStrength(), AutoStrength()
            >>> first.watch([torch.tensor([-6.0])])
            >>> second.load_state_dict(first.state_dict(), [torch.zeros(1)]) is None
            True
            >>> anchor = Anchor([], {"cap": 0.1}, {"cap": [torch.tensor([2.0])]})
            >>> second.adapt(anchor).strengths
            (6.0,)
        """
        total, last = state["sum"], state["last"]
        self._sum = None if total is None else on_devices(total, like)
        self._last = None if last is None else on_devices(last, like)
        self._count, self._strengths = state["count"], dict(state["strengths"])
        self._longest, self._recent = state["longest"], dict(state["recent"])
        self._widths, self._largest = dict(state["widths"]), dict(state["largest"])
        self.most_push = state["most_push"]
        self._patience.load_state_dict(state["patience"])
        return self._hinges() if self._strengths else None


def _is_far(c: float, longest: float, steepness: float) -> bool:
    """Whether a bound is more than a few moves away, by the gradient at hand."""
    return c > MOVES * longest * steepness


def _forces(total: Vector, count: int, anchor: Anchor, moved: float) -> _Forces:
    """Estimate multipliers from a sum of objective gradients and an anchor."""
    G = gram([total, *anchor.jacobian.values()]).tolist()
    index = {name: j for j, name in enumerate(anchor.jacobian, start=1)}
    steepness = {name: math.sqrt(G[j][j]) for name, j in index.items()}
    names = _within_reach(anchor, steepness, moved)
    near = [index[name] for name in names]
    # Of the mean, not of the sum.
    P, w = [[G[i][j] for j in near] for i in near], [G[j][0] / count for j in near]
    estimates = dict(zip(names, least_residual(P, w), strict=True))
    return _Forces(math.sqrt(G[0][0]) / count, steepness, estimates)


def _within_reach(
    anchor: Anchor, steepness: Mapping[str, float], moved: float
) -> list[str]:
    """The constraints that are violated, or would be after a move as long as the last.

    The others say nothing of their multipliers: the flatter a constraint is, the larger
    its multiplier would seem to be.
    """
    return [
        name
        for name, L in steepness.items()
        if anchor.values[name] > 0 or anchor.values[name] + moved * L > 0
    ]
