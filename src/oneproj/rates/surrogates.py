"""Differentiable replacements for the step function that a count adds up.

A decision is right or wrong: as a function of the parameters its count is a staircase
without a gradient. With ``m`` the margin by which a row is counted (``score -
threshold`` for rows that count when they are accepted, minus that for rows that count
when they are not), a count adds up ``1[m > 0]``. Training follows one of two
gradients:

- ``count_derivatives``, of the expected count, estimated from the rows near the
  threshold: for the least objective at which the count holds;
- ``loss_derivatives``, of the rows' logistic losses: for the fewest errors at which the
  count holds, where the objective is a logistic loss.

A projection follows ``smooth_step``, ``sigmoid(m / width)``. The width is the distance
within which the rows nearest to the threshold lie, so that neither small nor saturated
scores make the gradient zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneproj.rates.defaults import DEFAULTS


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


def count_derivatives(margins: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return how fast the count of each row grows with its margin, on average.

    The derivative of a count with respect to the parameters is the density of the
    margins at 0, times the mean gradient of a margin that is 0. The density is that of
    a logistic kernel of the rows' width. The mean gradient is a local linear regression
    at 0: with kernel weights ``K``, a row gets ``K (S2 - S1 m) / (S0 S2 - S1^2)``, with
    ``S_k = sum K m^k``. The derivative of the sigmoid, a mean over the rows
    around 0, is biased where most of them are on one side, as for small rates: it
    grows the scores, which changes no decision. These weights leave the sum of
    ``derivative * m`` at 0, but for a ridge that keeps them from extrapolating when
    all rows are far away.

    Args:
        margins: Of the rows, in units of the score.
        weights: Of the rows, nonnegative; None for 1.

    Example:
        >>> margins = torch.linspace(-4.0, 1.0, 101)
        >>> found, width = count_derivatives(margins), width_of(margins)
        >>> plain = smooth_step(margins, width)
        >>> plain = plain * (1.0 - plain) / width
        >>> abs(float(found @ margins)) < 0.1 * abs(float(plain @ margins))
        True
    """
    m, h = margins.detach().double(), width_of(margins)
    step = torch.sigmoid(m / h)
    kernel = step * (1.0 - step) / h
    mass = kernel if weights is None else kernel * weights.to(kernel)
    s0, s1, s2 = mass.sum(), (mass * m).sum(), (mass * m.square()).sum()
    s2 = s2 + DEFAULTS.ridge * h**2 * s0
    found = kernel * s0 * (s2 - s1 * m) / (s0 * s2 - s1.square())
    return found.to(margins.dtype)


def loss_derivatives(margins: Tensor, is_error: Tensor) -> Tensor:
    """Return how fast the logistic loss of each row changes with its margin.

    A row that is counted if it is decided wrongly counts ``1[m > 0]``, which becomes
    its loss ``log(1 + exp(m))``; one that is counted if it is decided rightly counts
    ``1 - 1[-m > 0]``, which becomes ``1 - log(1 + exp(-m))``. A multiple of the count,
    added to a logistic loss, then changes the weights of its rows: the reduction of
    Agarwal et al. (2018), "A reductions approach to fair classification".

    Args:
        margins: Of the rows, in units of the score.
        is_error: Whether the decision that is counted is wrong for the row.

    Example:
        >>> margins, is_error = torch.tensor([5.0, 5.0]), torch.tensor([True, False])
        >>> loss_derivatives(margins, is_error)
        tensor([0.9933, 0.0067])
    """
    m = margins.detach()
    return torch.sigmoid(torch.where(is_error.to(m.device), m, -m))


def smooth_step(margins: Tensor, width: float) -> Tensor:
    """Return the surrogate of ``1[margin > 0]``, row by row.

    Example:
        >>> smooth_step(torch.tensor([-2.0, 0.0]), width=1.0)
        tensor([0.1192, 0.5000])
    """
    return torch.sigmoid(margins / width)
