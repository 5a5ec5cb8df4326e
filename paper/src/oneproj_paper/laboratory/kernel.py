"""The inner loop of Algorithm 1, compiled, for several trials side by side.

One call is one inner run ``PSM(H, x)`` (lines 7-14 of Algorithm 1) for up to ``LANES``
independent trials in the plane. The loop over the trials is innermost, so the compiler
works on several of them with one instruction; the loop over s is outermost, because
each step needs the one before.

All lanes live in one flat array, at fixed offsets: the compiler then sees that no
store can change what another slot holds, and needs no checks at run time. No fused or
reordered floating point (numba's ``fastmath`` stays off): the same seed gives the same
bits, whether or not a run was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory import lanes

LANES = 8
"""Trials in one compiled loop: two vectors of four doubles."""
BLOCK = 64
"""Inner steps served by one 64-bit random word per trial and coordinate."""

# Offsets of the slots in the flat state: inner iterate z, running mean, centre x,
# gradient of g, argument of the softplus, weight of g, noise of this step.
Z1, Z2, A1, A2, X1, X2, D1, D2, U, W, E1, E2 = range(0, 12 * LANES, LANES)
NOISE_1 = 12 * LANES
NOISE_2 = NOISE_1 + BLOCK * LANES
STATE_SIZE = NOISE_2 + BLOCK * LANES

Words = npt.NDArray[np.uint64]
Four = tuple[float, float, float, float]
Settings = tuple[float, float, float, float, float]
"""m, beta, lambda, lambda / gamma (0 for the hinge), noise per coordinate."""
InnerRun = Callable[[Array, Words, int, int, Settings, Four, Four], None]
Shape = Literal["disc", "dent"]
Penalty = Literal["softplus", "hinge"]


@cache
def compile_inner_run(shape: Shape, penalty: Penalty) -> InnerRun:
    """Return the compiled inner run for a constraint and a penalty.

    The result is called as ``run(state, words, n, K, settings, objective,
    constraint)``: it reads x from the state's slots X1, X2, makes K inner updates for
    the first n lanes, and leaves the average in A1, A2 and again in X1, X2. The random
    words advance in place.

    Raises:
        OneprojError: numba is not installed.
    """
    jit, inlined = _compiler("never"), _compiler("always")
    draw = _compile_draw(jit)
    weigh = _compile_weigh(inlined, shape, penalty)
    move = _compile_move(inlined)

    def run(  # noqa: PLR0917 - the compiler wants plain arguments
        S: Array,
        words: Words,
        n: int,
        K: int,
        settings: Settings,
        objective: Four,
        constraint: Four,
    ) -> None:
        m = settings[0]
        for i in range(n):  # line 8
            S[Z1 + i] = S[X1 + i]
            S[Z2 + i] = S[X2 + i]
            S[A1 + i] = 0.0
            S[A2 + i] = 0.0
        s = 0
        while s < K:  # line 9
            draw(S, words, settings[4])
            for b in range(min(K - s, BLOCK)):
                s += 1
                eta = 2.0 / (m * (s + 1.0))  # line 10
                weigh(S, n, settings, constraint)
                move(S, n, b, s, eta, settings, objective)  # lines 11-12
        for i in range(n):  # line 14
            S[X1 + i] = S[A1 + i]
            S[X2 + i] = S[A2 + i]

    compiled: InnerRun = jit(run)
    # A run of zero steps makes the compiler work now and not inside the first trial.
    four, words = (0.0, 0.0, 0.0, 0.0), np.zeros(2 * LANES, dtype=np.uint64)
    compiled(np.zeros(STATE_SIZE), words, 0, 0, (1.0, 0.0, 0.0, 0.0, 0.0), four, four)
    return compiled


def _compiler(inline: str) -> Any:  # noqa: ANN401 - numba has no types
    """Numba's decorator: a schedule has 10^10 steps, in plain Python many hours."""
    import numba

    # "numpy" lets a division by zero be inf, so that no check stops the vectoriser.
    return numba.njit(error_model="numpy", nogil=True, inline=inline)


