"""Feasible sets in the style of Hock and Schittkowski's collection, each x 4 starts.

W. Hock, K. Schittkowski: Test Examples for Nonlinear Programming Codes, Springer 1981.
The numbers are those of the book; objectives are left out, since a projection has its
own, and equations become one-sided. Every constraint is written ``c(x) <= 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.projection.cases import Case, Instance, below_zero, leaf, numbers
from oneproj.problem.terms import AbstractTerm
from oneproj.sets import Box

Functions = Callable[[Tensor], list[Tensor]]
Bounds = tuple[float | list[float] | None, float | list[float] | None]
NONE: Bounds = (None, None)
FAR = {0: 0.0, 1: 1.0, 2: 4.0, 5: 1.0}
"""Seed to how far its start is from the book's: standard deviations per coordinate."""

SETS: dict[str, tuple[list[float], Functions, Bounds]] = {
    "10": (
        [-10, 10],
        lambda x: [3 * x[0] ** 2 - 2 * x[0] * x[1] + x[1] ** 2 - 1],
        NONE,
    ),
    "11": ([4.9, 0.1], lambda x: [x[0] ** 2 - x[1]], NONE),
    "12": ([6, 7], lambda x: [4 * x[0] ** 2 + x[1] ** 2 - 25], NONE),
    "13": ([-2, -2], lambda x: [x[1] - (1 - x[0]) ** 3], (0.0, None)),
    "14": (
        [2, 2],
        lambda x: [x[0] ** 2 / 4 + x[1] ** 2 - 1, x[0] - 2 * x[1] + 1],
        NONE,
    ),
    "15": (
        [-2, 1],
        lambda x: [1 - x[0] * x[1], -x[0] - x[1] ** 2, x[0] - 0.5],
        NONE,
    ),
    "16": (
        [-2, 1],
        lambda x: [-x[0] - x[1] ** 2, -(x[0] ** 2) - x[1]],
        ([-0.5, -1e9], [0.5, 1.0]),
    ),
    "17": (
        [-2, 1],
        lambda x: [x[0] - x[1] ** 2, x[1] - x[0] ** 2],
        ([-0.5, -1e9], [0.5, 1.0]),
    ),
    "18": (
        [2, 2],
        lambda x: [25 - x[0] * x[1], 25 - x[0] ** 2 - x[1] ** 2],
        ([2.0, 0.0], [50.0, 50.0]),
    ),
    "19": (
        [20.1, 5.84],
        lambda x: [
            100 - (x[0] - 5) ** 2 - (x[1] - 5) ** 2,
            (x[1] - 5) ** 2 + (x[0] - 6) ** 2 - 82.81,
        ],
        ([13.0, 0.0], [100.0, 100.0]),
    ),
    "20": (
        [-2, 1],
        lambda x: [
            -x[0] - x[1] ** 2,
            -(x[0] ** 2) - x[1],
            1 - x[0] ** 2 - x[1] ** 2,
        ],
        ([-0.5, -1e9], [0.5, 1e9]),
    ),
    "21": ([-1, -1], lambda x: [10 - 10 * x[0] + x[1]], ([2.0, -50.0], [50.0, 50.0])),
    "22": ([2, 2], lambda x: [x[0] + x[1] - 2, x[0] ** 2 - x[1]], NONE),
    "23": (
        [3, 1],
        lambda x: [
            1 - x[0] - x[1],
            1 - x[0] ** 2 - x[1] ** 2,
            9 - 9 * x[0] ** 2 - x[1] ** 2,
            x[1] - x[0] ** 2,
            x[0] - x[1] ** 2,
        ],
        (-50.0, 50.0),
    ),
    "24": (
        [1, 0.5],
        lambda x: [
            x[1] - x[0] / 3**0.5,
            -x[0] - 3**0.5 * x[1] + 1,
            x[0] + 3**0.5 * x[1] - 6,
        ],
        (0.0, None),
    ),
    "27 one-sided": ([2, 2, 2], lambda x: [x[0] + x[2] ** 2 + 1], NONE),
    "29": (
        [4, 4, 4],
        lambda x: [x[0] ** 2 + 2 * x[1] ** 2 + 4 * x[2] ** 2 - 48],
        NONE,
    ),
    "30": (
        [0.1, 0.1, 0.1],
        lambda x: [1 - x[0] ** 2 - x[1] ** 2],
        ([1.0, -10.0, -10.0], [10.0, 10.0, 10.0]),
    ),
    "31": (
        [0.2, 0.5, 1],
        lambda x: [1 - x[0] * x[1]],
        ([-10.0, 1.0, -10.0], [10.0, 10.0, 1.0]),
    ),
    "32": (
        [0.1, 0.7, 2.0],
        lambda x: [x[0] ** 3 + 3 - 6 * x[1] - 4 * x[2], x.sum() - 1],
        (0.0, None),
    ),
    "33": (
        [2, 2, 3],
        lambda x: [
            x[0] ** 2 + x[1] ** 2 - x[2] ** 2,
            4 - x[0] ** 2 - x[1] ** 2 - x[2] ** 2,
        ],
        ([0.0, 0.0, 0.0], [1e9, 1e9, 5.0]),
    ),
    "34": (
        [1, 1.05, 2.9],
        lambda x: [x[0].exp() - x[1], x[1].exp() - x[2]],
        ([0.0, 0.0, 0.0], [100.0, 100.0, 10.0]),
    ),
    "36": ([30, 20, 30], lambda x: [x[0] + 2 * x[1] + 2 * x[2] - 72], (0.0, 42.0)),
    "40 one-sided": (
        [0.8, 0.8, 0.8, 0.8],
        lambda x: [
            x[0] ** 3 + x[1] ** 2 - 1,
            x[0] ** 2 * x[3] - x[2],
            x[3] ** 2 - x[1],
        ],
        NONE,
    ),
    "43": (
        [2, 2, 2, 2],
        lambda x: [
            (x**2).sum() + x[0] - x[1] + x[2] - x[3] - 8,
            (x**2).sum() + x[1] ** 2 + x[3] ** 2 - x[0] - x[3] - 10,
            (x**2).sum() + x[0] ** 2 - x[3] ** 2 + 2 * x[0] - x[1] - x[3] - 5,
        ],
        NONE,
    ),
    "44": (
        [3, 3, 3, 3],
        lambda x: [
            x[0] + 2 * x[1] - 8,
            4 * x[0] + x[1] - 12,
            3 * x[0] + 4 * x[1] - 12,
            2 * x[2] + x[3] - 8,
            x[2] + 2 * x[3] - 8,
            x[2] + x[3] - 5,
        ],
        (0.0, None),
    ),
    "57": (
        [0.42, 5],
        lambda x: [0.09 - 0.49 * x[1] + x[0] * x[1]],
        ([0.4, -4.0], [1e9, 1e9]),
    ),
    "59": (
        [90, 10],
        lambda x: [
            700 - x[0] * x[1],
            x[0] ** 2 / 125 - x[1],
            5 * (x[0] - 55) - (x[1] - 50) ** 2,
        ],
        ([0.0, 0.0], [75.0, 65.0]),
    ),
    "64": (
        [1, 1, 1],
        lambda x: [4 / x[0] + 32 / x[1] + 120 / x[2] - 1],
        (1e-5, None),
    ),
    "65": (
        [-5, 5, 5],
        lambda x: [(x**2).sum() - 48],
        ([-4.5] * 2 + [-5.0], [4.5] * 2 + [5.0]),
    ),
    "66": (
        [2, 1.05, 2.9],
        lambda x: [x[0].exp() - x[1], x[1].exp() - x[2]],
        (0.0, [100.0, 100.0, 10.0]),
    ),
    "71": (
        [1, 1, 1, 1],
        lambda x: [25 - x.prod(), (x**2).sum() - 40],
        (1.0, 5.0),
    ),
    "72": (
        [1, 1, 1, 1],
        lambda x: [
            4 / x[0] + 2.25 / x[1] + 1 / x[2] + 0.25 / x[3] - 0.0401,
            0.16 / x[0] + 0.36 / x[1] + 0.64 / x[2] + 0.64 / x[3] - 0.010085,
        ],
        (0.001, None),
    ),
    "76": (
        [2, 2, 2, 2],
        lambda x: [
            x[0] + 2 * x[1] + x[2] + x[3] - 5,
            3 * x[0] + x[1] + 2 * x[2] - x[3] - 4,
            1.5 - x[1] - 4 * x[2],
        ],
        (0.0, None),
    ),
    "77 one-sided": (
        [2, 2, 2, 2, 2],
        lambda x: [
            x[0] ** 2 * x[3] + (x[3] - x[4]).sin() - 2 * 2**0.5,
            x[1] + x[2] ** 4 * x[3] ** 2 - 8 - 2**0.5,
        ],
        NONE,
    ),
    "80 one-sided": (
        [-2, 2, 2, -1, -1],
        lambda x: [
            (x**2).sum() - 10,
            x[1] * x[2] - 5 * x[3] * x[4],
            1 + x[0] ** 3 + x[1] ** 3,
        ],
        (-3.2, 3.2),
    ),
    "93": (
        [5.54, 4.4, 12.02, 11.82, 0.702, 0.852],
        lambda x: [
            2.07 - 0.001 * x.prod(),
            0.00062 * x[0] * x[3] * x[4] ** 2 * x[:3].sum()
            + 0.00058 * x[1] * x[2] * x[5] ** 2 * (x[0] + 1.57 * x[1] + x[3])
            - 1,
        ],
        (0.0, None),
    ),
    "100": (
        [3, 4, 2, 4, 2, 3, 3],
        lambda x: [
            2 * x[0] ** 2 + 3 * x[1] ** 4 + x[2] + 4 * x[3] ** 2 + 5 * x[4] - 127,
            7 * x[0] + 3 * x[1] + 10 * x[2] ** 2 + x[3] - x[4] - 282,
            23 * x[0] + x[1] ** 2 + 6 * x[5] ** 2 - 8 * x[6] - 196,
            4 * x[0] ** 2
            + x[1] ** 2
            - 3 * x[0] * x[1]
            + 2 * x[2] ** 2
            + 5 * x[5]
            - 11 * x[6],
        ],
        NONE,
    ),
    "108": (
        [2.0] * 9,
        lambda x: [
            x[2] ** 2 + x[3] ** 2 - 1,
            x[8] ** 2 - 1,
            x[4] ** 2 + x[5] ** 2 - 1,
            x[0] ** 2 + (x[1] - x[8]) ** 2 - 1,
            (x[0] - x[4]) ** 2 + (x[1] - x[5]) ** 2 - 1,
            (x[0] - x[6]) ** 2 + (x[1] - x[7]) ** 2 - 1,
            (x[2] - x[4]) ** 2 + (x[3] - x[5]) ** 2 - 1,
            x[6] ** 2 + (x[7] - x[8]) ** 2 - 1,
            x[1] * x[2] - x[0] * x[3],
            -x[2] * x[8],
            x[4] * x[8],
            x[5] * x[6] - x[4] * x[7],
        ],
        NONE,
    ),
    "113": (
        [2, 3, 5, 5, 1, 2, 7, 3, 6, 10],
        lambda x: [
            4 * x[0] + 5 * x[1] - 3 * x[6] + 9 * x[7] - 105,
            10 * x[0] - 8 * x[1] - 17 * x[6] + 2 * x[7],
            -8 * x[0] + 2 * x[1] + 5 * x[8] - 2 * x[9] - 12,
            3 * (x[0] - 2) ** 2 + 4 * (x[1] - 3) ** 2 + 2 * x[2] ** 2 - 7 * x[3] - 120,
            5 * x[0] ** 2 + 8 * x[1] + (x[2] - 6) ** 2 - 2 * x[3] - 40,
            0.5 * (x[0] - 8) ** 2 + 2 * (x[1] - 4) ** 2 + 3 * x[4] ** 2 - x[5] - 30,
            x[0] ** 2 + 2 * (x[1] - 2) ** 2 - 2 * x[0] * x[1] + 14 * x[4] - 6 * x[5],
            -3 * x[0] + 6 * x[1] + 12 * (x[8] - 8) ** 2 - 7 * x[9],
        ],
        NONE,
    ),
    "227": ([3, 3], lambda x: [x[0] ** 2 - x[1], x[1] ** 2 - x[0]], NONE),
    "233 outside": (
        [0.1, 0.1],
        lambda x: [0.25 - x[0] ** 2 - x[1] ** 2],
        NONE,
    ),
    "banana": (
        [-1.2, 1],
        lambda x: [100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 - 0.5],
        NONE,
    ),
    "ripples": (
        [2, 2],
        lambda x: [x[1] - (3 * x[0]).sin(), (x**2).sum() - 9],
        NONE,
    ),
    "crescent": (
        [3, 0.5],
        lambda x: [(x**2).sum() - 4, 3 - (x[0] - 1) ** 2 - x[1] ** 2],
        NONE,
    ),
}
"""Name to the book's start, the functions, and the bounds on the variables."""


