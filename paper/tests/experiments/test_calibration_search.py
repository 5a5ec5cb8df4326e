"""The search finds the caps whose errors are the targets, or says that it cannot."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj.errors import InvalidProblemError
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments.calibration_search import (
    LOOSEST,
    ROUNDS,
    Pair,
    Task,
    Trial,
    comes_up,
    search,
    shortfalls,
)

MANY = (1e5, 1e5)
NO_SLACK = (0.0, 0.0)


class Model:
    """Errors that are powers of the caps, with a pull of the other class's cap."""

    def __init__(
        self, scale: float, power: float, pull: float = 0.0, jumps: float = 0.0
    ) -> None:
        self.scale, self.power, self.pull, self.jumps = scale, power, pull, jumps
        self.seen: list[Pair] = []

    def __call__(self, thresholds: Pair) -> Trial:
        self.seen.append(thresholds)
        first, second = thresholds
        errors = self._error(first, second), self._error(second, first)
        return Trial(thresholds, errors, max(0.0, 1.0 - first - second))

    def _error(self, own: float, other: float) -> float:
        error = float(self.scale * own**self.power * other**self.pull)
        if self.jumps:
            error = math.floor(error / self.jumps) * self.jumps
        return min(1.0, error)


@given(
    scale=st.floats(0.2, 1.0),
    power=st.floats(0.7, 2.0),
    pull=st.floats(-0.1, 0.1),
    targets=st.tuples(st.floats(0.03, 0.2), st.floats(0.03, 0.2)),
)
def test_errors_come_up_to_the_targets_and_not_over(
    scale: float, power: float, pull: float, targets: Pair
) -> None:
    task = Task(targets, NO_SLACK, MANY)
    found, trials = search(Model(scale, power, pull), task, (0.3, 0.3))
    kept = [trial for trial in trials if task.keeps(trial)]
    near = [
        trial
        for trial in kept
        if all(e >= 0.93 * a for e, a in zip(trial.errors, targets, strict=True))
    ]
    assert near
    assert found in kept
    assert found.ambiguity <= min(trial.ambiguity for trial in near)
    assert all(e <= 1.02 * a for e, a in zip(found.errors, targets, strict=True))
    assert len(trials) <= ROUNDS


def test_a_bracket_that_the_other_class_has_outdated_is_forgotten() -> None:
    targets = (0.125, 0.03125)
    task = Task(targets, NO_SLACK, MANY)
    found, _ = search(Model(1.0, 0.8, pull=0.1), task, (0.3, 0.3))
    assert found.errors == pytest.approx(targets, rel=0.05)


def test_errors_that_jump_are_kept_below_the_target() -> None:
    task = Task((0.1, 0.1), NO_SLACK, MANY)
    found, _ = search(Model(0.5, 1.0, jumps=0.03), task, (0.4, 0.1))
    assert found.errors == pytest.approx((0.09, 0.09))


def test_few_examples_make_a_wide_window_and_a_short_search() -> None:
    few, many = (
        search(Model(0.4, 1.3), Task((0.1, 0.1), NO_SLACK, (n, n)), (0.3, 0.3))[1]
        for n in (50.0, 1e7)
    )
    assert len(few) < len(many)


def test_errors_of_another_training_on_the_same_examples_are_met_more_closely() -> None:
    targets, few = (0.1, 0.1), (500.0, 500.0)  # the standard error is 0.013
    apart = []
    for paired in (False, True):
        task = Task(targets, NO_SLACK, few, paired=paired)
        found, _ = search(Model(0.4, 1.3), task, (0.3, 0.3))
        apart.append(targets[0] - found.errors[0])
    loose, close = apart
    assert abs(close) < 0.0034 < loose


def test_an_error_on_the_same_examples_is_above_the_target_by_any_example() -> None:
    def measure(thresholds: Pair) -> Trial:
        # From 0.3 on both classes have one error more of 500, and less ambiguity.
        error = (50 if thresholds[0] < 0.3 else 51) / 500
        return Trial(thresholds, (error + 1e-16, error), 1.0 - sum(thresholds))

    few = (500.0, 500.0)  # a quarter of the standard error is 0.0034
    for paired, expected in ((False, 0.102), (True, 0.1)):
        task = Task((0.1, 0.1), NO_SLACK, few, paired=paired)
        found, _ = search(measure, task, (0.3, 0.3))
        assert found.errors == pytest.approx((expected, expected))


def test_a_threshold_may_be_negative_where_slack_makes_the_cap_positive() -> None:
    def measure(thresholds: Pair) -> Trial:
        first, second = (0.5 * (threshold + 0.1) for threshold in thresholds)
        return Trial(thresholds, (first, second), 0.0)

    task = Task((0.02, 0.02), (0.1, 0.1), MANY)
    found, _ = search(measure, task, (0.2, 0.2))
    assert found.thresholds == pytest.approx((-0.06, -0.06), abs=0.002)


