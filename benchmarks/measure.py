"""Fair timing on an unquiet machine: contestants take turns, ratios are paired.

Seconds depend on the machine and on who else uses it; a ratio of two times taken one
after the other does so far less. Hence every comparison runs all contestants in each
repeat, in alternating order, and only the ratios are claims.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oneproj.errors import InvalidProblemError
from oneproj_paper.experiments.surroundings import machine, versions


@dataclass(frozen=True)
class Spread:
    """The middle of a sample and how far it scatters: median and quartiles."""

    median: float
    lower: float
    """The first quartile."""
    upper: float
    """The third quartile."""

    @classmethod
    def of(cls, sample: Sequence[float]) -> Spread:
        """Summarise at least two values; quartiles interpolate between them.

        Example:
            >>> Spread.of([4.0, 1.0, 3.0, 2.0, 5.0])
            Spread(median=3.0, lower=2.0, upper=4.0)
        """
        lower, median, upper = statistics.quantiles(sample, n=4, method="inclusive")
        return cls(median=median, lower=lower, upper=upper)


def alternate(
    tasks: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    advance: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time every task once per repeat; returns the seconds of each, by repeat.

    A first round is run and not kept, so that buffers made on first use, memory and
    caches are as they will be. The order of a round is the reverse of the one before,
    so that no task always runs in the wake of the same other one. The cyclic garbage
    collector rests meanwhile.

    Args:
        tasks: What to run, by name.
        repeats: How many rounds to keep; at least 2, since quartiles are made of them.
        advance: Called after every round that is kept.
        clock: Where the seconds come from.

    Example:
        >>> ran = []
        >>> tasks = {name: (lambda name=name: ran.append(name)) for name in "ab"}
        >>> seconds = alternate(tasks, repeats=2)
        >>> "".join(ran), {name: len(taken) for name, taken in seconds.items()}
        ('abbaab', {'a': 2, 'b': 2})
    """
    if repeats < 2:  # noqa: PLR2004 - a spread needs two values
        message = (
            f"A spread needs at least 2 repeats, got {repeats}. One time alone says "
            "nothing about the noise; 15 or more make the quartiles steady."
        )
        raise InvalidProblemError(message)
    order = list(tasks)
    seconds: dict[str, list[float]] = {name: [] for name in order}
    with _without_garbage_collection():
        for name in order:
            tasks[name]()
        for _ in range(repeats):
            order.reverse()
            for name in order:
                start = clock()
                tasks[name]()
                seconds[name].append(clock() - start)
            advance()
    return seconds


def paired_ratio(mine: Sequence[float], reference: Sequence[float]) -> Spread:
    """The spread of ``mine / reference``, repeat by repeat.

    Example:
        >>> paired_ratio([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]).median
        0.5
    """
    return Spread.of([a / b for a, b in zip(mine, reference, strict=True)])


def surroundings() -> dict[str, Any]:
    """What a time depends on besides the code: versions, platform, cores, threads.

    Names no host and no user, so a record can be shown to anyone.

    Example:
        >>> sorted(surroundings())
        ['cpu_count', 'load', 'oneproj', 'platform', 'python', 'threads', 'torch']
    """
    packages, here = versions(), machine()
    return {
        **{name: packages[name] for name in ("oneproj", "torch", "python")},
        "platform": here["system"],
        "cpu_count": here["cores"],
        "threads": here["threads"],
        "load": _load(),
    }


def _load() -> float | None:
    # The mean number of runnable processes in the last minute; not on every system.
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
