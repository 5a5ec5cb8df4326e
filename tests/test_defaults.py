"""The numbers behind what ``solve`` chooses: documented, checked, obeyed and saved."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oneproj
from oneproj import Update

OWN = oneproj.Defaults()
NAMES = [field.name for field in fields(OWN)]


def small() -> oneproj.Problem:
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    objective = oneproj.function(lambda: (w - 3.0).square().sum())
    return oneproj.Problem(w, objective, {"size": oneproj.sets.Ball(1.0).on(w)})


def test_every_field_says_what_it_means() -> None:
    told = str(oneproj.Defaults.__doc__).partition("Example:")[0]
    assert re.findall(r"^        (\w+): \w", told, re.MULTILINE) == NAMES


def test_a_run_obeys_them_and_says_which_were_changed() -> None:
    solution = oneproj.solve(small(), defaults=replace(OWN, steps=20))
    assert solution.history["update"] == list(range(1, 21))
    assert solution.settings["defaults"] == {"steps": 20}
    assert solution.to_dict()["settings"]["defaults"] == {"steps": 20}
    assert oneproj.solve(small(), steps=20).settings["defaults"] == {}


def test_an_argument_comes_first() -> None:
    changed = replace(OWN, steps=20, batch_size=3, inner_steps=4)
    solution = oneproj.solve(
        small(), steps=12, batch_size=5, inner_steps=6, defaults=changed
    )
    found = {name: solution.settings[name] for name in ("steps", "batch_size")}
    assert found == {"steps": 12, "batch_size": 5}
    assert solution.settings["inner_steps"] == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [0, -1, math.nan, math.inf, "7", True, None])
def test_what_is_no_positive_number_is_refused(name: str, given: object) -> None:
    message = rf"{name} of Defaults must be .* number >=? [012], got {given!r}\. Its"
    with pytest.raises(oneproj.InvalidProblemError, match=message):
        replace(OWN, **{name: given})


SHARES = ["far_start_share", "strength_decay", "patience_fall", "anchor_share"]


@pytest.mark.parametrize("name", SHARES)
def test_a_share_is_not_more_than_the_whole(name: str) -> None:
    assert getattr(replace(OWN, **{name: 1.0}), name) == 1.0
    with pytest.raises(oneproj.InvalidProblemError, match=rf"{name} .* got 1\.5"):
        replace(OWN, **{name: 1.5})


def test_inner_steps_that_would_return_the_start_are_refused() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match="number >= 2, got 1"):
        replace(OWN, inner_steps=1)


def test_counts_are_whole_and_numbers_are_kept_as_python_s_own() -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=r"patience of .* whole num"):
        replace(OWN, patience=2.5)
    changed = replace(OWN, patience=np.int64(5), hinge_width=torch.tensor(0.5))
    assert changed == replace(OWN, patience=5, hinge_width=0.5)
    assert repr(changed.changed()) == "{'hinge_width': 0.5, 'patience': 5}"


@pytest.mark.parametrize("given", [{"steps": 20}, 20, oneproj.Defaults])
def test_what_is_not_of_that_class_is_refused(given: Any) -> None:  # noqa: ANN401 - anything
    problem = small()
    with pytest.raises(oneproj.InvalidProblemError, match=r"an oneproj\.Defaults, got"):
        oneproj.solve(problem, defaults=given)
    assert problem.parameters[0].tolist() == [0.0, 0.0]


def stop(update: Update) -> bool:
    return update.update == 20


def test_a_resumed_run_has_those_that_it_began_with(tmp_path: Path) -> None:
    saved, begun = oneproj.Checkpoint(tmp_path / "run.pt"), replace(OWN, patience=5)
    oneproj.solve(small(), steps=40, checkpoint=saved, defaults=begun, callbacks=stop)
    for other in (None, replace(OWN, patience=6)):
        with pytest.raises(oneproj.CheckpointError, match=r"defaults: .*'patience': 5"):
            oneproj.solve(small(), steps=40, checkpoint=saved, defaults=other)
    solution = oneproj.solve(small(), steps=40, checkpoint=saved, defaults=begun)
    assert solution.history["update"] == list(range(1, 41))


def test_a_changed_default_does_not_hide_another_argument(tmp_path: Path) -> None:
    saved, begun = oneproj.Checkpoint(tmp_path / "run.pt"), replace(OWN, steps=30)
    oneproj.solve(small(), steps=40, checkpoint=saved, defaults=begun, callbacks=stop)
    with pytest.raises(oneproj.CheckpointError, match="steps: 40 then, 60 now"):
        oneproj.solve(small(), steps=60, checkpoint=saved, defaults=begun)
