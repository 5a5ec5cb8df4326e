"""Calibration: surrogate thresholds, chosen so that class errors come up to a target.

Training bounds a surrogate of each class error on training data. What error that gives
on new data is for validation data to say, per method: appendix D.2 of the paper ("The
surrogate thresholds beta_j were calibrated on validation data"). Ambiguity falls as the
errors are allowed to grow, so each should come up to its target and not over it.

Test data has no part in it, by construction: ``calibrate`` is given ``Development``
samples, which have none. What remains to be known about the thresholds that are shipped
with the library, which hold for every seed alike:

- They were found on seeds from ``FIRST_SEED`` on, which no table of results uses.
- ``abstention-gaussian``: other seeds are other samples. Nothing is shared.
- ``abstention-climsim``: the split is chronological and the same for all seeds.
  Validation rows are never test rows.
- ``abstention-nasa`` and ``abstention-credit``: other seeds split the same rows in
  another way, so a test row of one seed was a validation row of others (a fifth of them
  on average). The same is true of the paper, or of whoever fixes thresholds over
  several random splits. Two numbers come out of it, each an average over thousands of
  rows; ``calibrate`` with the samples of a single seed gives thresholds for that seed
  that have seen none of its test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from oneproj.errors import InfeasibleError, InvalidProblemError
from oneproj.projection.cuts import Cuts
from oneproj.training.solve import solve
from oneproj_paper.data.samples import Sample, Splits
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments.calibration_search import (
    ROUNDS,
    Pair,
    Task,
    Trial,
    search,
)
from oneproj_paper.projectors import PROJECTORS
from oneproj_paper.tasks.abstention import SLACK, abstention_problem, slackened
from oneproj_paper.tasks.abstention_metrics import AbstentionMetrics, abstention_metrics
from oneproj_paper.tasks.models import Scores
from oneproj_paper.tasks.paper import start_generator
from oneproj_paper.tasks.settings import Settings

FIRST_SEED = 1000
"""Calibration uses seeds from here on, results those from 0 on."""


@dataclass(frozen=True, eq=False)
class Development:
    """What a calibration may look at: no test part.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> sample = Development.of(gaussian_abstention(seed=0))
        >>> len(sample.train), len(sample.validation), sorted(vars(sample))
        (1200, 400, ['train', 'validation'])
    """

    train: Sample
    validation: Sample

    @classmethod
    def of(cls, splits: Splits) -> Development:
        """The first two parts of a data set; the third is not looked at."""
        return cls(splits.train, splits.validation)


@dataclass(frozen=True)
class Search:
    """What was searched for, what was found, and all that was tried."""

    task: Task
    found: Trial
    trials: tuple[Trial, ...]


def calibrate(
    settings: Settings,
    samples: Mapping[int, Development],
    *,
    method: str = "one-projection",
    targets: Pair | None = None,
    paired: bool = False,
    start: Pair | None = None,
    rounds: int = ROUNDS,
    radius: float | None = None,
    report: Callable[[Trial | None], None] | None = None,
    **options: Any,  # noqa: ANN401 - of ``solve``, which checks them
) -> Search:
    """Find thresholds whose mean validation errors come up to their targets.

    Every trial trains once per seed, from the same starts and with the same random
    numbers as every other trial.

    Args:
        settings: The experiment: model, radius, targets.
        samples: Of each seed, the training and the validation part.
        method: Of ``oneproj.solve``.
        targets: Errors of class 0 and class 1; the experiment's own if left out.
        paired: Whether the targets are what another training reached on these samples:
            both then share the luck of the sample, and a nearer match is asked for.
        start: The first thresholds; the targets doubled if left out.
        rounds: Trials, at most.
        radius: Of the safeguard ball; the experiment's own if left out. A smaller one
            keeps a large model from fitting its training data too well.
        report: Called with None after every run, and with every trial.
        **options: Of ``oneproj.solve``, which has its defaults where there are none.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it.
        CalibrationError: No thresholds keep the targets; the message says how near.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> from oneproj_paper.tasks import PAPER
        >>> samples = {0: Development.of(gaussian_abstention(seed=0))}
        >>> found = calibrate(
        ...     PAPER["abstention-gaussian"], samples, targets=(0.2, 0.2), steps=50
        ... ).found
        >>> all(0.1 < error < 0.21 for error in found.errors)
        True
    """
    task = _task(settings, samples, targets, paired=paired)
    tell = report or _ignore
    settings = settings if radius is None else replace(settings, radius=radius)
    first, second = task.targets
    found, trials = search(
        partial(attempt, settings, samples, method=method, report=tell, **options),
        task,
        (2 * first, 2 * second) if start is None else start,
        rounds=rounds,
        report=tell,
    )
    return Search(task, found, tuple(trials))


def attempt(
    settings: Settings,
    samples: Mapping[int, Development],
    thresholds: Pair,
    *,
    method: str = "one-projection",
    report: Callable[[None], None] | None = None,
    **options: Any,  # noqa: ANN401 - of ``solve``, which checks them
) -> Trial:
    """Train under thresholds on every seed; the mean errors on validation data.

    Args:
        settings: As for ``calibrate``.
        samples: As for ``calibrate``.
        thresholds: Without the slack.
        method: Of ``oneproj.solve``.
        report: Called with None after every run.
        **options: Of ``oneproj.solve``.

    Raises:
        CalibrationError: A run ended infeasible; the message says which.

    Example:
        >>> from oneproj_paper.data import gaussian_abstention
        >>> from oneproj_paper.tasks import PAPER
        >>> samples = {0: Development.of(gaussian_abstention(seed=0))}
        >>> settings = PAPER["abstention-gaussian"]
        >>> trial = attempt(settings, samples, (0.3, 0.3), steps=50)
        >>> 0.05 < trial.errors[0] < 0.3
        True
    """
    found = []
    for seed, sample in samples.items():
        try:
            found.append(_train(settings, sample, thresholds, seed, method, **options))
        except InfeasibleError as error:
            raise CalibrationError(_infeasible(thresholds, seed)) from error
        if report is not None:
            report(None)
    errors = (
        fmean(each.class_0_error for each in found),
        fmean(each.class_1_error for each in found),
    )
    return Trial(thresholds, errors, fmean(each.ambiguity for each in found))


def _task(
    settings: Settings,
    samples: Mapping[int, Development],
    targets: Pair | None,
    *,
    paired: bool,
) -> Task:
    if settings.task != "abstention" or not samples:
        message = (
            "Thresholds are those of classification with abstention, on at least one "
            f"seed; got the task {settings.task!r} and {len(samples)} seeds."
        )
        raise InvalidProblemError(message)
    alpha = settings.target_error
    if targets is None and alpha is None:
        message = "The experiment has no target error of its own: give targets."
        raise InvalidProblemError(message)
    counts = [sample.validation.counts for sample in samples.values()]
    if not all(map(all, counts)):
        message = (
            "Every validation part needs examples of both classes to have errors, got "
            f"{counts} of class 0 and class 1."
        )
        raise InvalidProblemError(message)
    first, second = zip(*counts, strict=True)
    most = [
        max(ns) for ns in zip(*(s.train.counts for s in samples.values()), strict=True)
    ]
    return Task(
        targets=(alpha, alpha) if targets is None else targets,  # type: ignore[arg-type]
        slacks=(SLACK * most[0] ** -0.5, SLACK * most[1] ** -0.5),
        examples=(float(sum(first)), float(sum(second))),
        paired=paired,
    )


def _train(
    settings: Settings,
    sample: Development,
    thresholds: Pair,
    seed: int,
    method: str,
    **options: Any,  # noqa: ANN401 - of ``solve``
) -> AbstentionMetrics:
    """Train from the seed's start; measure on validation data."""
    scores = Scores(
        sample.train.x.shape[1],
        settings.hidden,
        settings.activation,
        generator=start_generator(seed),
        dtype=sample.train.x.dtype,
    )
    caps = slackened(thresholds, sample.train)
    problem = abstention_problem(
        scores, sample.train, caps=caps, radius=settings.radius
    )
    projector = PROJECTORS[options.pop("projector", Cuts.name)]()
    solve(
        problem,
        method=method,
        seed=seed,
        projector=projector,
        progress=False,
        **options,
    )
    return abstention_metrics(scores, sample.validation)


def _infeasible(thresholds: Pair, seed: int) -> str:
    caps = ", ".join(f"{threshold:.4g}" for threshold in thresholds)
    return (
        f"With thresholds ({caps}) no feasible point was found on seed {seed}. Try: "
        "(a) larger targets, or a looser start, (b) a larger radius or model, (c) "
        "another projector."
    )


def _ignore(trial: Trial | None) -> None:
    del trial
