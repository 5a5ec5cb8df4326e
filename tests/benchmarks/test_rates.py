"""The benchmark of rates: its problems, its rule, and its record."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.rates.__main__ import RECORD, is_solved, show
from benchmarks.rates.problems import PROBLEMS, build
from benchmarks.rates.reference import Reference


def test_there_are_at_least_thirty_problems() -> None:
    assert len(PROBLEMS) >= 30


@pytest.mark.parametrize("name", [n for n in PROBLEMS if "adult" not in n][::7])
def test_a_problem_can_be_built(name: str) -> None:
    instance = build(PROBLEMS[name])
    assert math.isfinite(instance.objective.value())
    assert all(math.isfinite(c.value()) for c in instance.bounds.values())


def test_a_problem_is_solved_if_counts_hold_and_the_objective_is_near() -> None:
    found = {"feasible": True, "objective": 1.02}
    assert is_solved(found, Reference(1.0, math.inf))
    assert not is_solved(found, Reference(0.9, 1.0))
    assert is_solved(found, Reference(math.inf, math.inf))
    assert not is_solved(found | {"feasible": False}, Reference(2.0, 2.0))


def test_the_record_is_of_these_problems_and_all_counts_hold() -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    assert len(record) >= 30
    assert record.keys() <= PROBLEMS.keys()
    assert all(row["ours"]["feasible"] for row in record.values())
    assert all(row["ours"]["projections"] == 1 for row in record.values())
    assert "solved" in show(record)
