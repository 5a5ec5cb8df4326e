"""What the integrations share."""

from __future__ import annotations

from typing import Any

from oneproj.methods.auto_penalty import AutoPenalty
from oneproj.methods.one_projection import OneProjection


def inside(optimizer: object) -> Any:  # noqa: ANN401 - AutoPenalty checks it
    """Return the optimizer that makes the steps, out of Accelerate's wrapper if any.

    Example:
        >>> inside(None) is None
        True
    """
    return getattr(optimizer, "optimizer", optimizer)


def show_outer(optimizer: object) -> bool:
    """Make the parameters hold the outer iterate, if there is one to show.

    Returns:
        Whether they held the inner iterate, which ``train()`` brings back.

    Example:
        >>> import torch
        >>> w = torch.zeros(1, requires_grad=True)
        >>> optimizer = OneProjection([w], lr=0.1)
        >>> show_outer(optimizer), show_outer(optimizer)
        (True, False)
        >>> show_outer(torch.optim.SGD([w]))
        False
    """
    steps = inside(optimizer)
    if not isinstance(steps, OneProjection) or steps.shows_outer:
        return False
    steps.eval()
    return True


def as_logs(penalty: AutoPenalty) -> dict[str, float]:
    """Return the residuals and strengths of a penalty, under the names of a log.

    Example:
        >>> import oneproj, torch
        >>> w = torch.zeros(1, requires_grad=True)
        >>> cap = {"size": oneproj.function(lambda: w.sum()) <= 1.0}
        >>> penalty = AutoPenalty(torch.optim.SGD([w]), cap)
        >>> _ = penalty()
        >>> as_logs(penalty)
        {'residual/size': -1.0, 'strength/size': 0.0}
    """
    residuals, strengths = penalty.residuals(), penalty.strengths()
    logs = {f"residual/{name}": value for name, value in residuals.items()}
    return logs | {f"strength/{name}": value for name, value in strengths.items()}
