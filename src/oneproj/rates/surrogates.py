"""Differentiable stand-ins for the step function that a count adds up.

A decision is right or wrong: as a function of the parameters its count is a staircase
without a gradient. With ``m`` the margin by which a row is counted (``score -
threshold`` for rows that count when they are accepted, minus that for rows that count
when they are not), a count adds up ``1[m > 0]``. Two functions replace it:

- near: ``sigmoid(m / width)``, close to the step on average over rows;
- upper: ``max(0, 1 + m / width)``, never below the step and convex in the score.

The width follows the scores: it is the distance within which the rows nearest to the
threshold lie, so that neither small nor saturated scores leave the slope zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError

Kind = Literal["near", "upper"]


@dataclass(frozen=True)
class SurrogateDefaults:
    """The numbers behind the width of a surrogate; benchmarks/NOTES.md has the runs."""

    near_share: float = 0.1
    """Share of the rows that lie within one width of the threshold."""
    near_rows: int = 8
    """Rows that lie within one width of the threshold, at least."""
    least_width: float = 1e-3
    """Least width, as a share of the mean distance from the threshold."""


DEFAULTS = SurrogateDefaults()


def width_of(margins: Tensor) -> float:
    """Return the distance within which a share of the rows lies from the threshold.

    Where every row lies on the threshold, as in a model of zeros, it is 1.

    Args:
        margins: Of the rows, in units of the score.

    Example:
        >>> width_of(torch.linspace(-1.0, 1.0, 101)), width_of(torch.zeros(5))
        (0.1..., 1.0)
    """
    distances = margins.detach().abs().double()
    n = len(distances)
    k = min(n, max(DEFAULTS.near_rows, math.ceil(DEFAULTS.near_share * n)))
    nearest = float(distances.kthvalue(k).values)
    width = max(nearest, DEFAULTS.least_width * float(distances.mean()))
    return width if width > 0 else 1.0


def smooth_step(margins: Tensor, kind: Kind, width: float) -> Tensor:
    """Return the surrogate of ``1[margin > 0]``, row by row.

    Example:
        >>> smooth_step(torch.tensor([-2.0, 0.0, 1.0]), "upper", width=1.0)
        tensor([0., 1., 2.])
        >>> smooth_step(torch.tensor([0.0]), "near", width=1.0)
        tensor([0.5000])
    """
    scaled = margins / width
    return torch.sigmoid(scaled) if kind == "near" else (1.0 + scaled).clamp(min=0.0)


def check_kind(kind: object) -> Kind:
    """Return the name of a surrogate; refuse any other.

    Example:
        >>> check_kind("near")
        'near'
    """
    if kind == "near":
        return "near"
    if kind == "upper":
        return "upper"
    message = (
        f'A surrogate is "near" or "upper", got {kind!r}. "near" is a sigmoid of the '
        'margin, close to the count; "upper" is a hinge, which is never below it.'
    )
    raise InvalidProblemError(message)
