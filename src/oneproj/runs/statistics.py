"""When batch norm gathers its running statistics in a run, and when it keeps them.

As deep networks need, it gathers them from the minibatches of the first updates. Such a
minibatch, of one class perhaps, is normalised by its own mean and variance, but an
anchor by the gathered ones: objective and constraints are then of two functions, and
never agree. So the later updates keep the statistics and use them, as the projection
and ``model.eval()`` do: from there on there is one function.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager

from torch import nn

from oneproj.terms.modes import settled

GATHERING = 0.5
"""The share of a run in which batch norm gathers statistics."""


class Statistics:
    """Says for each update whether the norms of a model gather or keep statistics.

    Args:
        model: Of the problem; None for one without norms.
        steps: The updates that are planned.
        seconds: A budget of time, which may end long before they do; None for none.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2))
        >>> statistics = Statistics(model, steps=10, seconds=None)
        >>> for k in (5, 6):
        ...     with statistics.during(k):
        ...         model[0].training
        True
        False
    """

    def __init__(
        self, model: nn.Module | None, steps: int, seconds: float | None
    ) -> None:
        """The time begins to run."""
        self._model, self._steps = model, steps
        self._budget, self._begun = seconds or math.inf, time.monotonic()

    def during(self, k: int) -> AbstractContextManager[None]:
        """Put the norms into the mode of the k-th update while a block runs.

        It is said anew each time, for a callback that calls ``model.train()``.
        """
        spent = (time.monotonic() - self._begun) / self._budget
        keeps = max(k / self._steps, spent) > GATHERING
        return settled(self._model if keeps else None)
