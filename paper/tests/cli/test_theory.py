"""``oneproj-paper theory``: what it writes, and what its exit code says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from oneproj_paper.cli import app
from oneproj_paper.laboratory import plans
from oneproj_paper.laboratory.plans import Plan
from oneproj_paper.laboratory.problems import smooth_problem

FILES = {"theory.json", "theory.md", "theory.png", "theory.svg"}


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["theory", *arguments])
    return result.exit_code, result.output


def test_quick_runs_all_theorems_and_says_that_it_is_outside(tmp_path: Path) -> None:
    code, output = run("--quick", "--out", str(tmp_path), "--jobs", "2")
    assert code == 0, output
    assert "Outside the theorems: T and K are theirs divided by 16" in output
    rows = [f"theorem-{k}.json" for k in (1, 2, 3)]
    assert FILES | {*rows, "checkpoints"} == {p.name for p in tmp_path.iterdir()}
    records = json.loads((tmp_path / "theory.json").read_text())
    assert [record["key"] for record in records] == [
        r.removesuffix(".json") for r in rows
    ]
    for record in records:
        assert record["start_measure"] > record["epsilon"]
        assert record["projections"] == record["trials"] == 8
        assert record["largest_residual"] <= 0
        assert record["successes"] >= 6
        assert not record["within_theorem"]
    first = (tmp_path / "theory.md").read_text()
    assert run("--quick", "--out", str(tmp_path))[0] == 0  # nothing left to compute
    assert (tmp_path / "theory.md").read_text() == first


def one_plan(problem_start: tuple[float, float]) -> list[Plan]:
    problem = replace(smooth_problem(), start=problem_start)
    return [Plan(problem=problem, trials=2, seed=0, factor=200)]


def test_exit_code_is_1_if_a_row_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_solution = tuple(map(float, smooth_problem().solutions[0] * 0.999))
    monkeypatch.setattr(plans, "make_plans", lambda **_: one_plan(at_solution))
    code, output = run("--out", str(tmp_path))
    assert code == 1
    assert "FAIL" in output
    assert "the start" in output


def test_fresh_forgets_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "make_plans", lambda **_: one_plan((-0.95, 0.0)))
    run("--out", str(tmp_path))
    (file,) = (tmp_path / "checkpoints").iterdir()
    with np.load(file) as kept:
        content = dict(kept)
    spoiled = content["path"] * 0.5
    np.savez(file, **(content | {"path": spoiled}))
    run("--out", str(tmp_path), "--resume")
    with np.load(file) as kept:
        np.testing.assert_array_equal(kept["path"], spoiled)
    run("--out", str(tmp_path), "--fresh")
    with np.load(file) as kept:
        np.testing.assert_array_equal(kept["path"], content["path"])


def test_ctrl_c_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oneproj_paper.laboratory import report

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "run_plans", interrupted)
    code, output = run("--quick", "--out", str(tmp_path))
    assert code == 130
    assert "The same command continues" in output


def test_a_folder_that_cannot_be_written_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oneproj_paper.laboratory import report

    monkeypatch.setattr(report, "run_plans", pytest.fail)
    (tmp_path / "file").touch()
    code, output = run("--quick", "--out", str(tmp_path / "file" / "theory"))
    assert code == 1
    assert "Not a directory" in output
    assert "choose another place" in output


def test_a_disk_that_fills_up_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oneproj_paper.laboratory import report

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "theory/checkpoints/x.npz")

    monkeypatch.setattr(report, "run_plans", full)
    code, output = run("--quick", "--out", str(tmp_path))
    assert code == 1
    assert "No space left on device: theory/checkpoints/x.npz." in output
