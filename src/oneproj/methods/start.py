"""The start of a run: x_0 has to lie in the safeguard ball."""

from __future__ import annotations

import warnings

from oneproj.errors import OneprojWarning
from oneproj.parameters import Vector, project_ball_


def move_start_into_ball(
    parameters: Vector, radius: float, center: Vector | None
) -> None:
    """Project a start outside the ball onto it, and say so.

    Example:
        >>> import torch
        >>> w = torch.tensor([0.5])
        >>> move_start_into_ball([w], 1.0, None); w.item()
        0.5
    """
    outside = project_ball_(parameters, radius, center)
    if outside > 0:
        message = (
            f"The start lies {outside:.3g} outside the safeguard ball of radius "
            f"{radius:.3g} and was projected onto it. Choose a larger radius, or a "
            "center near the start, if the start was meant."
        )
        warnings.warn(message, OneprojWarning, stacklevel=3)
