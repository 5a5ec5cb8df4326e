"""What a user's loop does to the parameters between two steps of ``OneProjection``.

Twice in an outer iteration, before its first and its last update, they are looked at:
a step in between costs no more for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from oneproj.autograd import require_autograd
from oneproj.errors import warn
from oneproj.methods.start import Groups

AGAIN = 2
"""Looks in a row without a gradient that are no accident."""


class Watch:
    """Notices what would go wrong in silence.

    Args:
        moving: The parameters that are part of x.
        frozen: Those that were constants at the start.

    Example:
        >>> import torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> watch = Watch([w], [])
        >>> watch.look([{"params": [w]}], None); watch.warned_of_start
        False
    """

    def __init__(self, moving: Sequence[Tensor], frozen: Sequence[Tensor]) -> None:
        """Remember who moves and who does not."""
        self._moving, self._frozen = moving, list(frozen)
        self._warned_of_scheduler = False
        self._blind = 0  # looks in a row at which no parameter had a gradient
        self.warned_of_start = False  # that eval() shows

    def look(self, groups: Groups, m: float | None) -> None:
        """Refuse parameters that were frozen; tell once of those that were thawed.

        And of a scheduler whose steps are not used, since m settles them, and of steps
        without a single gradient.

        Raises:
            InvalidProblemError: A parameter is frozen by now. The pull to the centre
                and the mean of line 14 would go on moving it.
        """
        require_autograd(self._moving, built="optimiser")
        if self._frozen:
            self._tell_of_thawed()
        if m is not None and not self._warned_of_scheduler:
            self._tell_of_scheduler(groups)
        if any(p.grad is not None for p in self._moving):
            self._blind = 0
        else:
            self._blind += 1
            self._tell_of_no_gradient()

    def _tell_of_no_gradient(self) -> None:
        if self._blind == AGAIN:  # once: a first step may come before the first loss
            message = (
                "step() is called, but no parameter has a gradient, and none moves. "
                "Call loss.backward() between zero_grad() and step(). If you do, the "
                "loss is of other tensors than the optimiser was built from: "
                "load_state_dict(..., assign=True), a deep copy and a layer that was "
                "replaced do that."
            )
            warn(message)

    def _tell_of_scheduler(self, groups: Groups) -> None:
        if any("initial_lr" in group for group in groups):  # which schedulers set
            self._warned_of_scheduler = True
            message = (
                "A scheduler sets the step sizes of an optimiser that has "
                "strong_convexity: every step is 2/(m(s+1)) all the same. Give lr in "
                "place of strong_convexity, or leave the scheduler out."
            )
            warn(message)

    def _tell_of_thawed(self) -> None:
        thawed = [p for p in self._frozen if p.requires_grad]
        if thawed:
            self._frozen.clear()
            message = (
                f"{len(thawed)} parameter(s), the first of shape "
                f"{tuple(thawed[0].shape)}, had requires_grad=False when the optimiser "
                "was built and have it no more. They are constants of this run and do "
                "not move. Build a new optimiser once they are to be trained."
            )
            warn(message)
