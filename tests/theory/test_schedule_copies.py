"""A schedule with other numbers: what follows, and whether a theorem covers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from oneproj import InvalidScheduleError
from oneproj.theory import (
    Schedule,
    inner_bound,
)


def test_step_sizes_are_those_of_algorithm_1(make: Callable[..., Schedule]) -> None:
    schedule = make(0.5)
    m = {"convex": 1, "nonconvex": 34 - 17}[schedule.setting]
    assert [schedule.step_size(s) for s in (1, 2)] == [2 / (2 * m), 2 / (3 * m)]


def test_with_steps_keeps_what_follows_from_the_counts(
    make: Callable[..., Schedule],
) -> None:
    schedule = make(0.5)
    T, K = schedule.outer_steps, schedule.inner_steps
    assert schedule.with_steps() == schedule
    assert schedule.with_steps(inner_steps=2 * K).within_theorem
    assert not schedule.with_steps(inner_steps=K - 1).within_theorem
    assert not schedule.with_steps(outer_steps=T - 1).within_theorem
    # A longer T needs a smaller delta_in, and with it a slightly larger K.
    assert not schedule.with_steps(outer_steps=10 * T).within_theorem
    longer = schedule.with_steps(outer_steps=10 * T, inner_steps=2 * K)
    assert longer.within_theorem
    assert longer.inner_failure == pytest.approx(1 / (60 * T))
    assert longer.smoothing == (1 / (2 * K) if schedule.setting == "convex" else None)
    quick = schedule.with_steps(outer_steps=2, inner_steps=7)
    assert quick.indices == range(quick.first_index, quick.first_index + 2)
    assert quick.inner_error > quick.inner_error_target
    if schedule.setting == "nonconvex":
        assert quick.inner_error == inner_bound(7, 17.0, 86.0, 1 / 12)


@pytest.mark.parametrize("name", ["outer_steps", "inner_steps"])
@pytest.mark.parametrize("bad", [1, 0, 2.5])
def test_with_steps_refuses_what_algorithm_1_does(
    make: Callable[..., Schedule], name: str, bad: float
) -> None:
    with pytest.raises(
        InvalidScheduleError, match=rf"{name} >= 2 fails: {name} = {bad}"
    ):
        make(0.5).with_steps(**{name: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"strength": 4.5},
        {"strength": 1.5},
        {"prox_weight": 35.0},
        {"prox_weight": 1.0},
        {"strong_convexity": 0.5},
        {"first_index": 2},
        {"inner_failure": 0.1},
        {"inner_error_target": 1.0},
        {"inner_error": 0.0},
        {"smoothing": 0.1},
        {"radius": 2.0},
        {"epsilon": 0.4},
        {"epsilon": 7.0},
    ],
    ids=str,
)
def test_a_changed_number_is_noticed(
    make: Callable[..., Schedule], change: dict[str, float]
) -> None:
    assert not dataclasses.replace(make(0.5), **change).within_theorem  # type: ignore[arg-type]
