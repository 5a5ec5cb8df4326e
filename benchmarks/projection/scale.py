"""What a projection costs beside its gradients: time, and memory.

Seconds hang on the machine, so time is a ratio: that of a projection over that of as
many gradients at its start, in turns. Memory is the largest resident set of a process
that does nothing else, beyond what it has before the projection, in copies of the
parameters. It is read from ``/proc``, which Linux has.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.measure import alternate, paired_ratio
from benchmarks.projection.large import (
    HUGE,
    LINEAR_SIZE,
    STARTS,
    TIGHT_CAP,
    Large,
    Start,
    make_large,
)
from benchmarks.projection.switches import overridden
from oneproj.projection.cuts import Cuts
from oneproj.results import Projection
from oneproj.results import table as columns

TIMED = (LINEAR_SIZE, 10**3, 10**5, 10**7)
WEIGHED = (10**6, 10**7)
REPEATS, SLOW_REPEATS = 5, 2
"""Rounds in which projection and gradients take turns; fewer from 10^6 parameters."""
KILOBYTE = 1024
T = TypeVar("T")


@dataclass(frozen=True)
class Weight:
    """The memory of one projection."""

    size: int
    gradients: int
    feasible: bool
    copies: float
    """At its peak, beyond the model, in copies of the parameters."""
    gradient_copies: float
    """Of one gradient alone, measured alike."""


def time_table(switches: Sequence[str] = (), sizes: Sequence[int] = TIMED) -> str:
    """Time over that of its gradients, by size and start."""
    rows: list[tuple[str, ...]] = [
        ("parameters", "start", "gradients", "time / its gradients")
    ]
    for size in sizes:
        for start in STARTS:
            gradients, ratio = time_over_gradients(size, start, switches)
            rows.append((f"{size:,}", start, str(gradients), f"{ratio:.2f}"))
    return "\n".join(columns(rows))


def time_over_gradients(
    size: int, start: Start, switches: Sequence[str] = ()
) -> tuple[int, float]:
    """The gradients of a projection, and its time over that of as many.

    Example:
        >>> gradients, ratio = time_over_gradients(18, "random")
        >>> gradients > 0, ratio > 0
        (True, True)
    """
    made = make_large(size, start, torch.Generator().manual_seed(0))
    gradients = _project(made, switches).gradients
    tasks: dict[str, Callable[[], object]] = {
        "projection": lambda: _project(made, switches),
        "gradients": lambda: _differentiate(made, gradients),
    }
    seconds = alternate(tasks, repeats=REPEATS if size < HUGE else SLOW_REPEATS)
    ratio = paired_ratio(seconds["projection"], seconds["gradients"])
    return gradients, ratio.median


def memory_table(switches: Sequence[str] = (), sizes: Sequence[int] = WEIGHED) -> str:
    """Peak memory beyond the model, by size, for a tight cap from a random start."""
    titles = ("parameters", "gradients", "feasible", "copies", "one gradient alone")
    rows: list[tuple[str, ...]] = [titles]
    for size in sizes:
        w = weigh(size, switches)
        cells = str(w.gradients), str(w.feasible), f"{w.copies:.1f}"
        rows.append((f"{w.size:,}", *cells, f"{w.gradient_copies:.1f}"))
    return "\n".join(columns(rows))


def weigh(size: int, switches: Sequence[str] = ()) -> Weight:
    """The memory of one projection, measured in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_weigh, (size, list(switches)))


def _weigh(size: int, switches: list[str]) -> Weight:
    torch.set_num_threads(1)
    made = make_large(size, "random", torch.Generator().manual_seed(0), TIGHT_CAP)
    unit = sum(p.numel() * p.element_size() for p in made.parameters)
    _differentiate(made, 1)  # buffers made on first use are not its memory
    alone = _peak(lambda: _differentiate(made, 1))[1]
    done, whole = _peak(lambda: _project(made, switches))
    return Weight(
        size=made.size,
        gradients=done.gradients,
        feasible=done.status.ok,
        copies=whole / unit,
        gradient_copies=alone / unit,
    )


def _peak(task: Callable[[], T]) -> tuple[T, int]:
    """What a task returns, and the bytes of its peak beyond what there was before."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free goes back: glibc keeps it else
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    done = task()
    return done, _status("VmHWM") - before


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return KILOBYTE * int(line.split()[1])
    return 0


def _project(made: Large, switches: Sequence[str]) -> Projection:
    made.reset()
    with overridden(switches) as options:
        return Cuts(**options).project(made.parameters, made.constraints)


def _differentiate(made: Large, count: int) -> None:
    made.reset()
    for _ in range(count):
        for constraint in made.constraints.values():
            constraint.value_and_gradient(made.parameters)