def test_the_least_ambiguous_of_the_trials_that_keep_the_targets_is_taken() -> None:
    task = Task((0.1, 0.1), NO_SLACK, MANY)
    found, trials = search(Model(0.5, 1.5), task, (0.05, 0.05))
    kept = [trial.ambiguity for trial in trials if task.keeps(trial)]
    assert len(kept) > 1
    assert found.ambiguity == min(kept)


def test_an_error_that_stays_low_ends_at_the_loosest_cap_and_is_told() -> None:
    def measure(thresholds: Pair) -> Trial:
        return Trial(thresholds, (0.01, 0.4 * thresholds[1]), 0.0)

    task = Task((0.1, 0.1), NO_SLACK, MANY)
    found, trials = search(measure, task, (0.3, 0.3))
    assert max(trial.thresholds[0] for trial in trials) == pytest.approx(LOOSEST)
    assert len(trials) < ROUNDS
    assert found.errors[1] == pytest.approx(0.1, rel=0.05)
    assert shortfalls(found, task) == [
        "class 0 stays at 1.0 % where 10.0 % are allowed"
    ]


@pytest.mark.parametrize("start", [(1.0, 1.0), (1.0, 0.2), (0.3, 0.3)])
def test_of_trials_that_all_stay_below_the_nearest_is_taken(start: Pair) -> None:
    # All caps give an answer without ambiguity, so that it cannot decide.
    def measure(thresholds: Pair) -> Trial:
        first, second = (0.4 * threshold for threshold in thresholds)
        return Trial(thresholds, (first, second), 0.0)

    targets = (0.9, 0.85)
    task = Task(targets, NO_SLACK, MANY)
    found, trials = search(measure, task, start)
    assert len(trials) > 1
    assert not any(comes_up(trial, task) for trial in trials)
    assert found.errors == max(trial.errors for trial in trials)
    assert found.errors == pytest.approx((0.4 * LOOSEST, 0.4 * LOOSEST))
    assert len(shortfalls(found, task)) == 2


def test_what_is_nearest_counts_both_classes() -> None:
    answers = [(0.04, 0.09), (0.08, 0.08), (0.0, 0.095)]
    shares = [0.0, 0.2, 0.1]  # the nearest has the most ambiguity

    def measure(thresholds: Pair) -> Trial:
        return Trial(thresholds, answers.pop(0), shares.pop(0))

    task = Task((0.1, 0.1), NO_SLACK, MANY)
    found, trials = search(measure, task, (0.3, 0.3), rounds=3)
    assert len(trials) == 3
    assert found.errors == (0.08, 0.08)


def test_nearer_trials_do_not_matter_where_one_comes_up_to_both_targets() -> None:
    answers = [(0.1, 0.05), (0.1, 0.12), (0.099, 0.0985)]
    shares = [0.01, 0.0, 0.02]

    def measure(thresholds: Pair) -> Trial:
        return Trial(thresholds, answers.pop(0), shares.pop(0))

    task = Task((0.1, 0.1), NO_SLACK, MANY)
    found, trials = search(measure, task, (0.3, 0.3), rounds=3)
    assert comes_up(trials[-1], task)
    assert found is trials[0]  # it keeps the targets with less ambiguity


def test_an_error_that_stays_high_is_an_error_with_the_nearest_trial() -> None:
    def measure(thresholds: Pair) -> Trial:
        return Trial(thresholds, (0.5 * thresholds[0], 0.3), 0.0)

    task = Task((0.1, 0.1), NO_SLACK, MANY)
    with pytest.raises(CalibrationError, match=r"gives .* and 30\.00 %") as caught:
        search(measure, task, (0.3, 0.3))
    assert "larger targets" in str(caught.value)


def test_an_excess_counts_from_a_quarter_of_the_standard_error_on() -> None:
    task = Task((0.1, 0.1), NO_SLACK, (900.0, 900.0))  # a standard error of 0.01
    assert task.keeps(Trial((0.2, 0.2), (0.1024, 0.1), 0.0))
    assert not task.keeps(Trial((0.2, 0.2), (0.1, 0.1026), 0.0))


def test_every_trial_is_reported() -> None:
    told: list[Trial] = []
    task = Task((0.1, 0.1), NO_SLACK, MANY)
    _, trials = search(Model(0.3, 1.0), task, (0.5, 0.1), report=told.append)
    assert told == trials


@pytest.mark.parametrize("targets", [(0.0, 0.1), (0.1, 1.0), (5.0, 5.0), (-0.1, 0.1)])
def test_a_target_that_is_no_share_is_refused(targets: Pair) -> None:
    with pytest.raises(InvalidProblemError, match="between 0 and 1"):
        Task(targets, NO_SLACK, MANY)
