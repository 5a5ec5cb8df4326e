"""Multipliers: the constraint gradients' share in balancing the objective's.

``argmin_{mu >= 0} |v + sum_j mu_j grad c_j|`` is a quadratic program in the inner
products of these vectors, which are formed here, and solved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oneproj.arrays import Array
from oneproj.parameters import SMALL, Vector
from oneproj.simplex_qp import solve_nonnegative_qp

PARALLEL = 1e-6
"""Two gradients whose angle has a smaller squared sine are left to the general solver.
"""


@torch.no_grad()
def gram(vectors: Sequence[Vector]) -> Array:
    """All inner products, formed and added up in float64.

    Example:
        >>> gram([[torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 0.0])]]).tolist()
        [[5.0, 3.0], [3.0, 9.0]]
    """
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device="cpu")
    for pieces in zip(*(_pieces(vector) for vector in vectors), strict=True):
        rows = torch.stack([piece.double() for piece in pieces])
        total += (rows @ rows.T).cpu()
    G: Array = total.numpy()
    return G


def _pieces(vector: Vector) -> list[Tensor]:
    """The same numbers in few flat tensors, small enough to be copied one by one."""
    flat = [part.reshape(-1) for part in vector]
    large = [part for part in flat if part.numel() > SMALL]
    small = [part for part in flat if part.numel() <= SMALL]
    blocks = [block for part in large for block in torch.split(part, SMALL)]
    devices = dict.fromkeys(part.device for part in small)
    joined = [torch.cat([t for t in small if t.device == on]) for on in devices]
    return joined + blocks


def least_residual(P: list[list[float]], w: list[float]) -> list[float]:
    """``argmin_{mu >= 0} mu'P mu / 2 + w'mu``, in plain numbers where mu has few.

    Example:
        >>> least_residual([[2.0]], [-6.0])
        [3.0]
    """
    m = len(w)
    if m == 1:
        return [_alone(P[0][0], w[0])]
    if m == 2:  # noqa: PLR2004 - two numbers
        (a, b), (_, d) = P
        if a * d - b * b > PARALLEL * a * d:
            return _pair(a, b, d, *w)
    found = solve_nonnegative_qp(np.array(P).reshape(m, m), np.array(w))
    mu: list[float] = found.z.tolist()
    return mu


def _alone(a: float, w: float) -> float:
    """``argmin_{x >= 0} a x^2 / 2 + w x``; 0 where nothing is curved."""
    return max(0.0, -w / a) if a > 0 else 0.0


def _pair(a: float, b: float, d: float, v: float, w: float) -> list[float]:
    """The same for two: in the interior, or else on the better of the two axes."""
    x, y, det = b * w - d * v, b * v - a * w, a * d - b * b
    if min(x, y) >= 0:
        return [x / det, y / det]
    x, y = _alone(a, v), _alone(d, w)
    return [x, 0.0] if v * x <= w * y else [0.0, y]
