"""Whether a run ended on its way, because its steps were too short for the distance.

A step of Adam changes a parameter by about lr at most, whatever the gradient. So after
N updates none has moved by more than ``sum_k lr_k``: 500 updates of 0.1 with a decay do
not reach an intercept of 100, that of a target which was not standardised. What they
return is feasible, and useless.

A parameter that went ``FAR`` of that sum was pulled in one direction all the time. If
the objective is not nearly gone by then, as it would be for data that can be separated,
the run was on its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneproj.errors import warn
from oneproj.oracles.anchor import on_devices
from oneproj.parameters import Vector, difference, snapshot

FAR = 0.6
"""Of ``sum_k lr_k``. One direction all the time makes 0.7, as a centre trails the inner
iterates; of runs that arrived, those were seen to make 0.4 that only just did."""
GONE = 0.1
"""Of the objective at the start: less is nearly nothing."""
TRIAL = 100
"""Updates. Who plans fewer wants to see whether something runs, not where it ends."""


class Travel:
    """Adds up step sizes, and remembers where and how high the run began.

    Args:
        point: The parameters at the start.
        steps: Updates that are planned.
        window: Updates whose mean objective stands for start and end.

    Example:
        >>> import torch
        >>> w = torch.zeros(2)
        >>> travel = Travel([w], steps=100, window=10)
        >>> for k in range(100):
        ...     w[0] += 0.1
        ...     travel.watch((20.0 - w[0].item()) ** 2, lr=0.1)
        >>> travel.is_under_way([w]), travel.is_under_way([0.5 * w])
        (True, False)
    """

    def __init__(self, point: Vector, *, steps: int, window: int) -> None:
        """Nothing has moved yet."""
        self._start = snapshot(point)
        self._steps, self._window = steps, window
        self._done, self._reach = 0, 0.0
        self._first, self._last = 0.0, 0.0

    def watch(self, objective: float, lr: float) -> None:
        """Note the objective that an update saw, and the size of its step."""
        if self._done < self._window:
            self._first += objective
        if self._done >= self._steps - self._window:
            self._last += objective
        self._done, self._reach = self._done + 1, self._reach + lr

    def is_under_way(self, point: Vector) -> bool:
        """Whether all planned updates were too few to get to where they went."""
        nearly_gone = abs(self._last) <= GONE * abs(self._first)
        if self._done < max(self._steps, TRIAL) or nearly_gone:
            return False
        parts = [part for part in difference(point, self._start) if part.numel()]
        moved = max((part.abs().max().item() for part in parts), default=0.0)
        return moved > FAR * self._reach > 0

    def warn_if_under_way(self, point: Vector) -> None:
        """Say so, and what helps."""
        if self.is_under_way(point):
            message = (
                f"The run may have ended on its way: some parameter moved by most of "
                f"{self._reach:.3g}, the sum of all step sizes and so the farthest "
                "that Adam can go, and the objective was not nearly gone. The answer "
                "depends on the start. Standardise features and targets, or give a "
                "larger lr or more steps, or, for a small model, take "
                'method="auto"; if the objective has no minimum, as a sum of logits '
                "has none, bound it by radius= or a constraint."
            )
            warn(message)

    def state_dict(self) -> dict[str, Any]:
        """Where the run began, and what was added up."""
        return {
            "start": self._start,
            "done": self._done,
            "reach": self._reach,
            "first": self._first,
            "last": self._last,
        }

    def load_state_dict(self, state: Mapping[str, Any], like: Vector) -> None:
        """Go on from such a state."""
        self._start = on_devices(state["start"], like)
        self._done, self._reach = state["done"], state["reach"]
        self._first, self._last = state["first"], state["last"]
