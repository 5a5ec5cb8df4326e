"""One run from data to record: build, solve, evaluate, measure."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

from oneproj.training.solve import solve
from oneproj_paper.experiments.interrupts import abandoning
from oneproj_paper.experiments.records import Record
from oneproj_paper.experiments.specs import Spec
from oneproj_paper.experiments.surroundings import one_thread
from oneproj_paper.experiments.trace import Trace
from oneproj_paper.experiments.write_up import Made, write_up
from oneproj_paper.projectors import PROJECTORS
from oneproj_paper.tasks import build

WARM_UP = 10
"""Updates."""


def run(
    spec: Spec,
    seed: int,
    *,
    until: int | None = None,
    command: str = "",
    tell: Callable[[int], None] = lambda _: None,
) -> Record:
    """Make one run, with one thread.

    A projection that fails is a result: the record says so and is of the trained point.

    Args:
        spec: What to run.
        seed: Of data, start and sampling.
        until: Stop after so many updates and extrapolate the runtime; None for all.
        command: How to make the record again, for the reader.
        tell: Given the number of updates made, after each.

    Raises:
        DataNotFoundError: A file is missing; the message says what to do.

    Example:
        >>> from oneproj_paper.experiments.specs import make_spec
        >>> spec = make_spec("abstention-gaussian", "paper", "one-projection")
        >>> record = run(spec, seed=0, until=25)
        >>> record.complete, record.extrapolated_from, record.history["update"]
        (False, 25, (0.0, 25.0))
    """
    with abandoning(), one_thread(), warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        _warm_up()
        experiment = build(
            spec.experiment, seed, thresholds=spec.thresholds, radius=spec.radius
        )
        cut = until if until is not None and until < spec.updates else None
        trace = Trace(experiment, every=spec.inner_steps, until=cut, tell=tell)
        trace.look(0, 0.0)
        solution = solve(
            experiment.problem,
            method=spec.method,
            steps=spec.updates,
            seed=seed,
            projector=PROJECTORS[spec.projector](),
            progress=False,
            callbacks=trace,
            on_failure="return",
            **spec.options,
        )
        told = tuple(str(warning.message) for warning in raised)
        return write_up(
            Made(spec, seed, experiment, solution, trace), command, warnings=told
        )


@functools.cache
def _warm_up() -> None:
    """What torch makes on first use is made before anything is timed."""
    problem = build("abstention-gaussian").problem
    for base in ("sgd", "adam"):
        solve(problem, steps=WARM_UP, base=base, on_failure="return", progress=False)
