"""What is run: the six experiments under two presets, as data.

``"paper"`` is appendix D of the paper to the letter, as far as it goes: plain SGD with
a constant step, the penalty on the largest minibatch residual, the last outer iterate,
its projector with its published settings, and thresholds calibrated for each method.
Its numbers are in ``oneproj_paper.tasks.settings`` and in the defaults of the
projectors, and nowhere else. For transfer with a linear score it only says "a convex
numerical projection"; that is taken to be its projector for linear scores.

``"oneproj"`` is what ``oneproj.solve`` does when it is given nothing but the number of
updates. Its thresholds, and the number of updates, the radius of the safeguard ball and
the batch size that they are for, are calibrated on validation data
(``oneproj_paper.experiments.calibration``), by whoever gives a file of them or by us.
Where that was not done, thresholds and radius are the paper's and the updates 500, as
many as the paper makes with either method on every abstention problem.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from oneproj.errors import InvalidProblemError
from oneproj.methods.step_size import choose_inner_steps
from oneproj_paper.experiments.calibration_file import (
    SHIPPED,
    Calibration,
    read_calibrations,
)
from oneproj_paper.experiments.calibration_search import Pair
from oneproj_paper.experiments.record_schema import Key, Method, Preset, Projector
from oneproj_paper.projectors import PROJECTORS
from oneproj_paper.tasks import PAPER, Settings

STEPS = 500
"""Updates of the preset "oneproj", unless its calibration has another number."""
LINEAR_PROJECTOR: Projector = "dual-bisection"
"""Of the paper, for linear scores."""
NETWORK_PROJECTOR: Projector = "augmented-lagrangian"
"""Of the paper, for networks."""
OWN_PROJECTOR: Projector = "cuts"


@dataclass(frozen=True)
class Spec:
    """All runs of an experiment that differ by their seed only.

    Example:
        >>> spec = make_spec("abstention-nasa", "paper", "projected-sgd")
        >>> spec.projector, spec.updates, spec.thresholds, spec.options["lr"]
        ('augmented-lagrangian', 500, (0.26, 0.28), 0.03)
    """

    experiment: str
    preset: Preset
    method: Method
    projector: Projector
    updates: int
    inner_steps: int
    """Between two points of the history; K of One Projection."""
    thresholds: Pair | None
    """On the surrogate class errors, without the slack; None for transfer."""
    radius: float
    """Of the safeguard ball."""
    options: Mapping[str, Any]
    """What ``oneproj.solve`` is given beyond method, steps, seed and projector."""
    calibrated: Path | None = None
    """The user's file that the thresholds come from, if they do."""

    @property
    def paper(self) -> Settings:
        """The experiment as the paper states it."""
        return PAPER[self.experiment]

    @property
    def is_slow(self) -> bool:
        """Whether an update takes seconds: it has 900 gradients on all data."""
        return (
            self.method == "projected-sgd"
            and self.projector == NETWORK_PROJECTOR
            and bool(self.paper.hidden)
        )

    def key(self, seed: int) -> Key:
        """What the run of a seed is known by."""
        return Key(self.experiment, self.preset, self.method, self.projector, seed)

    def settings(self) -> dict[str, Any]:
        """Everything that determines a run beyond its seed and the library's defaults.

        Example:
            >>> spec = make_spec("abstention-gaussian", "oneproj", "one-projection")
            >>> spec.settings()["projector_options"], spec.settings()["radius"]
            ({...'tolerance': ...}, 2.0)
        """
        paper = self.paper
        return {
            **self.options,
            "updates": self.updates,
            "inner_steps": self.inner_steps,
            "thresholds": None if self.thresholds is None else list(self.thresholds),
            "target_error": paper.target_error,
            "radius": self.radius,
            "hidden": list(paper.hidden),
            "activation": paper.activation,
            "projector_options": _defaults(PROJECTORS[self.projector]),
        }


