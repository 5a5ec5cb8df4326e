"""The record of ``bench projection``: who runs, what is counted; no times asserted."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from rich.console import Console

from benchmarks import projection, rivals
from benchmarks.instances import make_instance
from benchmarks.measure import Spread
from benchmarks.projection import ALONE, Row, judge_bars, projection_record
from benchmarks.projection_table import _cells, projection_tables
from benchmarks.rivals import Answer


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        # The augmented Lagrangian once is enough.
        patch.setattr(projection, "QUICK", 0.1)
        return projection_record([18, 100], repeats=2, progress=False)


def by_rival(record: dict[str, Any], size: int, start: str) -> dict[str, Any]:
    rows = [r for r in record["rows"] if (r["size"], r["start"]) == (size, start)]
    return {row["rival"]: row for row in rows}


def test_the_record_survives_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_every_rival_has_a_row_or_a_reason(record: dict[str, Any]) -> None:
    sizes = {row["size"] for row in record["rows"]}
    assert len(sizes) == 2
    for size in sizes:
        for start in ("random", "trained"):
            rows = by_rival(record, size, start)
            network = set() if size == 18 else {rivals.TO_THE_END}
            assert set(rows) == network | {
                *("cuts", "augmented-lagrangian", "dual-bisection"),
                *("SLSQP", "trust-constr", "clarabel", ALONE),
            }
            for row in rows.values():
                assert (row["seconds"] is None) == (row["reason"] is not None)
                assert row["runs"] in ({0} if row["reason"] else {1, 2})


def test_linear_scores_everyone_finds_the_same_point(record: dict[str, Any]) -> None:
    for start in ("random", "trained"):
        rows = by_rival(record, 18, start)
        del rows[ALONE]
        exact = rows["cuts"]["answer"]
        assert exact["residual"] <= 0
        for row in rows.values():
            assert row["answer"]["distance"] == pytest.approx(
                exact["distance"], rel=0.02, abs=1e-4
            )
            assert row["answer"]["residual"] <= 1e-5
        assert rows["clarabel"]["answer"]["gradients"] is None
        assert rows["augmented-lagrangian"]["answer"]["gradients"] >= 901


def test_networks_have_bars_and_reasons(record: dict[str, Any]) -> None:
    size = max(row["size"] for row in record["rows"])
    rows = by_rival(record, size, "random")
    assert rows["dual-bisection"]["reason"] == "not convex"
    assert rows["clarabel"]["reason"] == "linear scores only"
    assert {bar["what"] for bar in record["bars"] if bar["size"] == 18} == {
        "augmented Lagrangian's gradients",
        "time / its gradients",
    }
    for bar in record["bars"]:
        good = bar["value"] - bar["bound"]
        assert bar["met"] == (good >= 0 if bar["at_least"] else good <= 0)
    cuts, paper = rows["cuts"]["answer"], rows["augmented-lagrangian"]["answer"]
    shown = {
        b["what"]: b["value"]
        for b in record["bars"]
        if (b["size"], b["start"]) == (size, "random")
    }
    assert shown["time / its gradients"] == rows["cuts"]["overhead"]
    expected = paper["gradients"] / cuts["gradients"]
    assert shown["augmented Lagrangian's gradients"] == expected


def rows(*, stopped: bool = False) -> dict[str, Row]:
    def row(rival: str, gradients: int, ratio: float) -> Row:
        spread = Spread(ratio, ratio, ratio)
        answer = Answer(gradients, 1.0, 0.0, stopped=stopped and rival != "cuts")
        return Row(
            size=2000,
            start="trained",
            rival=rival,
            answer=answer,
            runs=2,
            seconds=spread,
            ratio=spread,
            overhead=2.0,
        )

    return {
        "cuts": row("cuts", 9, 1.0),
        "augmented-lagrangian": row("augmented-lagrangian", 901, 60.0),
        "SLSQP": row("SLSQP", 30, 4.0),
        ALONE: row(ALONE, 9, 0.5),
    }


def test_a_bar_that_is_missed_says_so() -> None:
    bars = {
        bar.what: (bar.value, bar.met) for bar in judge_bars(rows(), [1, 8, 20, 30])
    }
    assert bars == {
        "median gradients": (9.0, False),
        "augmented Lagrangian's gradients": (901 / 9, True),
        "SLSQP's time": (4.0, False),
        "time / its gradients": (2.0, False),
    }
    fewer = {bar.what: bar.met for bar in judge_bars(rows(), [1, 8])}
    assert fewer["median gradients"] is True


def test_who_was_stopped_proves_nothing_that_it_did_not_reach() -> None:
    bars = {bar.what for bar in judge_bars(rows(stopped=True))}
    assert bars == {"median gradients", "time / its gradients"}


def test_a_rival_is_stopped_in_time_and_says_how_far_it_came() -> None:
    made = make_instance(100, "random", torch.Generator().manual_seed(0))
    run = rivals.rivals(made)["augmented-lagrangian"]
    assert not isinstance(run, str)
    answer, _ = rivals.attempt(made, run, limit=0.05)
    assert answer.stopped
    assert 0 < (answer.gradients or 0) < 901
    whole, seconds = rivals.attempt(made, run, limit=math.inf)
    assert (whole.stopped, whole.gradients) == (False, 901)
    assert seconds > 0
    cells = _cells(asdict(replace(rows()["SLSQP"], answer=answer, runs=1)))
    assert cells[3] == f"> {answer.gradients}"
    assert cells[4] == "> 4e+03*"


def test_networks_are_also_projected_to_the_tolerance() -> None:
    made = make_instance(300, "random", torch.Generator().manual_seed(1))
    found = rivals.rivals(made)
    coarse, fine = found["cuts"], found[rivals.TO_THE_END]
    assert not isinstance(coarse, str)
    assert not isinstance(fine, str)
    few, _ = rivals.attempt(made, coarse, limit=math.inf)
    many, _ = rivals.attempt(made, fine, limit=math.inf)
    assert (few.gradients or 0) < (many.gradients or 0) <= 100
    assert many.residual <= 0
    assert 0.99 * few.distance < many.distance <= few.distance
    linear = make_instance(18, "random", torch.Generator().manual_seed(1))
    assert rivals.TO_THE_END not in rivals.rivals(linear)


def test_what_is_too_large_for_dense_matrices_does_not_run() -> None:
    generator = torch.Generator().manual_seed(0)
    made = make_instance(10**5, "random", generator)
    assert rivals.rivals(made)["SLSQP"] == "dense matrices of 80 GB each"


def test_without_cvxpy_the_cell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "find_spec", lambda _: None)
    made = make_instance(18, "random", torch.Generator().manual_seed(0))
    assert rivals.rivals(made)["clarabel"] == "cvxpy is not installed"


def test_the_trained_start_is_slightly_infeasible() -> None:
    for size in (18, 200):
        residuals = [
            max(c.value() for c in made.constraints.values())
            for start in ("random", "trained")
            for made in [make_instance(size, start, torch.Generator().manual_seed(1))]  # type: ignore[arg-type]
        ]
        assert 0 < residuals[1] < 0.5 * residuals[0]


def test_the_tables_show_rows_reasons_and_bars(record: dict[str, Any]) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=200)
    tables = projection_tables(record)
    for table in tables:
        console.print(table)
    assert tables[0].row_count == len(record["rows"]) == 30
    assert tables[1].row_count == len(record["bars"])
    assert "does not run: linear scores only" in stream.getvalue()
    assert "<= 15" in stream.getvalue()


def test_the_command_writes_the_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record: dict[str, Any],
    run_program: Callable[..., Result],
) -> None:
    asked: list[Any] = []

    def recorded(sizes: Any, **settings: Any) -> dict[str, Any]:  # noqa: ANN401
        asked.append((list(sizes), settings))
        return record

    monkeypatch.setattr(projection, "projection_record", recorded)
    out = tmp_path / "record.json"
    arguments = ["--size", "100", "--repeats", "3", "--seed", "2", "--out", str(out)]
    result = run_program("projection", *arguments)
    assert result.exit_code == 0, result.output
    assert asked == [([100], {"repeats": 3, "seed": 2})]
    assert json.loads(out.read_text()) == record
