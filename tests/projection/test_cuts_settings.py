"""What the settings of the projector may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import oneproj
from oneproj.errors import InvalidProblemError
from oneproj.projection.cuts import Cuts

WRONG = {
    "tolerance": (-1.0, "x", float("nan")),
    "min_gain": (-1e-4, None),
    "max_evaluations": (0, 2.5, "a", True),
    "memory": (0, -1, 1.5, True),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]]
)
def test_settings_without_meaning_are_refused_in_words(name: str, value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidProblemError, match=f"{name} must be"):
        Cuts(**{name: value})


def test_the_ends_of_the_ranges_are_allowed() -> None:
    Cuts(tolerance=0.0, min_gain=0.0, max_evaluations=1, memory=1)


@pytest.mark.parametrize("text", ["many", "2", "-1 GB", "0 MB", "1 GiB", ""])
def test_bytes_without_a_unit_are_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidProblemError, match="memory as text is a positive"):
        Cuts(memory=text)


def test_the_old_name_of_memory_warns_and_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"Cuts\(memory=\)"):
        Cuts(capacity=3)


def test_bytes_are_as_good_as_vectors() -> None:
    """600 numbers of 8 bytes: 48 kB are ten vectors."""
    found = []
    for memory in (10, "48 kB", None):
        w = torch.linspace(-1.0, 1.0, 600, dtype=torch.float64, requires_grad=True)
        top = oneproj.function(lambda w=w: torch.amax(w.abs()), curvature="convex")
        done = oneproj.project(w, {"top": top <= 0.9}, projector=Cuts(memory=memory))
        assert done.residuals["top"] <= 0
        found.append(done.distance)
    assert found[0] == found[1] >= found[2] * (1.0 - 1e-6)
