"""What is chosen where nothing is given."""

from __future__ import annotations

import warnings

from oneproj.methods.inner_steps import INNER_STEPS, choose_inner_steps


def test_the_library_chooses_inner_steps_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = {steps: choose_inner_steps(None, steps) for steps in range(2, 601)}
    for steps, K in chosen.items():
        assert 1 < K <= steps, "with K = 1 the centre never moves"
        assert steps % K <= min(4, steps // 5), "hardly an update is left over"
        if steps >= 2 * INNER_STEPS:
            assert INNER_STEPS // 2 <= K <= INNER_STEPS + INNER_STEPS // 2
    assert chosen[500] == chosen[20] == INNER_STEPS


def test_inner_steps_that_divide_are_taken_as_they_are() -> None:
    assert choose_inner_steps(25, 50) == 25
    assert choose_inner_steps(2, 8) == 2
