"""The six experiments of the paper, ready to solve: data, model, problem and start."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from oneproj.errors import InvalidProblemError
from oneproj.problem.problem import Problem
from oneproj.problem.terms import Constraint
from oneproj.vectors.arithmetic import assign, snapshot
from oneproj_paper.data.samples import Sample, Splits, TransferSplits
from oneproj_paper.tasks.abstention import abstention_problem, slackened
from oneproj_paper.tasks.abstention_metrics import abstention_metrics
from oneproj_paper.tasks.models import Score, Scores
from oneproj_paper.tasks.settings import PAPER, Method, Settings
from oneproj_paper.tasks.source_reference import fit_source
from oneproj_paper.tasks.transfer import source_cap, transfer_problem
from oneproj_paper.tasks.transfer_metrics import transfer_metrics

START_STREAM = 1
"""Keeps the start's random numbers apart from those that ``solve`` draws of a seed."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A problem of the paper with what is needed to run, repeat and judge it.

    Example:
        >>> experiment = build("abstention-gaussian", seed=0)
        >>> sorted(experiment.measure(experiment.data.test))
        ['ambiguity', 'class_0_error', 'class_1_error', 'decided_accuracy']
    """

    name: str
    settings: Settings
    data: Splits
    model: Score | Scores
    problem: Problem
    start: tuple[Tensor, ...]
    """The parameters as ``build`` left them."""
    start_seconds: float
    """What the source-reference fit took; 0 for abstention."""

    @property
    def caps(self) -> dict[str, float]:
        """The bound on each constrained risk."""
        constraints = self.problem.constraints.items()
        return {name: c.bound for name, c in constraints if isinstance(c, Constraint)}

    def reset(self) -> None:
        """Put the parameters back to the start, so that methods share it."""
        assign(self.problem.parameters, self.start)

    def measure(self, sample: Sample) -> dict[str, float]:
        """The metrics of the task for the present parameters on a sample."""
        if isinstance(self.model, Scores):
            return asdict(abstention_metrics(self.model, sample))
        return asdict(transfer_metrics(self.model, sample))


def build(
    name: str,
    seed: int = 0,
    *,
    thresholds: Method | tuple[float, float] | None = None,
    radius: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Experiment:
    """Load the data of an experiment, initialise its model and state its problem.

    The seed determines the sample or the split, and the start. Methods that are given
    the same experiment solve the same problem from the same start; the paper's own
    tables do not, since it calibrated the thresholds per method.

    Args:
        name: A key of ``PAPER``, such as ``"abstention-nasa"``.
        seed: Of the data and of the start.
        thresholds: On the two surrogate class errors, without the slack, or the
            method whose calibrated ones to take: ``"one-projection"`` if left out.
        radius: Of the safeguard ball; the experiment's own if left out.
        dtype: Of data and model.

    Raises:
        InvalidProblemError: There is no such experiment, or it has no thresholds.
        DataNotFoundError: A file is missing; the message says what to do.

    Example:
        >>> experiment = build("transfer-gaussian", seed=0)
        >>> list(experiment.problem.constraints), experiment.problem.radius
        (['source risk'], 20.0)
    """
    settings = _settings(name, thresholds)
    radius = settings.radius if radius is None else radius
    data = settings.load(seed, dtype=dtype)
    shape = (data.train.x.shape[1], settings.hidden, settings.activation)
    generator = start_generator(seed)
    model: Score | Scores
    seconds = 0.0
    if isinstance(data, TransferSplits):
        model = Score(*shape, generator=generator, dtype=dtype)
        seconds = _fit_source(model, data.source, settings, generator)
        problem = transfer_problem(model, data, radius=radius)
    else:
        model = Scores(*shape, generator=generator, dtype=dtype)
        caps = slackened(_thresholds(settings, thresholds), data.train)
        problem = abstention_problem(model, data.train, caps=caps, radius=radius)
    start = tuple(snapshot(problem.parameters))
    return Experiment(name, settings, data, model, problem, start, seconds)


def _settings(name: str, thresholds: object) -> Settings:
    if name not in PAPER:
        message = f"There is no experiment {name!r}. Known: {', '.join(PAPER)}."
        raise InvalidProblemError(message)
    settings = PAPER[name]
    if settings.task == "transfer" and thresholds is not None:
        message = (
            f"{name!r} has no thresholds: its source risk is capped at 1/sqrt(n). "
            f"Leave thresholds out, got {thresholds!r}."
        )
        raise InvalidProblemError(message)
    return settings


def _thresholds(
    settings: Settings, given: Method | tuple[float, float] | None
) -> tuple[float, float]:
    if isinstance(given, tuple):
        return given
    method = "one-projection" if given is None else given
    known = {name: of.thresholds for name, of in settings.methods.items()}
    found = known.get(method)
    if found is None:
        message = (
            f"thresholds must be two numbers or one of {', '.join(known)}, got "
            f"{given!r}."
        )
        raise InvalidProblemError(message)
    return found


def start_generator(seed: int) -> torch.Generator:
    """The random numbers of a seed's start: the same wherever the seed is run.

    Example:
        >>> same = [torch.rand(2, generator=start_generator(3)) for _ in range(2)]
        >>> torch.equal(*same)
        True
    """
    state = np.random.SeedSequence((seed, START_STREAM)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))


def _fit_source(
    model: Score, source: Sample, settings: Settings, generator: torch.Generator
) -> float:
    """Fit the source reference where the experiment has one; say how long it took."""
    began = time.perf_counter()
    if settings.source_fit is not None:
        fit_source(
            model,
            source,
            settings.source_fit,
            cap=source_cap(source),
            batch_size=settings.batch_size,
            generator=generator,
        )
    return time.perf_counter() - began
