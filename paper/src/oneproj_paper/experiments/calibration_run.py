"""A calibration of one of the paper's experiments, with where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from oneproj.arguments import check_count, check_number
from oneproj.errors import InvalidProblemError
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments.calibration import (
    FIRST_SEED,
    Development,
    Search,
    attempt,
    calibrate,
)
from oneproj_paper.experiments.calibration_file import Calibration
from oneproj_paper.experiments.calibration_search import (
    ROUNDS,
    Pair,
    Trial,
    comes_up,
    shortfalls,
)
from oneproj_paper.experiments.interrupts import abandoning
from oneproj_paper.experiments.record_schema import Method, Preset
from oneproj_paper.experiments.specs import OWN_PROJECTOR, STEPS, make_spec
from oneproj_paper.experiments.surroundings import one_thread, versions
from oneproj_paper.tasks.settings import PAPER, Settings

NOMINAL, ASKED = "the paper's nominal errors", "errors that were asked for"
MATCHED = (
    "validation errors of the paper's own settings for {} on the same samples, where "
    "its ambiguity is {:.2%}"
)
"""Where targets come from, in words."""
BALL = "It is that of the safeguard ball: leave it out for the experiment's own."
EXAMPLES = "It is how many examples a minibatch has: leave it out for the default."
PUSH = "It is that of the penalty: leave it out for those that find themselves."


class Wanted(NamedTuple):
    """Settings to compare, for the preset ``"oneproj"``; see ``run_calibration``."""

    updates: Sequence[int] = ()
    radii: Sequence[float] = ()
    batch_sizes: Sequence[int] = ()
    strengths: Sequence[float] = ()


def run_calibration(
    experiment: str,
    *,
    preset: Preset = "oneproj",
    method: Method = "one-projection",
    targets: Pair | None = None,
    match: Method | None = None,
    start: Pair | None = None,
    updates: Sequence[int] = (),
    radii: Sequence[float] = (),
    batch_sizes: Sequence[int] = (),
    strengths: Sequence[float] = (),
    seeds: int = 10,
    rounds: int = ROUNDS,
    report: Callable[[Trial | None], None] | None = None,
) -> Calibration:
    """Calibrate the thresholds of an experiment, as a preset trains.

    Args:
        experiment: One of the paper's with abstention.
        preset: ``"paper"`` or ``"oneproj"``: the settings that training has.
        method: ``"one-projection"`` or ``"projected-sgd"``.
        targets: As for ``calibrate``.
        match: Aim at the validation errors of the paper's own settings and thresholds
            for this method on the same samples, in place of nominal ones. Only the
            projector is ours: with the paper's, Projected SGD takes hours.
        start: As for ``calibrate``.
        updates: Of a training, for the preset ``"oneproj"``: 500 if left out. Each
            number has a search of its own, and of what these find, all of which keeps
            the targets, the least ambiguous is taken. A model that fits its training
            data too well wants fewer updates.
        radii: Of the safeguard ball, for the preset ``"oneproj"``: the experiment's own
            if left out. Each is searched with each number of updates. Such a model may
            want a smaller ball in place of fewer updates.
        batch_sizes: Examples per minibatch, for the preset ``"oneproj"``: those of
            ``oneproj.solve`` if left out. Each is searched with each of the others.
        strengths: Of the penalty, for One Projection with the preset ``"oneproj"``: one
            per constraint, which finds itself, if left out. One that is given is that
            of a sharp hinge on the larger residual, as in the paper: a model that fits
            its training data too well may want that.
        seeds: How many, from ``FIRST_SEED`` on.
        rounds: As for ``calibrate``, for each combination of these.
        report: As for ``calibrate``.

    Raises:
        InvalidProblemError: There is no such experiment, or it has no thresholds.
        CalibrationError: No thresholds keep the targets; the message says how near.
        DataNotFoundError: A file is missing; the message says what to do.

    Example:
        >>> run_calibration("transfer-gaussian")
        Traceback (most recent call last):
        oneproj.errors.InvalidProblemError: There are thresholds to calibrate for ...
    """
    if match is not None and targets is not None:
        message = f"Give targets={targets} or match={match!r}, not both."
        raise InvalidProblemError(message)
    settings = _settings(experiment)
    wanted = Wanted(updates, radii, batch_sizes, strengths)
    choices = _choices(experiment, preset, method, wanted)
    numbers = tuple(range(FIRST_SEED, FIRST_SEED + seeds))
    samples = {seed: Development.of(settings.load(seed)) for seed in numbers}
    with abandoning(), one_thread():
        aim = NOMINAL if targets is None else ASKED
        if match is not None:
            targets, aim = _matched(experiment, match, samples, report)
        make = partial(
            calibrate,
            settings,
            samples,
            method=method,
            targets=targets,
            paired=match is not None,
            start=start,
            rounds=rounds,
            report=report,
        )
        options, found, others = _least_ambiguous(make, choices)
    return Calibration(
        experiment=experiment,
        preset=preset,
        method=method,
        thresholds=found.found.thresholds,
        targets=found.task.targets,
        aim=aim,
        errors=found.found.errors,
        ambiguity=found.found.ambiguity,
        note=" ".join(filter(None, (_note(found), others))),
        seeds=numbers,
        settings=options,
        trials=found.trials,
        versions=versions(),
    )


def _settings(experiment: str) -> Settings:
    known = [name for name, settings in PAPER.items() if settings.task == "abstention"]
    if experiment not in known:
        message = (
            f"There are thresholds to calibrate for {', '.join(known)}; got "
            f"{experiment!r}."
        )
        raise InvalidProblemError(message)
    return PAPER[experiment]


def _matched(
    experiment: str,
    method: Method,
    samples: Mapping[int, Development],
    report: Callable[[None], None] | None,
) -> tuple[Pair, str]:
    """The errors that another method makes, as targets, and their source in words."""
    other = _paper_trial(experiment, method, samples, report)
    aim = MATCHED.format(method, other.ambiguity).replace("%", " %")
    return other.errors, aim


def _paper_trial(
    experiment: str,
    method: Method,
    samples: Mapping[int, Development],
    report: Callable[[None], None] | None,
) -> Trial:
    """What the paper's settings reach with the paper's thresholds."""
    settings = PAPER[experiment]
    limits = settings.methods[method].thresholds
    if limits is None:
        message = f"The paper has no thresholds for {experiment!r} to be matched."
        raise InvalidProblemError(message)
    (options,) = _choices(experiment, "paper", method, Wanted())
    options["projector"] = OWN_PROJECTOR
    return attempt(settings, samples, limits, method=method, report=report, **options)


def _choices(
    experiment: str, preset: Preset, method: Method, wanted: Wanted
) -> list[dict[str, Any]]:
    """What a training of the preset is given, for each combination asked for."""
    updates, radii, sizes, strengths = wanted
    if preset == "oneproj":  # its specs need the thresholds that are yet to be found
        # Checked before data is read or a method trained for ten minutes.
        balls = [check_number("A radius", radius, BALL) for radius in radii]
        batches = [check_count("A batch size", size, EXAMPLES) for size in sizes]
        pushes = [check_number("A strength", strength, PUSH) for strength in strengths]
        return [
            {"steps": steps, "projector": OWN_PROJECTOR, **ball, **batch, **push}
            for steps in dict.fromkeys(updates or [STEPS])
            for ball in _each("radius", balls)
            for batch in _each("batch_size", batches)
            for push in _each("strength", pushes)
        ]
    if any(wanted):
        message = (
            f"The preset {preset!r} has the paper's updates, radius, batch size and "
            f"strength; got updates={list(updates)}, radii={list(radii)}, batch_sizes="
            f"{list(sizes)} and strengths={list(strengths)}. Leave them out, or take "
            "the preset 'oneproj'."
        )
        raise InvalidProblemError(message)
    spec = make_spec(experiment, preset, method)
    return [{"steps": spec.updates, "projector": spec.projector, **spec.options}]


def _each(name: str, values: Sequence[float]) -> list[dict[str, float]]:
    """A setting with each of its values, or not at all."""
    return [{name: value} for value in dict.fromkeys(values)] or [{}]


def _least_ambiguous(
    make: Callable[..., Search], choices: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], Search, str]:
    """Make every search; what to take, with its options, and in words why."""
    done: list[tuple[dict[str, Any], Search]] = []
    told: list[str] = []
    for options in choices:
        try:
            found = make(**options)
        except CalibrationError as error:
            failure = error
            told.append(f"{_in_words(options)} do not keep the targets")
        else:
            done.append((options, found))
            share = f"{found.found.ambiguity:.2%}".replace("%", " %")
            told.append(f"{_in_words(options)} have an ambiguity of {share}")
    if not done:
        raise failure
    taken = min(done, key=lambda each: each[1].found.ambiguity)
    return *taken, f"On validation data {', '.join(told)}." if len(told) > 1 else ""


def _in_words(options: Mapping[str, Any]) -> str:
    ball = f" in radius {options['radius']:g}" if "radius" in options else ""
    batch = f" of {options['batch_size']} examples" if "batch_size" in options else ""
    push = f" with strength {options['strength']:g}" if "strength" in options else ""
    return f"{options['steps']} updates{batch}{ball}{push}"


def _note(search: Search) -> str:
    short = shortfalls(search.found, search.task)
    if not short:
        return ""
    below = " and ".join(short)
    if any(comes_up(trial, search.task) for trial in search.trials):
        return (
            f"On validation data {below}: a trial comes up to both targets, with more "
            "ambiguity."
        )
    return (
        f"The targets were not reached: on validation data {below}. Of the trials this "
        "is the nearest from below. Either the classes can be told apart that well "
        "without ambiguity, or the error jumps there; see the trials."
    )
