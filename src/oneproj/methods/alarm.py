"""What the gradients of a run say about its problem: uneven units, and dead networks.

**Features in units of very different size.** A step of Adam changes every parameter by
about lr, whatever its gradient. A feature in the thousands, an area beside a ratio,
then moves the score a thousand times as far as its neighbours do: the objective rises
to many times its size, and falls back only as far as the decay of the steps allows. In
the first gradient such features show. An entry of a matrix of weights has a gradient in
proportion to what it multiplies, so the columns have the sizes of the features, or of
their correlations with what is to be learned: among twenty standardised features, one
alone may matter. It is said where the largest is ``SPREAD`` times the median, a step of
lr in it alone would change the objective by ``FELT`` of its size, to first order, and
the objective then rises to ``RISE`` times its least value so far, by ``SWING`` of the
first: such steps swing to and fro, and those along a correlation do not.

Steps that become shorter for such columns, in proportion to their sizes, were tried:
three problems of four ended lower, and one, whose features also had means far from
zero, ten times higher. The data has to be mended.

**A dead network.** Where no ReLU lets anything through, a network is a constant, all
but its last bias has no gradient, and a point like this looks stationary. At the start
most parameters had a gradient. It is tensors that have one or not: where features are
sparse and few examples of a batch still lose, most entries are zero and nothing died.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oneproj.errors import warn
from oneproj.parameters import Vector, dimension

SPREAD = 12.0
"""Times the median. Standardised features were seen to make 4, sparse ones 10."""
FELT = 0.1
"""Of the objective."""
RISE, SWING = 2.0, 0.2
"""Of the least objective so far, and of the first. Raw features were seen to swing by
0.2 to 1.7 of the first; noise is as large only where the objective is small."""
ALIVE, DEAD = 0.5, 0.05
"""Of the parameters, in tensors with a gradient: at least, at the start; and at most,
at the end."""


class Alarm:
    """Looks at objective gradients, the first ones and then the last.

    Example:
        >>> alarm = Alarm()
        >>> alarm.look(1.0, [torch.ones(40)], lr=0.1)
        >>> alarm.look(1.0, [torch.zeros(40)], lr=0.1); alarm.is_dead
        True
    """

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._first: float | None = None
        self._last = 1.0
        self._least: float | None = None  # since uneven columns were seen
        self._size = 0.0

    def hear(self, objective: float) -> None:
        """Note the objective of any update; a swing tells of uneven units, once."""
        if self._least is None:
            return
        self._least = min(self._least, objective)
        rise = objective - self._least
        if objective > RISE * self._least and rise > SWING * self._size:
            self._least = None
            _warn_of_units()

    def look(self, objective: float, gradient: Vector, lr: float) -> None:
        """Note what an update saw; the first may have units to be watched."""
        share = _share_with_gradient(gradient)
        if self._first is None:
            self._first = share
            if are_uneven(objective, gradient, lr):
                self._least, self._size = objective, abs(objective)
        self._last = share if objective != 0 else 1.0  # it may be zero and solved

    @property
    def is_dead(self) -> bool:
        """Whether nearly all gradients have gone, and the objective has not."""
        return (self._first or 0.0) >= ALIVE and self._last <= DEAD

    def warn_if_dead(self) -> None:
        """Say so, and what helps."""
        if self.is_dead:
            message = (
                "The network seems to be dead: at the end only "
                f"{100 * self._last:.1g} percent of the parameters had a gradient, at "
                f"the start {100 * (self._first or 0.0):.0f}. If no ReLU lets anything "
                "through, the model is a constant, and the small KKT residual of such "
                "a point says nothing. Standardise the features, give a smaller lr, or "
                "use an activation with a slope everywhere, such as GELU."
            )
            warn(message)

    def state_dict(self) -> dict[str, Any]:
        """What was seen."""
        seen = {"first": self._first, "last": self._last}
        return seen | {"least": self._least, "size": self._size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self._first, self._last = state["first"], state["last"]
        self._least, self._size = state["least"], state["size"]


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
    largest = columns.max().item()
    return largest >= SPREAD * columns.median().item() and lr * largest >= FELT * size


def _warn_of_units() -> None:
    message = (
        "The features seem to come in units of very different size: the gradients of "
        f"some weights were more than {SPREAD:.0f} times those of their neighbours, "
        "and the objective swings, since steps of one length suit only some of them. "
        "It may end far too high. Standardise the features (zero mean, unit "
        'variance), or, for a small model, take method="auto": SLSQP has '
        "no steps of one length."
    )
    warn(message)


def _share_with_gradient(gradient: Vector) -> float:
    found = sum(slope.numel() for slope in gradient if torch.count_nonzero(slope))
    return found / max(1, dimension(gradient))
