"""Running the rows: resume bit for bit, whatever the grouping, and stop in between."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from oneproj.errors import InvalidScheduleError
from oneproj_paper.laboratory import checkpoints
from oneproj_paper.laboratory.plans import Plan, make_plans
from oneproj_paper.laboratory.problems import all_problems, smooth_problem
from oneproj_paper.laboratory.runner import run_group, run_plans
from oneproj_paper.laboratory.twin import trial_words

FACTOR = 100  # T = 6, K = 158,540


def small_plan(trials: int = 3, seed: int = 7) -> Plan:
    return Plan(problem=smooth_problem(), trials=trials, seed=seed, factor=FACTOR)


@pytest.mark.parametrize("stop_after", [1, 4])
def test_stop_and_resume_equals_an_uninterrupted_run(
    tmp_path: Path, stop_after: int
) -> None:
    plan, stop, made = small_plan(), Event(), []

    def report(_key: str, steps: int) -> None:
        made.append(steps)
        if len([s for s in made if s]) == stop_after:
            stop.set()

    whole = run_group(plan, plan.groups[0], folder=tmp_path / "whole")
    part = run_group(
        plan, plan.groups[0], folder=tmp_path / "part", report=report, stop=stop
    )
    assert part.done == stop_after
    assert not part.complete
    assert np.isnan(part.path[stop_after + 1 :]).all()
    rest = run_group(plan, plan.groups[0], folder=tmp_path / "part")
    assert whole.complete
    assert rest.complete
    np.testing.assert_array_equal(rest.path, whole.path)
    np.testing.assert_array_equal(rest.words, whole.words)
    assert rest.seconds > part.seconds


def test_an_interrupt_stops_every_group_and_the_next_call_continues(
    tmp_path: Path,
) -> None:
    plan, calls = small_plan(trials=10), []

    def report(_key: str, _steps: int) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plans([plan], folder=tmp_path / "part", jobs=2, report=report)
    made = len(calls)
    assert made < 2 * (plan.schedule.outer_steps + 1)
    rest = run_plans([plan], folder=tmp_path / "part", jobs=1)["theorem-1"]
    whole = run_plans([plan], folder=tmp_path / "whole", jobs=1)["theorem-1"]
    for a, b in zip(rest, whole, strict=True):
        np.testing.assert_array_equal(a.path, b.path)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    plan, steps = small_plan(), []
    first = run_group(plan, plan.groups[0], folder=tmp_path)
    again = run_group(
        plan,
        plan.groups[0],
        folder=tmp_path,
        report=lambda _key, made: steps.append(made),
    )
    np.testing.assert_array_equal(again.path, first.path)
    assert steps == [plan.schedule.outer_steps * plan.trials]
    assert again.seconds == first.seconds


def test_a_trial_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    plan = small_plan(trials=10)
    groups = run_plans([plan], folder=tmp_path, jobs=2)["theorem-1"]
    assert [len(group.path[0]) for group in groups] == [8, 2]
    alone = run_group(small_plan(trials=3), range(3), folder=tmp_path / "alone")
    np.testing.assert_array_equal(groups[0].path[:, :3], alone.path)
    ninth = Plan(problem=plan.problem, trials=9, seed=7, factor=FACTOR).groups[1]
    single = run_group(plan, ninth, folder=tmp_path / "single")
    np.testing.assert_array_equal(groups[1].path[:, :1], single.path)
    assert len({tuple(x) for g in groups for x in g.path[-1]}) == 10


def test_other_settings_use_other_checkpoints() -> None:
    plans = [small_plan(), small_plan(seed=8)]
    plans += [Plan(problem=smooth_problem(), trials=3, seed=7, factor=FACTOR + 1)]
    plans += [
        Plan(problem=p, trials=3, seed=7, factor=FACTOR) for p in all_problems()[1:]
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert small_plan(trials=5).digest == small_plan().digest  # a trial is the same


def test_a_checkpoint_of_another_shape_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    words = trial_words(0, "x", 2)
    checkpoints.save(checkpoints.Trajectory(np.zeros((4, 2, 2)), words, 1, 2.0), file)
    kept = checkpoints.load(file, outer_steps=3, trials=2)
    assert kept is not None
    assert (kept.done, kept.seconds) == (1, 2.0)
    np.testing.assert_array_equal(kept.words, words)
    assert checkpoints.load(file, outer_steps=3, trials=3) is None
    assert checkpoints.load(tmp_path / "none.npz", outer_steps=3, trials=2) is None
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]  # no draft left behind


def test_selection_is_uniform_over_the_index_set() -> None:
    for plan in make_plans(trials=2000, seed=1, quick=True):
        drawn, indices = plan.selected, plan.schedule.indices
        assert min(drawn) == indices[0] == plan.schedule.first_index
        assert max(drawn) == indices[-1]
        mean, spread = np.mean(drawn), len(indices) / np.sqrt(12 * len(drawn))
        assert abs(mean - np.mean(indices)) < 4 * spread


def test_quick_is_outside_the_theorem_and_full_is_inside() -> None:
    for quick in (False, True):
        for plan in make_plans(trials=8, seed=0, quick=quick):
            assert plan.schedule.within_theorem is not quick


def test_a_plan_without_trials_is_refused() -> None:
    with pytest.raises(InvalidScheduleError, match="at least one trial"):
        Plan(problem=smooth_problem(), trials=0, seed=0)
