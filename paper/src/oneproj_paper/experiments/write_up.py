"""From what a run left to its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oneproj.results import Certificate, Solution
from oneproj_paper.data import TransferSplits
from oneproj_paper.experiments.facts import (
    CertificateFacts,
    CountFacts,
    DataFacts,
    MeasureFacts,
    ProjectionFacts,
)
from oneproj_paper.experiments.records import Record
from oneproj_paper.experiments.specs import Spec
from oneproj_paper.experiments.surroundings import machine, versions
from oneproj_paper.experiments.trace import Trace
from oneproj_paper.tasks import Experiment, count_parameters

SETTLED = ("lr", "inner_steps", "oracle", "batch_size", "anchor_size")
"""What ``solve`` settles where nothing is given."""


@dataclass(frozen=True, eq=False)
class Made:
    """A run that was made; the parameters hold its answer."""

    spec: Spec
    seed: int
    experiment: Experiment
    solution: Solution
    trace: Trace


def write_up(made: Made, command: str, warnings: tuple[str, ...]) -> Record:
    """The record of a run.

    Args:
        made: The run.
        command: How to make it again.
        warnings: What the library warned about.
    """
    spec, solution, data = made.spec, made.solution, made.experiment.data
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return Record(
        experiment=spec.experiment,
        preset=spec.preset,
        method=spec.method,
        projector=spec.projector,
        seed=made.seed,
        task=spec.paper.task,
        settings=spec.settings() | _in_force(made),
        data=_data_facts(made.experiment),
        metrics={name: made.experiment.measure(part) for name, part in parts.items()},
        certificate=_certificate_facts(solution.certificate),
        counts=CountFacts(**vars(solution.counts)),
        **_answer(made),
        **_course(made),
        command=command,
        versions=versions(),
        machine=machine(),
        warnings=warnings,
    )


def _answer(made: Made) -> dict[str, Any]:
    """Where the run ended, and how the last projection got there."""
    solution, caps = made.solution, made.experiment.caps
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
        "projection": ProjectionFacts(
            distance=projection.distance,
            evaluations=projection.evaluations,
            kkt_residual=projection.kkt_residual,
        ),
    }


def _course(made: Made) -> dict[str, Any]:
    """Updates, seconds and history; the last point of it is the answer."""
    trace, planned = made.trace, made.spec.updates
    seconds = {"source_fit": made.experiment.start_seconds, **made.solution.seconds}
    seconds["train"] -= trace.own
    updates = int(max(made.solution.history["update"], default=0))
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


def _in_force(made: Made) -> dict[str, Any]:
    """The settings that only data or the library's defaults determine."""
    spec, caps, given = made.spec, made.experiment.caps, made.solution.settings
    settings = dict(given["options"])
    settings |= {name: given[name] for name in SETTLED if name in given}
    settings["outer_steps"] = spec.updates // spec.inner_steps
    settings["caps"] = dict(caps)
    settings["slack"] = None
    if spec.thresholds is not None:
        pairs = zip(caps.values(), spec.thresholds, strict=True)
        settings["slack"] = [cap - threshold for cap, threshold in pairs]
    return settings


def _data_facts(experiment: Experiment) -> DataFacts:
    data = experiment.data
    counts = {
        "train": data.train.counts,
        "validation": data.validation.counts,
        "test": data.test.counts,
    }
    if isinstance(data, TransferSplits):
        counts["source"] = data.source.counts
    return DataFacts(
        stand_in=data.stand_in,
        note=data.note,
        variables=experiment.settings.variables,
        inputs=data.train.x.shape[1],
        parameters=count_parameters(experiment.model),
        counts=counts,
    )


def _certificate_facts(certificate: Certificate) -> CertificateFacts:
    return CertificateFacts(
        measures=tuple(
            MeasureFacts(m.name, m.value, m.bound, m.holds, m.source, m.error)
            for m in certificate.measures
        ),
        multipliers=dict(certificate.multipliers),
        holds=certificate.holds,
    )