def make_spec(
    experiment: str,
    preset: Preset,
    method: Method,
    projector: Projector | None = None,
    *,
    thresholds: Path | None = None,
) -> Spec:
    """The runs of an experiment under a preset.

    Args:
        experiment: A key of ``oneproj_paper.tasks.PAPER``.
        preset: ``"paper"`` or ``"oneproj"``.
        method: ``"one-projection"`` or ``"projected-sgd"``.
        projector: ``"cuts"``, ``"augmented-lagrangian"`` or, for linear scores,
            ``"dual-bisection"``; the preset's if left out.
        thresholds: A file of calibrations, for the preset ``"oneproj"``: of thresholds,
            updates, radius and batch size. What it does not have is as if there were
            none.

    Raises:
        InvalidProblemError: One of them is unknown, or the projector does not fit.
        CalibrationError: The file is none of calibrations.

    Example:
        >>> make_spec("transfer-climsim", "oneproj", "one-projection").updates
        500
    """
    _check("experiment", experiment, PAPER)
    _check("preset", preset, get_args(Preset))
    _check("method", method, get_args(Method))
    paper = PAPER[experiment]
    chosen = _projector(experiment, preset, projector)
    limits, calibrated = paper.methods[method].thresholds, None
    radius = paper.radius
    if preset == "paper":
        updates, inner_steps = paper.methods[method].updates, paper.inner_steps
        options = paper_options(paper, method)
    else:
        updates, options = STEPS, {}
        found, calibrated = _calibration(experiment, method, thresholds)
        if found is not None:
            limits, updates, options = found.thresholds, found.updates, found.options
            radius = radius if found.radius is None else found.radius
        inner_steps = choose_inner_steps(None, updates)
    return Spec(
        experiment=experiment,
        preset=preset,
        method=method,
        projector=chosen,
        updates=updates,
        inner_steps=inner_steps,
        thresholds=limits,
        radius=radius,
        options=options,
        calibrated=calibrated,
    )


def make_specs(
    experiments: Iterable[str],
    presets: Iterable[Preset],
    methods: Iterable[Method],
    projector: Projector | None = None,
    *,
    thresholds: Path | None = None,
) -> list[Spec]:
    """The specs of all combinations, experiment by experiment.

    Example:
        >>> specs = make_specs(PAPER, get_args(Preset), get_args(Method))
        >>> len(specs), sum(spec.is_slow for spec in specs)
        (24, 4)
    """
    methods, presets = tuple(methods), tuple(presets)
    return [
        make_spec(experiment, preset, method, projector, thresholds=thresholds)
        for experiment in experiments
        for preset in presets
        for method in methods
    ]


def paper_options(paper: Settings, method: Method) -> dict[str, Any]:
    """What ``oneproj.solve`` is given to do as the paper did, all but the updates.

    Example:
        >>> paper_options(PAPER["abstention-nasa"], "projected-sgd")
        {'lr': 0.03, 'batch_size': 64, 'base': 'sgd', 'decay': 'constant'}
    """
    shared = {
        "lr": paper.methods[method].lr,
        "batch_size": paper.batch_size,
        "base": "sgd",
        "decay": "constant",
    }
    if method == "projected-sgd":
        return shared
    return shared | {
        "inner_steps": paper.inner_steps,
        "late_weight": 0.0,
        "prox_weight": paper.prox_weight,
        "strength": paper.strength,
        "combine": "max",
        "select": "last",
        "oracle": "minibatch",
    }


def _calibration(
    experiment: str, method: Method, given: Path | None
) -> tuple[Calibration | None, Path | None]:
    """The calibration of the preset "oneproj", and the user's file if it is in it."""
    if PAPER[experiment].task != "abstention":
        return None, None
    key = experiment, "oneproj", method
    for file in (given, SHIPPED):
        known = [] if file is None else read_calibrations(file)
        for calibration in known:
            if calibration.key == key:
                return calibration, given if file is given else None
    return None, None


def _projector(experiment: str, preset: Preset, given: Projector | None) -> Projector:
    linear = not PAPER[experiment].hidden
    if given is None:
        paper = LINEAR_PROJECTOR if linear else NETWORK_PROJECTOR
        return paper if preset == "paper" else OWN_PROJECTOR
    _check("projector", given, get_args(Projector))
    if given == LINEAR_PROJECTOR and not linear:
        message = (
            f"The projector {given!r} needs convex constraints, and the networks of "
            f"{experiment!r} have none. Use {OWN_PROJECTOR!r} or "
            f"{NETWORK_PROJECTOR!r}, or leave it out to take the preset's own."
        )
        raise InvalidProblemError(message)
    return given


def _check(what: str, given: str, known: Iterable[str]) -> None:
    if given not in (names := tuple(known)):
        message = f"There is no {what} {given!r}. Known: {', '.join(names)}."
        raise InvalidProblemError(message)


def _defaults(projector: type[Any]) -> dict[str, Any]:
    """The settings of a projector that is made without any."""
    parameters = inspect.signature(projector).parameters.values()
    return {p.name: p.default for p in parameters}
