"""The scalar arithmetic of the compiled twin, one trial at a time, no branches.

Each function here is plain Python that numba compiles into the twin's loops; a test can
check it without a compiler. Conditional expressions become selects, which lets the
compiler treat several trials with one instruction.
"""

from __future__ import annotations

import math

# splitmix64 (Steele, Lea, Flood 2014): increment of the counter, then the two
# multipliers of its bit mixer. A counter-based generator is its own checkpoint.
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB

# Beyond this argument the logistic function is taken at the bound: above, it rounds to
# 1.0 exactly; below, it is less than 5e-18, which no sum in the update can feel.
SATURATION = 40.0
# exp(x) = exp(x / 128)^128; on |x| <= 40 the degree 12 Taylor sum of the inner factor
# is exact to rounding, and seven squarings amplify rounding to about 3e-14 relative.
SHRINK = 1.0 / 128.0
C3, C4, C5, C6, C7, C8, C9, C10, C11, C12 = (
    1.0 / math.factorial(k) for k in range(3, 13)
)


def saddle_gradient(
    z1: float, z2: float, p: tuple[float, float, float, float]
) -> tuple[float, float]:
    """Subgradient of (c/2)(z1-a)^2 + k |z1-a| - (l/2) z2^2, with p = (c, k, a, l).

    At the kink it is the one that automatic differentiation of ``abs`` selects: 0.

    Example:
        >>> saddle_gradient(1.0, 2.0, (0.0, 3.0, 0.5, 0.25))
        (3.0, -0.5)
    """
    d = z1 - p[2]
    sign = 1.0 if d > 0.0 else (-1.0 if d < 0.0 else 0.0)
    return p[0] * d + p[1] * sign, -p[3] * z2


def disc_constraint(
    z1: float, z2: float, q: tuple[float, float, float, float]
) -> tuple[float, float, float]:
    """Value and gradient of the Huber function of |z| minus its value at r = q[0].

    Example:
        >>> disc_constraint(0.0, 2.0, (0.5, 0.0, 0.0, 0.0))
        (1.5, 0.0, 1.0)
    """
    r = q[0]
    n = math.sqrt(z1 * z1 + z2 * z2)
    inverse = 1.0 / max(n, r)
    g = n - r if n > r else (n * n - r * r) * (0.5 / r)
    return g, z1 * inverse, z2 * inverse


def dent_constraint(
    z1: float, z2: float, q: tuple[float, float, float, float]
) -> tuple[float, float, float]:
    """Value and gradient of |z|^2/2 - h + A / (1 + |z-(0,p)|^2 v), q = (h, A, p, v).

    Example:
        >>> dent_constraint(0.0, 1.0, (0.5, 0.25, 1.0, 4.0))
        (0.25, 0.0, 1.0)
    """
    e2 = z2 - q[2]
    inverse = 1.0 / (1.0 + q[3] * (z1 * z1 + e2 * e2))
    bump = q[1] * inverse
    g = 0.5 * (z1 * z1 + z2 * z2) - q[0] + bump
    c = 2.0 * q[3] * bump * inverse
    return g, z1 - c * z1, z2 - c * e2


def logistic(u: float) -> float:
    """1 / (1 + exp(-u)) without branches or library calls; see ``SATURATION``.

    Example:
        >>> logistic(0.0), logistic(1000.0), logistic(-1000.0) < 5e-18
        (0.5, 1.0, True)
    """
    x = -min(abs(u), SATURATION) * SHRINK
    x2 = x * x
    x4 = x2 * x2
    e = (1.0 + x) + x2 * (0.5 + C3 * x) + x4 * ((C4 + C5 * x) + x2 * (C6 + C7 * x))
    e += x4 * x4 * ((C8 + C9 * x) + x2 * (C10 + C11 * x) + x4 * C12)
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return (1.0 if u > 0.0 else e) / (1.0 + e)