def _compile_draw(jit: Any) -> Any:  # noqa: ANN401 - numba has no types
    """Fill the noise of the next 64 steps: one bit, one sign."""
    golden, mix_1, mix_2 = map(np.uint64, (lanes.GOLDEN, lanes.MIX_1, lanes.MIX_2))
    shifts = tuple(map(np.uint64, (30, 27, 31, 1)))
    s30, s27, s31, one = shifts

    def draw(S: Array, words: Words, noise: float) -> None:
        for c in range(2):
            for i in range(LANES):
                word = words[c * LANES + i] + golden
                words[c * LANES + i] = word
                word = (word ^ (word >> s30)) * mix_1
                word = (word ^ (word >> s27)) * mix_2
                word = word ^ (word >> s31)
                for b in range(BLOCK):
                    plus = (word >> np.uint64(b)) & one
                    at = NOISE_1 + (c * BLOCK + b) * LANES + i
                    S[at] = noise if plus else -noise

    return jit(draw)


def _compile_weigh(jit: Any, shape: Shape, penalty: Penalty) -> Any:  # noqa: ANN401
    """Evaluate g, its gradient and the penalty's weight p'(g) in every lane."""
    g_at = jit(lanes.disc_constraint if shape == "disc" else lanes.dent_constraint)
    logistic = jit(lanes.logistic)
    soft = penalty == "softplus"
    saturation = lanes.SATURATION

    def weigh(S: Array, n: int, settings: Settings, constraint: Four) -> None:
        lam, rate = settings[2], settings[3]
        near = 0
        for i in range(n):
            g, d1, d2 = g_at(S[Z1 + i], S[Z2 + i], constraint)
            S[D1 + i] = d1
            S[D2 + i] = d2
            S[W + i] = lam if g > 0.0 else 0.0
            if soft:
                u = g * rate
                S[U + i] = u
                near += abs(u) < saturation
        # Far from the boundary the softplus and the hinge agree to rounding, so the
        # exponential is evaluated only when some lane is near it.
        if near > 0:
            for i in range(n):
                S[W + i] = lam * logistic(S[U + i])

    return jit(weigh)


def _compile_move(jit: Any) -> Any:  # noqa: ANN401 - numba has no types
    """Average z, then take the step and return to the ball: lines 11, 12 and 14."""
    f_at = jit(lanes.saddle_gradient)
    sqrt = np.sqrt

    def move(  # noqa: PLR0917 - the compiler wants plain arguments
        S: Array,
        n: int,
        b: int,
        s: int,
        eta: float,
        settings: Settings,
        objective: Four,
    ) -> None:
        beta, share = settings[1], 1.0 / s
        from_1, from_2 = NOISE_1 + b * LANES, NOISE_2 + b * LANES
        for i in range(n):
            S[E1 + i] = 1.0 * S[from_1 + i]
            S[E2 + i] = 1.0 * S[from_2 + i]
        outside = 0
        for i in range(n):
            z1, z2, w = S[Z1 + i], S[Z2 + i], S[W + i]
            S[A1 + i] += (z1 - S[A1 + i]) * share
            S[A2 + i] += (z2 - S[A2 + i]) * share
            v1, v2 = f_at(z1, z2, objective)
            h1 = v1 + S[E1 + i] + w * S[D1 + i] + beta * (z1 - S[X1 + i])
            h2 = v2 + S[E2 + i] + w * S[D2 + i] + beta * (z2 - S[X2 + i])
            z1 -= eta * h1
            z2 -= eta * h2
            S[Z1 + i] = z1
            S[Z2 + i] = z2
            outside += z1 * z1 + z2 * z2 > 1.0
        if outside > 0:
            for i in range(n):
                z1, z2 = S[Z1 + i], S[Z2 + i]
                scale = 1.0 / sqrt(max(z1 * z1 + z2 * z2, 1.0))
                S[Z1 + i] = z1 * scale
                S[Z2 + i] = z2 * scale

    return jit(move)
