"""Warnings of a run of Algorithm 1: uneven units, dead networks, and short steps.

**Features in units of very different size.** A step of Adam changes every parameter by
about lr, whatever its gradient. A feature in the thousands then moves the score a
thousand times as far as its neighbours do, and the objective rises to many times its
size. The first gradient shows such features: the gradient of a weight is proportional
to what it multiplies, so the columns of a matrix of weights have the sizes of the
features. A warning comes if one column is ``column_ratio`` times the median (of two
columns, ``pair_ratio`` times the other), if a step of lr in it alone would change the
objective by ``felt`` of its size, and if the objective then rises to ``rise`` times its
least value so far. Shorter steps for such columns do not help: the data has to be
standardised.

**A dead network.** Where no ReLU lets anything through, a network is a constant, all
but its last bias has no gradient, and the point looks stationary. A warning comes if
most parameters had a gradient at the start and hardly any at the end. Whole tensors
count: single entries may be zero where features are sparse.

**Steps too short for the distance.** After N steps of Adam no parameter has moved by
more than ``sum_k lr_k``. A parameter that went most of that distance was pulled in one
direction all the time; if the objective is not nearly zero by then, the run ended
before it arrived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import warn
from oneproj.schema import check_like
from oneproj.vectors.arithmetic import (
    Vector,
    difference,
    dimension,
    on_devices,
    snapshot,
)


@dataclass(frozen=True)
class Thresholds:
    """When a run warns. The numbers separate what was seen on benchmark problems.

    Example:
        >>> Thresholds().planned
        100
    """

    column_ratio: float = 12.0
    """Over the median column. Standardised features make 4, sparse ones 10."""
    pair_ratio: float = 144.0
    """Over the smaller of two columns: chance makes 12 in one pair of ten."""
    felt: float = 0.1
    """Change of the objective by one step in such a column, as a share of it."""
    rise: float = 2.0
    """Objective over its least value so far."""
    swing: float = 0.2
    """That rise, as a share of the first objective. Raw features make 0.2 to 1.7."""
    alive: float = 0.5
    """Least share of parameters in tensors with a gradient, at the start."""
    dead: float = 0.05
    """Largest share of them at the end."""
    moved: float = 0.6
    """Of ``sum_k lr_k``. One direction all the time makes 0.7, an arrival 0.4."""
    nearly_zero: float = 0.1
    """Of the objective at the start."""
    planned: int = 100
    """Updates: who plans fewer tries something out."""


THRESHOLDS = Thresholds()


@dataclass
class _Seen:
    """What a resumed run has to know of the updates before."""

    alive: float | None = None  # the share of parameters with a gradient: the first
    left: float = 1.0  # and the last
    least: float | None = None  # objective since uneven columns were seen
    size: float = 0.0  # of the objective then
    updates: int = 0
    reach: float = 0.0  # the sum of the step sizes
    first: float = 0.0  # objectives, added up over the first window
    last: float = 0.0  # and the last


class RunDiagnostics:
    """Collects objectives and their gradients, and warns at the end.

    Args:
        point: The parameters at the start.
        steps: Updates that are planned.
        window: Updates whose mean objective stands for start and end.
        bounded: Whether no step can move a parameter by more than its size.

    Example:
        >>> w = torch.zeros(2)
        >>> seen = RunDiagnostics([w], steps=100, window=10, bounded=True)
        >>> for k in range(100):
        ...     w[0] += 0.1
        ...     seen.add_update((20.0 - w[0].item()) ** 2, lr=0.1)
        >>> seen.is_under_way([w]), seen.is_under_way([0.5 * w])
        (True, False)
        >>> seen.add_gradient(1.0, [torch.ones(40)], lr=0.1)
        >>> seen.add_gradient(1.0, [torch.zeros(40)], lr=0.1); seen.is_dead
        True
    """

    def __init__(
        self, point: Vector, *, steps: int, window: int, bounded: bool
    ) -> None:
        """Nothing was seen yet."""
        self._start = snapshot(point) if bounded else None
        self._steps, self._window = steps, window
        self._seen = _Seen()

    def add_gradient(self, objective: float, gradient: Vector, lr: float) -> None:
        """Take the gradient of an update into account; the first shows the units."""
        seen, share = self._seen, _share_with_gradient(gradient)
        if seen.alive is None:
            seen.alive = share
            if are_uneven(objective, gradient, lr):
                seen.least, seen.size = objective, abs(objective)
        seen.left = share if objective != 0 else 1.0  # it may be zero and solved

    def add_update(self, objective: float, lr: float) -> None:
        """Take an update into account; warn once if the objective swings."""
        seen = self._seen
        if seen.updates < self._window:
            seen.first += objective
        if seen.updates >= self._steps - self._window:
            seen.last += objective
        seen.updates, seen.reach = seen.updates + 1, seen.reach + lr
        if seen.least is None:
            return
        seen.least = min(seen.least, objective)
        rise = objective - seen.least
        if (
            objective > THRESHOLDS.rise * seen.least
            and rise > THRESHOLDS.swing * seen.size
        ):
            seen.least = None
            _warn_of_units()

    def warn_at_the_end(self, point: Vector) -> None:
        """Warn of what went wrong, and say what helps."""
        if self.is_under_way(point):
            _warn_of_short_steps(self._seen.reach)
        if self.is_dead:
            _warn_of_death(self._seen.alive or 0.0, self._seen.left)

    @property
    def is_dead(self) -> bool:
        """Whether nearly all gradients have gone, and the objective has not."""
        return (
            self._seen.alive or 0.0
        ) >= THRESHOLDS.alive and self._seen.left <= THRESHOLDS.dead

    def is_under_way(self, point: Vector) -> bool:
        """Whether all planned updates were too few to get to where they went."""
        seen = self._seen
        nearly_gone = abs(seen.last) <= THRESHOLDS.nearly_zero * abs(seen.first)
        planned = seen.updates >= max(self._steps, THRESHOLDS.planned)
        if self._start is None or nearly_gone or not planned:
            return False
        parts = [part for part in difference(point, self._start) if part.numel()]
        moved = max((part.abs().max().item() for part in parts), default=0.0)
        return moved > THRESHOLDS.moved * seen.reach > 0

    def state_dict(self) -> dict[str, Any]:
        """What was seen, and where the run began."""
        return {"seen": asdict(self._seen), "start": self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        for name in ("alive", "least"):
            if (known := state["seen"][name]) is not None:
                check_like(known, math.inf, f"diagnostics.{name}")
        self._seen = _Seen(**state["seen"])
        if self._start is not None:
            self._start = on_devices(state["start"], self._start)


def are_uneven(objective: float, gradient: Vector, lr: float) -> bool:
    """Whether some matrix of weights has columns of very different size.

    Example:
        >>> slopes = [torch.tensor([[1.0, 2.0, 500.0]]), torch.tensor([0.5])]
        >>> are_uneven(20.0, slopes, lr=0.1), are_uneven(20.0, slopes[1:], lr=0.1)
        (True, False)
    """
    return any(_is_uneven(slope, lr, abs(objective)) for slope in gradient)


def _is_uneven(slope: Tensor, lr: float, size: float) -> bool:
    if slope.ndim != 2:  # noqa: PLR2004 - a matrix
        return False
    columns = slope.square().mean(0).sqrt()
    columns = columns[columns > 0]
    if columns.numel() == 0:
        return False
    spread = THRESHOLDS.column_ratio if columns.numel() > 2 else THRESHOLDS.pair_ratio  # noqa: PLR2004 - two of them
    largest = columns.max().item()
    return (
        largest >= spread * columns.median().item()
        and lr * largest >= THRESHOLDS.felt * size
    )


def _warn_of_units() -> None:
    message = (
        "The features seem to come in units of very different size: the gradients of "
        f"some weights were more than {THRESHOLDS.column_ratio:.0f} times those of "
        "their neighbours, and the objective swings, since steps of one length suit "
        "only some of them. It may end far too high. Standardise the features (zero "
        "mean, unit "
        'variance), or, for a small model, take method="auto": SLSQP has '
        "no steps of one length."
    )
    warn(message)


def _warn_of_short_steps(reach: float) -> None:
    message = (
        f"The run may have ended on its way: some parameter moved by most of "
        f"{reach:.3g}, the sum of all step sizes and so the farthest that Adam can go, "
        "and the objective was not nearly gone. The answer depends on the start. "
        "Standardise features and targets, or give a larger lr or more steps, or, for "
        'a small model, take method="auto"; if the objective has no minimum, as a sum '
        "of logits has none, bound it by radius= or a constraint."
    )
    warn(message)


def _warn_of_death(first: float, last: float) -> None:
    message = (
        f"The network seems to be dead: at the end only {100 * last:.1g} percent of "
        f"the parameters had a gradient, at the start {100 * first:.0f}. If no ReLU "
        "lets anything through, the model is a constant, and the small KKT residual of "
        "such a point says nothing. Standardise the features, give a smaller lr, or "
        "use an activation with a slope everywhere, such as GELU."
    )
    warn(message)


def _share_with_gradient(gradient: Vector) -> float:
    found = sum(slope.numel() for slope in gradient if torch.count_nonzero(slope))
    return found / max(1, dimension(gradient))
