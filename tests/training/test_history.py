"""The history: a row per update, thinned for long runs."""

from __future__ import annotations

import itertools
import time

import pytest

from oneproj import Update
from oneproj.problem.problem import RESERVED_NAMES
from oneproj.training.run import MAX_ROWS, History


def run(steps: int) -> History:
    history = History(["cap"], steps)
    for k in range(1, steps + 1):
        history.add(k, 1.0 / k, {"cap": -float(k)})
    return history


def test_a_short_run_records_every_update() -> None:
    columns = run(5).columns
    assert list(columns) == ["update", "objective", "seconds", "cap"]
    assert columns["update"] == [1, 2, 3, 4, 5]
    assert columns["objective"] == [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert columns["cap"] == [-1.0, -2.0, -3.0, -4.0, -5.0]


@pytest.mark.parametrize("steps", [1, 999, 1000, 1001, 1999, 2000, 12_345])
def test_a_long_run_is_thinned_and_keeps_its_last_update(steps: int) -> None:
    columns = run(steps).columns
    rows = len(columns["update"])
    assert min(steps, MAX_ROWS // 2) <= rows <= MAX_ROWS
    assert columns["update"][-1] == steps
    assert all(len(column) == rows for column in columns.values())
    gaps = {b - a for a, b in itertools.pairwise(columns["update"][:-1])}
    assert len(gaps) <= 1, "evenly spaced, but for the last"


def test_what_a_callback_gets_does_not_depend_on_thinning() -> None:
    history = History(["cap"], steps=5000)
    residuals = {"cap": 0.5}
    update = history.add(1, 2.0, residuals)
    assert history.columns["update"] == []
    assert update == Update(1, 5000, 2.0, {"cap": 0.5}, update.seconds)
    residuals["cap"] = 9.0
    assert update.residuals == {"cap": 0.5}, "a copy: later updates do not change it"


def test_seconds_count_from_the_start_of_the_run() -> None:
    history = History([], steps=2)
    time.sleep(0.01)
    first = history.add(1, 0.0, {}).seconds
    second = history.add(2, 0.0, {}).seconds
    assert 0.01 <= first <= second < 60
    assert history.columns["seconds"] == [first, second]


def test_the_columns_are_the_names_that_a_constraint_cannot_have() -> None:
    of_logs = {"outer"}
    assert set(History([], steps=1).columns) | of_logs == set(RESERVED_NAMES)
