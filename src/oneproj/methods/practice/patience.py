"""Where patience with a violated constraint ends: a floor under its strength.

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
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from oneproj.schema import AbstractSchema, Fields, Items, Named, Number

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
