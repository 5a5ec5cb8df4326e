"""One run from data to record: build, solve, evaluate, measure.

The history is evaluated on all training data in a callback; the time that this takes is
added up and subtracted.
"""

from __future__ import annotations

import functools
import time
import warnings
from dataclasses import dataclass
from typing import Any

from oneproj.results import Certificate, Solution, Update
from oneproj.training.solve import solve
from oneproj_paper.data import TransferSplits
from oneproj_paper.experiments.interrupts import abandoning
from oneproj_paper.experiments.record_schema import (
    CertificateRecord,
    CountsRecord,
    DataRecord,
    MeasureRecord,
    ProjectionRecord,
    Record,
)
from oneproj_paper.experiments.specs import Spec
from oneproj_paper.experiments.surroundings import machine, one_thread, versions
from oneproj_paper.projectors import PROJECTORS
from oneproj_paper.tasks import Experiment, build, count_parameters

WARM_UP = 10
"""Updates."""
SETTLED = ("lr", "inner_steps", "oracle", "batch_size", "anchor_size")
"""The settings that ``solve`` chooses where none is given."""


def run(
    spec: Spec,
    seed: int,
    *,
    until: int | None = None,
    command: str = "",
) -> Record:
    """Make one run, with one thread.

    A projection that fails is a result: the record says so and is of the trained point.

    Args:
        spec: What to run.
        seed: Of data, start and sampling.
        until: Stop after this many updates and extrapolate the runtime; None for all.
        command: How to make the record again, for the reader.

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
        trace = Trace(experiment, every=spec.inner_steps, until=cut)
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
        return make_record(
            FinishedRun(spec, seed, experiment, solution, trace), command, warnings=told
        )


@functools.cache
def _warm_up() -> None:
    """What torch makes on first use is made before anything is timed."""
    problem = build("abstention-gaussian").problem
    for base in ("sgd", "adam"):
        solve(problem, steps=WARM_UP, base=base, on_failure="return", progress=False)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run; the parameters hold its answer."""

    spec: Spec
    seed: int
    experiment: Experiment
    solution: Solution
    trace: Trace


def make_record(
    finished: FinishedRun, command: str, warnings: tuple[str, ...]
) -> Record:
    """The record of a run.

    Args:
        finished: The run.
        command: How to make it again.
        warnings: What the library warned about.
    """
    spec, solution, data = finished.spec, finished.solution, finished.experiment.data
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return Record(
        experiment=spec.experiment,
        preset=spec.preset,
        method=spec.method,
        projector=spec.projector,
        seed=finished.seed,
        task=spec.paper.task,
        settings=spec.settings() | _settings_in_use(finished),
        data=_data_record(finished.experiment),
        metrics={
            name: finished.experiment.measure(part) for name, part in parts.items()
        },
        certificate=_certificate_record(solution.certificate),
        counts=CountsRecord(**vars(solution.counts)),
        **_answer(finished),
        **_course(finished),
        command=command,
        versions=versions(),
        machine=machine(),
        warnings=warnings,
    )


def _answer(finished: FinishedRun) -> dict[str, Any]:
    """Where the run ended, and how the last projection got there."""
    solution, caps = finished.solution, finished.experiment.caps
    projection, residuals = solution.projection, solution.residuals
    # At the edge of the safeguard ball the projector is given the ball as well.
    before = {name: projection.residuals_before[name] for name in caps}
    return {
        "status": solution.status.name.lower(),
        "feasible": solution.feasible,
        "objective": solution.objective,
        "residuals": dict(residuals),
        "residuals_before": before,
        "risks": {name: residuals[name] + cap for name, cap in caps.items()},
        "projection": ProjectionRecord(
            distance=projection.distance,
            evaluations=projection.gradients,
            kkt_residual=projection.kkt_residual,
        ),
    }


