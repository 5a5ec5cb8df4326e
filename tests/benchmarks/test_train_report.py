"""Bars, tables and the figure, from records whose numbers are known."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.train_bars import judge_bars, problems_of, summaries
from benchmarks.train_contestants import (
    BARE,
    EXTRAPOLATED,
    MINE,
    REFERENCE,
    RIVAL,
    TIGHT,
)
from benchmarks.train_figure import draw_anytime
from benchmarks.train_table import train_tables

GAUSSIAN, NASA = "abstention-gaussian", "abstention-nasa"


def make_run(contestant: str, seed: int = 0, **changes: object) -> dict[str, Any]:
    point = {"update": 1, "seconds": 0.1, "objective": 0.7, "residual": -0.1}
    late = {"update": 9, "seconds": 0.9, "objective": 0.5, "residual": -0.1}
    return {
        "problem": GAUSSIAN,
        "contestant": contestant,
        "about": "as it is",
        "seed": seed,
        "linear": True,
        "reason": None,
        "objective": 0.5,
        "residual": -1e-7,
        "residual_before": 0.01,
        "seconds": 1.0,
        "project_seconds": 0.1,
        "updates": 9,
        "complete": True,
        "note": "",
        "objective_gradients": 9,
        "constraint_gradients": 30,
        "overhead": None,
        "constraint_passes": 4,
        "projections": 1,
        "feasible": True,
        "surroundings": {"cpu_count": 2, "torch": "2.0"},
        "trace": [p | {"residual_before": 0.2} for p in (point, late)],
        **changes,
    }


def make_record(*runs: dict[str, Any]) -> dict[str, Any]:
    conditions = {"steps": 500, "projector": "cuts", "dtype": "float32", "threads": 1}
    return {"conditions": conditions, "skipped": {}, "runs": list(runs)}


def bars(*runs: dict[str, Any]) -> dict[str, tuple[float, bool, int]]:
    found = judge_bars(make_record(*runs))
    return {bar.what: (bar.value, bar.met, bar.seeds) for bar in found}


def test_means_are_compared_over_the_seeds_that_both_have() -> None:
    mine = [make_run(MINE, s, objective=v) for s, v in enumerate((0.3, 0.5, 9.0))]
    theirs = [
        make_run(RIVAL, s, objective=v) for s, v in ((0, 0.4), (1, 0.4), (7, 9.0))
    ]
    value, met, seeds = bars(*mine, *theirs)["objective / Projected SGD's"]
    assert value == pytest.approx(1.0)
    assert (met, seeds) == (True, 2)


@pytest.mark.parametrize("change", [{"feasible": False}, {"complete": False}])
def test_an_infeasible_or_unfinished_run_has_no_objective(
    change: dict[str, bool],
) -> None:
    runs = [make_run(MINE, 0), make_run(MINE, 1), make_run(RIVAL, 0)]
    broken = make_run(RIVAL, 1, objective=0.0, **change)
    found = bars(*runs, broken)
    assert found["objective / Projected SGD's"] == (1.0, True, 1)
    summary = summaries(make_record(*runs, broken), GAUSSIAN)[1]
    assert (summary.made, summary.counted, summary.objective) == (2, 1, 0.5)


def test_networks_that_abstain_must_be_a_tenth_lower() -> None:
    for objective, met in ((0.46, False), (0.44, True)):
        runs = [make_run(MINE, objective=objective), make_run(RIVAL)]
        for run in runs:
            run |= {"problem": NASA, "linear": False}
        value, met_it, _ = bars(*runs)["objective / Projected SGD's"]
        assert value == pytest.approx(2 * objective)
        assert met_it is met


@pytest.mark.parametrize(("objective", "met"), [(0.5014, True), (0.5016, False)])
def test_the_optimum_is_within_three_thousandths(
    *, objective: float, met: bool
) -> None:
    found = bars(make_run(MINE, objective=objective), make_run(REFERENCE))
    assert found["objective / SLSQP's"][1] is met


@pytest.mark.parametrize(("linear", "bar"), [(True, 5.0), (False, 20.0)])
def test_time_ratios_are_paired_seed_by_seed(*, linear: bool, bar: float) -> None:
    # The machine slows down tenfold; the ratio does not notice.
    slow = [(MINE, 1.0), (RIVAL, bar), (MINE, 10.0), (RIVAL, 10 * bar)]
    runs = [
        make_run(name, k // 2, seconds=seconds, linear=linear)
        for k, (name, seconds) in enumerate(slow)
    ]
    assert bars(*runs)["Projected SGD's time"] == (bar, True, 2)
    runs[3] |= {"complete": False, "seconds": 1e9}
    assert bars(*runs)["Projected SGD's time"] == (bar, True, 1)
    runs[1]["seconds"] = 0.9 * bar
    assert bars(*runs)["Projected SGD's time"][1] is False


def test_the_other_bars() -> None:
    mine = make_run(MINE, problem=NASA, linear=False, residual=1e-9)
    bare = make_run(BARE, problem=NASA, linear=False, objective=None, overhead=2.1)
    paper = make_run(
        EXTRAPOLATED, problem=NASA, linear=False, objective=None, seconds=201.0
    )
    tight = make_run(TIGHT, problem=NASA, linear=False, objective=None, seconds=19.0)
    found = bars(mine, bare, paper, tight)
    what = "time with projections to KKT 1e-6 (extrapolated)"
    assert found[what] == (19.0, False, 1)
    assert found["worst residual"] == (1e-9, False, 1)
    assert found["time / bare loop"] == (2.1, False, 1)
    what = "time with the paper's projector (extrapolated)"
    assert found[what] == (201.0, True, 1)


def test_a_reason_is_shown_and_nothing_is_made_up() -> None:
    absent = {
        "problem": GAUSSIAN,
        "contestant": "mdmm",
        "about": "",
        "seed": 0,
        "linear": True,
        "reason": "not installed",
        "surroundings": {"cpu_count": 2, "torch": "2.0"},
    }
    record = make_record(make_run(MINE), absent)
    (_, row) = summaries(record, GAUSSIAN)
    assert (row.made, row.counted, row.objective, row.seconds) == (1, 0, None, None)
    assert "not installed" in render(record)


def test_the_table_shows_a_missed_bar_a_skip_and_an_infeasible_run() -> None:
    runs = [make_run(MINE), make_run(MINE, 1), make_run(RIVAL, seconds=6.0)]
    record = make_record(*runs)
    text = render(record)
    assert "0.5 +- 0" in text
    assert "2 of 2" in text
    assert ">= 5 met" in text
    assert "MISSED" not in text
    record["runs"][1] |= {"feasible": False, "residual": 0.25}
    record["skipped"][NASA] = "no file"
    text = render(record)
    assert "1 of 2" in text
    assert "<= 0 MISSED" in text
    assert "skipped: no file" in text


def render(record: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=250)
    for table in train_tables(json.loads(json.dumps(record))):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_figure_has_a_line_per_method_and_is_the_same_twice(tmp_path: Path) -> None:
    runs = [make_run(MINE), make_run(RIVAL), make_run(RIVAL, 1, trace=[])]
    runs += [make_run(MINE, problem=NASA), make_run(BARE, trace=[])]
    first, second = (
        draw_anytime(make_record(*runs), tmp_path / f"{name}.json") for name in "ab"
    )
    assert [file.suffix for file in first] == [".png", ".svg"]
    assert first[1].read_bytes() == second[1].read_bytes()
    text = first[1].read_text()
    for shown in (MINE, RIVAL, GAUSSIAN, NASA, "objective after projection"):
        assert f"<!-- {shown} -->" in text, shown
    assert BARE not in text
    assert first[0].stat().st_size > 10_000


def test_a_failed_projection_is_not_drawn_above(tmp_path: Path) -> None:
    good, bad = make_run(MINE), make_run(RIVAL)
    for point in bad["trace"]:
        point["residual"] = 0.1
    file = draw_anytime(make_record(good, bad), tmp_path / "a.json")[1]
    assert f"<!-- {RIVAL} -->" not in file.read_text()


def test_a_record_without_runs_has_no_figure(tmp_path: Path) -> None:
    assert draw_anytime(make_record(), tmp_path / "a.json") == []
    assert problems_of(make_record()) == []
