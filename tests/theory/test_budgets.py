"""From inequalities to counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj import InvalidScheduleError
from oneproj.theory import convex_inner_error, inner_bound
from oneproj.theory.schedules import find_inner_steps, find_outer_steps


@given(
    m=st.floats(0.01, 10.0),
    G=st.floats(0.01, 10.0),
    delta=st.floats(1e-6, 0.9),
    wanted=st.integers(2, 3000),
    softplus=st.booleans(),
)
def test_inner_steps_agree_with_trying_every_number(
    *, m: float, G: float, delta: float, wanted: int, softplus: bool
) -> None:
    bound = convex_inner_error if softplus else inner_bound

    def error(K: int) -> float:
        return bound(K, m, G, delta)

    target = error(wanted)  # met with equality at K = wanted
    tried = next(K for K in range(2, wanted + 1) if error(K) <= target)
    assert find_inner_steps(error, target, "smallest") == tried
    doubled = next(2**i for i in range(1, 13) if error(2**i) <= target)
    assert find_inner_steps(error, target, "doubling") == doubled


@given(target=st.floats(0.5, 10.0), how=st.sampled_from(["smallest", "doubling"]))
def test_inner_steps_are_at_least_two(target: float, how: str) -> None:
    assert find_inner_steps(lambda K: 1 / K, target, how) == 2  # type: ignore[arg-type]


@given(scale=st.integers(0, 10**6), power=st.integers(0, 10))
def test_outer_steps_are_a_ceiling_and_at_least_two(scale: int, power: int) -> None:
    # Powers of two: the quotient is exact, so the ceiling of it is the integer itself.
    epsilon = 2.0**-power
    exact = scale * 4**power
    assert find_outer_steps(float(scale), epsilon) == max(2, exact)
    assert find_outer_steps(scale + 0.25 * epsilon**2, epsilon) == max(2, exact + 1)


def test_an_unknown_search_is_refused() -> None:
    message = r"inner_steps must be 'doubling' or 'smallest', got 'fast'"
    with pytest.raises(InvalidScheduleError, match=message):
        find_inner_steps(lambda K: 1 / K, 0.1, "fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [1e-200, 1e-155])
def test_outer_steps_beyond_doubles_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidScheduleError, match=r"^T <= 1e\+301 fails: .*/ 1e-"):
        find_outer_steps(4000.0, epsilon)


@pytest.mark.parametrize("error", [math.inf, math.nan, 1.0])
def test_inner_steps_beyond_doubles_are_refused(error: float) -> None:
    with pytest.raises(InvalidScheduleError, match=r"^K <= 1e\+301 fails: .*<= 0\.5"):
        find_inner_steps(lambda _: error, 0.5)