def instances() -> list[Instance]:
    """Every set from four starts; a far and a near one are kept aside.

    Example:
        >>> len(instances()) >= 160
        True
    """
    return [
        Instance("hock-schittkowski", name, seed, partial(_case, name, seed))
        for name in SETS
        for seed in FAR
    ]


def _case(name: str, seed: int) -> Case:
    start, functions, (lower, upper) = SETS[name]
    x = torch.tensor(start, dtype=torch.float64)
    shift = numbers(1000 * seed + sum(map(ord, name)), len(x), scale=FAR[seed])
    w = leaf(x + shift)
    if name in {"64", "72"}:  # not defined at 0
        w = leaf(w.detach().abs() + 0.1)
    count = len(functions(w.detach()))
    constraints: dict[str, AbstractTerm] = {
        f"c{j}": below_zero(w, partial(_one_of, functions, j)) for j in range(count)
    }
    if lower is None and upper is None:
        return Case([w], constraints, pieces=lambda x: torch.stack(functions(x)))
    low = _bound(lower, -1e9, len(x))
    high = _bound(upper, 1e9, len(x))
    box = Box(lower=low, upper=high)

    def pieces(x: Tensor) -> Tensor:
        return torch.cat([torch.stack(functions(x)), low - x, x - high])

    return Case([w], {"bounds": box.on(w), **constraints}, pieces=pieces)


def _one_of(functions: Functions, j: int, x: Tensor) -> Tensor:
    return functions(x)[j]


def _bound(value: float | list[float] | None, default: float, n: int) -> Tensor:
    found = torch.tensor(default if value is None else value, dtype=torch.float64)
    return found.expand(n).clone()