def _course(finished: FinishedRun) -> dict[str, Any]:
    """Updates, seconds and history; the last point of it is the answer."""
    trace, planned = finished.trace, finished.spec.updates
    seconds = {
        "source_fit": finished.experiment.start_seconds,
        **finished.solution.seconds,
    }
    seconds["train"] -= trace.own
    updates = int(max(finished.solution.history["update"], default=0))
    trace.look(updates, seconds["train"] + seconds["project"])
    stretch = planned / updates if trace.stopped else 1.0
    runtime = seconds["source_fit"] + stretch * seconds["train"] + seconds["project"]
    return {
        "updates": updates,
        "planned_updates": planned,
        "complete": updates == planned,
        "seconds": seconds,
        "runtime": runtime,
        "extrapolated_from": updates if trace.stopped else None,
        "history": {name: tuple(column) for name, column in trace.columns.items()},
    }


def _settings_in_use(finished: FinishedRun) -> dict[str, Any]:
    """The settings that only data or the library's defaults determine."""
    spec, caps, given = (
        finished.spec,
        finished.experiment.caps,
        finished.solution.settings,
    )
    settings = dict(given["options"])
    settings |= {name: given[name] for name in SETTLED if name in given}
    settings["outer_steps"] = spec.updates // spec.inner_steps
    settings["caps"] = dict(caps)
    settings["slack"] = None
    if spec.thresholds is not None:
        pairs = zip(caps.values(), spec.thresholds, strict=True)
        settings["slack"] = [cap - threshold for cap, threshold in pairs]
    return settings


def _data_record(experiment: Experiment) -> DataRecord:
    data = experiment.data
    counts = {
        "train": data.train.counts,
        "validation": data.validation.counts,
        "test": data.test.counts,
    }
    if isinstance(data, TransferSplits):
        counts["source"] = data.source.counts
    return DataRecord(
        stand_in=data.stand_in,
        note=data.note,
        variables=experiment.settings.variables,
        inputs=data.train.x.shape[1],
        parameters=count_parameters(experiment.model),
        counts=counts,
    )


def _certificate_record(certificate: Certificate) -> CertificateRecord:
    return CertificateRecord(
        measures=tuple(
            MeasureRecord(m.name, m.value, m.bound, m.holds, m.source, m.error)
            for m in certificate.measures
        ),
        multipliers=dict(certificate.multipliers),
        holds=certificate.holds,
    )


class Trace:
    """A callback of ``solve`` that evaluates some updates and can end the run.

    Args:
        experiment: Whose parameters the run moves.
        every: Updates between two evaluations.
        until: Updates after which to stop; None for all.

    Example:
        >>> from oneproj_paper.tasks import build
        >>> trace = Trace(build("abstention-gaussian"), every=25)
        >>> trace.look(0, 0.0); list(trace.columns)
        ['update', 'seconds', 'objective', 'class 0 error', 'class 1 error']
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        every: int,
        until: int | None = None,
    ) -> None:
        """Nothing is seen yet."""
        self._experiment, self._every, self._until = experiment, every, until
        self.columns: dict[str, list[float]] = {}
        self.own = 0.0
        """Seconds that looking took."""
        self.stopped = False
        """Whether it ended the run."""

    def __call__(self, update: Update) -> bool:
        """Look if it is its turn; True once it is time to stop."""
        began = time.perf_counter()
        k = update.update
        if k % self._every == 0 and k < update.steps:
            self.look(k, update.seconds - self.own)
        self.own += time.perf_counter() - began
        self.stopped = k == self._until
        return self.stopped

    def look(self, update: int, seconds: float) -> None:
        """Evaluate the point that the parameters hold; a second look replaces one."""
        updates = self.columns.get("update", [])
        if updates and updates[-1] == update:
            for column in self.columns.values():
                column.pop()
        row = {"update": update, "seconds": seconds} | self._values()
        for name, value in row.items():
            self.columns.setdefault(name, []).append(float(value))

    def _values(self) -> dict[str, float]:
        experiment = self._experiment
        problem = experiment.problem
        values = {"objective": problem.objective.value()}
        for name, constraint in problem.constraints.items():
            values[name] = constraint.value() + experiment.caps[name]
        if experiment.settings.task == "transfer":
            risk = experiment.measure(experiment.data.validation)["risk"]
            values["validation risk"] = risk
        return values
