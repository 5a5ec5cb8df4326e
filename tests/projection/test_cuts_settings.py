"""What the settings of the projector may be."""

from __future__ import annotations

from typing import Any

import pytest

from oneproj.errors import InvalidProblemError
from oneproj.projection.cuts import Cuts

WRONG = {
    "tolerance": (-1.0, "x", float("nan")),
    "min_gain": (-1e-4, None),
    "max_evaluations": (0, 2.5, "a", True),
    "memory": (-1, 1.5),
    "capacity": (0, True, "many"),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]]
)
def test_settings_without_meaning_are_refused_in_words(name: str, value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidProblemError, match=f"{name} must be"):
        Cuts(**{name: value})


def test_the_ends_of_the_ranges_are_allowed() -> None:
    Cuts(tolerance=0.0, min_gain=0.0, max_evaluations=1, memory=0, capacity=1)
