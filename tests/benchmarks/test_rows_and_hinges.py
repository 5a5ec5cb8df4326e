"""Records and verdicts of two short programs; no assertion on a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from benchmarks import hinges, rows
from benchmarks.hinges import hinge_row, print_row
from benchmarks.train_battery.problems import CASES

SHORT = replace(CASES["polygon"], steps=20)


def test_the_cost_of_rows_is_shown_by_part(
    run_program: Callable[..., Result], tmp_path: Path
) -> None:
    out = tmp_path / "rows.json"
    given = "--rows", 300, "--rows", 600, "--updates", 10, "--repeats", 2
    result = run_program("rows", *given, "--out", out)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())["rows"]
    assert [row["rows"] for row in found] == [300, 600]
    for row in found:
        assert list(row["seconds"]) == ["start", "train", "project", "certify"]
        assert row["met"] == (row["ratio"]["median"] <= rows.BAR)
        assert row["residual"] <= 0
        assert f"| {row['rows']} | {row['ratio']['median']:.2f} [" in result.output


def test_the_best_hinge_is_the_least_that_is_feasible() -> None:
    row = hinge_row(SHORT, seed=0)
    assert len(row["hinges"]) == 9
    feasible = [f for f in row["hinges"].values() if f is not None]
    assert row["best"] == min(feasible)
    assert row["met"] == (row["objective"] <= 1.1 * row["best"])


@pytest.mark.parametrize(("own", "met"), [(1.09, True), (1.11, False), (None, False)])
def test_ten_percent_are_allowed(
    monkeypatch: pytest.MonkeyPatch, *, own: float | None, met: bool
) -> None:
    answers: list[float | None] = [1.0, *[None] * 7, 3.0, own]  # nine hinges, then ours
    monkeypatch.setattr(hinges, "_objective", lambda _: answers.pop(0))
    row = hinge_row(SHORT, seed=0)
    assert (row["best"], row["met"]) == (1.0, met)
    told: list[str] = []
    print_row(row, told.append)
    assert "| 1 (1, lr 0.001) | 2 of 9 |" in told[0]
    assert ("infeasible" in told[0]) is (own is None)


def test_the_program_shows_a_row_for_each_problem_and_seed(
    monkeypatch: pytest.MonkeyPatch, run_program: Callable[..., Result]
) -> None:
    monkeypatch.setitem(CASES, "polygon", SHORT)
    result = run_program("hinges", "--only", "polygon", "--seeds", 2)
    assert result.exit_code == 0, result.output
    lines: list[Any] = result.output.splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| polygon", "0"],
        ["| polygon", "1"],
    ]
