"""The verdict of a row: every way to fail is a failure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from oneproj_paper.laboratory.checkpoints import Trajectory
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.problems import all_problems, smooth_problem
from oneproj_paper.laboratory.records import Record, judge, success_bound
from oneproj_paper.laboratory.tables import COLUMNS, markdown_table, table_cells
from oneproj_paper.laboratory.twin import trial_words


def resting_plan(trials: int = 8, factor: int = 1) -> tuple[Plan, Trajectory]:
    """A plan, and a trajectory that sits at a solution from x_1 on."""
    problem = smooth_problem()
    plan = Plan(problem=problem, trials=trials, seed=0, factor=factor)
    path = np.tile(problem.solutions[0], (plan.schedule.outer_steps + 1, trials, 1))
    path[0] = problem.start_point
    done = plan.schedule.outer_steps
    return plan, Trajectory(path, trial_words(0, "x", trials), done, 1.5)


def good_record() -> Record:
    plan, trajectory = resting_plan()
    return judge(plan, [trajectory])


def test_a_row_that_keeps_its_word_passes() -> None:
    record = good_record()
    assert record.passed
    assert (record.successes, record.projections, record.trials) == (8, 8, 8)
    assert record.success_bound == pytest.approx(0.05 ** (1 / 8))
    assert record.largest_residual <= 0
    assert record.within_theorem
    assert record.start_measure > record.epsilon


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start_measure": 1.0}, "already satisfies"),
        ({"projections": 9}, "9 projections for 8 trials"),
        ({"largest_residual": 1e-17}, "infeasible"),
        ({"largest_residual": float("nan")}, "infeasible"),
        ({"successes": 7, "success_bound": 0.529}, "7 successes of 8 are too few"),
        ({"within_theorem": False}, "not the theorem's"),
    ],
)
def test_each_defect_fails_the_row(change: dict[str, float], reason: str) -> None:
    record = replace(good_record(), **change)
    assert not record.passed
    assert len(record.failures) == 1
    assert reason in record.failures[0]
    assert "FAIL" in table_cells(record)[-1]


def test_a_shortened_row_needs_two_thirds_and_says_what_it_is() -> None:
    record = replace(good_record(), factor=16, within_theorem=False, success_bound=0.4)
    assert replace(record, successes=6).passed
    assert not replace(record, successes=5).passed
    assert "outside the theorem" in table_cells(record)[-1]
    assert markdown_table([record]).startswith("# Outside the theorems")


def test_selected_iterates_are_the_drawn_ones() -> None:
    """A trial that is good everywhere but at its J fails."""
    plan, trajectory = resting_plan()
    trajectory.path[plan.selected[2], 2] = plan.problem.start_point
    record = judge(plan, [trajectory])
    assert record.successes == 7
    assert record.measures[2] == pytest.approx(record.start_measure)


def test_bound_is_clopper_pearson() -> None:
    """The bound p solves P(X >= successes; p) = 5 %."""
    for successes, trials in ((8, 8), (7, 8), (15, 16), (1, 3)):
        p = brentq(lambda p: binom.sf(successes - 1, trials, p) - 0.05, 1e-9, 1 - 1e-9)  # noqa: B023
        assert success_bound(successes, trials) == pytest.approx(p, rel=1e-6)
    assert success_bound(0, 8) == 0.0
    assert success_bound(8, 8) >= 2 / 3 > success_bound(7, 8)


def test_the_table_has_a_cell_per_column() -> None:
    record = good_record()
    assert len(table_cells(record)) == len(COLUMNS)
    page = markdown_table([record])
    assert f"| {record.inner_steps:,} |" in page
    assert "8/8 | 0.687 | 8 |" in page


def test_to_dict_is_plain_and_complete() -> None:
    content = good_record().to_dict()
    assert content["passed"] is True
    assert {"constants", "epsilon", "versions", "seconds"} <= set(content)
    assert len({problem.key for problem in all_problems()}) == 3
