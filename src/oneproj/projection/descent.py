"""Descent on the violated constraints: a way in where local models found none.

Far from the feasible set the models of ``local.py`` may promise much and hold little,
step after step. Adam's steps promise nothing and lower the sum of the violated
constraints all the same; the point they reach is feasible, not near, and is where the
models begin again.
"""

from __future__ import annotations

import math

import torch
from torch.optim import Adam

from oneproj.errors import NonFiniteError
from oneproj.parameters import combine, difference, norm
from oneproj.projection.view import Look, View

RATE = 0.03
"""A step of each parameter, as a share of what the move so far makes on average."""
PATIENCE = 60
"""Looks in a row that find no lower worst residual before it is given up."""


def descend(view: View, *, looks: int) -> bool:
    """Go down from the best point; whether a feasible one was reached.

    Args:
        view: Knows the best point, before and after.
        looks: How many full constraint gradients to use at most.

    Example:
        >>> from oneproj.terms import function
        >>> w = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> disc = {"disc": function(lambda: w.square().sum()) <= 1.0}
        >>> view = View([w], disc, differentiate_all=True)
        >>> descend(view, looks=100), view.best.worst <= 0
        (True, True)
    """
    moved = difference(view.best_point, view.origin)
    size = sum(parameter.numel() for parameter in view.parameters)
    scale = norm(moved) or norm(view.origin) or math.sqrt(size)
    for part in moved:
        part.requires_grad_()
    adam = Adam(moved, lr=RATE * scale / math.sqrt(size))
    seen, best, waited = view.best, view.best.worst, 0
    for _ in range(looks):
        if seen.worst <= 0 or waited >= PATIENCE:
            break
        _push(view, seen, moved)
        adam.step()
        try:
            seen = view.move(combine([1.0], [moved]))
        except NonFiniteError:
            break
        waited = 0 if seen.worst < best else waited + 1
        best = min(best, seen.worst)
    return view.best.worst <= 0


def _push(view: View, seen: Look, moved: list[torch.Tensor]) -> None:
    """Leave the gradient of the sum of what is violated, or nearly, in ``.grad``."""
    pushing = [
        gradient
        for name, gradient in seen.gradients.items()
        if seen.values[name] + view.margins[name] > 0
    ]
    total = combine([1.0] * len(pushing), pushing)
    for part, pull in zip(moved, total, strict=True):
        part.grad = pull
