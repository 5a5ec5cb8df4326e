"""One problem in many disguises: what varies, what is judged, what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from benchmarks import robust
from benchmarks.robust import CONTESTANTS, DEFAULTS, robust_lines, robust_record
from benchmarks.variations import VARIATIONS, Variation


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return robust_record(VARIATIONS[:2], steps=30, seeds=1, progress=False)


def test_the_record_survives_json_and_has_both_models(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    got = [(row["hidden"], row["variation"]) for row in record["rows"]]
    assert got == [(h, v.name) for h in (0, 8) for v in VARIATIONS[:2]]


def test_the_best_is_the_least_and_the_verdict_follows(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        objectives = row["objectives"]
        least = min(objectives.values())
        assert objectives[row["best"]] == least
        assert row["above"] == pytest.approx(objectives[DEFAULTS] / least - 1.0)
        assert row["worst_residual"] <= 0
        assert row["met"] == (row["above"] <= 0.05)


def test_slsqp_takes_part_where_scores_are_linear(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        wanted = set(CONTESTANTS) - ({"slsqp"} if row["hidden"] else set())
        assert set(row["objectives"]) == wanted


def test_the_defaults_keep_the_bar_where_only_units_change() -> None:
    units = [v for v in VARIATIONS if v.name in ("loss x 1000", "constraint x 100")]
    rows = robust_record(units, steps=300, seeds=1, progress=False)["rows"]
    assert [row["met"] for row in rows] == [True] * 4


def test_a_failure_of_the_defaults_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTESTANTS, DEFAULTS, {"method": "one-projection", "lr": -1.0})
    (row, _) = robust.robust_record(VARIATIONS[:1], steps=20, seeds=1)["rows"]
    assert row["objectives"][DEFAULTS] is row["above"] is None
    assert row["met"] is False
    assert "lr" in row["message"]


def test_the_table_marks_a_missed_bar(record: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(record))
    changed["rows"][0] |= {"met": False, "above": 0.123}
    lines: list[str] = []
    robust_lines(changed, lines.append)
    assert lines[2].endswith("| 12.3 % | MISSED |")
    table = lines[: 2 + len(record["rows"])]
    assert len({line.count("|") for line in table}) == 1
    assert lines[len(table) :] == [""]


def test_the_table_quotes_what_was_said_of_a_missed_bar(record: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(record))
    changed["rows"][0] |= {"met": False, "above": 0.123, "message": "too early"}
    changed["rows"][1] |= {"met": True, "message": "all is well"}
    lines: list[str] = []
    robust_lines(changed, lines.append)
    assert lines[2].endswith("| 12.3 % | told |")
    assert lines[-1] == f"- {changed['rows'][0]['variation']}: too early"


def test_what_the_defaults_warned_of_is_in_the_record() -> None:
    rare = [v for v in VARIATIONS if v.name == "classes 99/1"]
    _, network = robust_record(rare, steps=100, seeds=1, progress=False)["rows"]
    assert (
        "one-projection, seed 0: The run may have ended too early"
        in (network["message"])
    )


@pytest.mark.parametrize("variation", VARIATIONS, ids=lambda v: v.name)
def test_a_disguise_changes_units_and_nothing_else(variation: Variation) -> None:
    plain = VARIATIONS[0].problem(hidden=0, seed=3)
    problem = variation.problem(hidden=0, seed=3)
    assert len(problem.constraints) == variation.constraints
    for p, q in zip(problem.parameters, plain.parameters, strict=True):
        assert torch.equal(p, q)
    if variation.share == 0.5 and variation.feature_unit == 1.0:
        objective = variation.loss_unit * plain.objective.value()
        assert problem.objective.value() == pytest.approx(objective, rel=1e-5)
