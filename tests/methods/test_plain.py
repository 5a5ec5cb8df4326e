"""Objects of the library as plain containers, and back, to the last bit."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch

import oneproj
from oneproj.methods.plain import flatten, rebuild
from oneproj.projection.convex.bundle import Bundle
from oneproj.projection.vectors.space import space_around
from oneproj.results import Counts, Projection, Status
from oneproj.runs.checkpoints import read_checkpoint, write_checkpoint
from oneproj.terms.base import AbstractTerm


def round_trip(value: object, folder: Path, **known: object) -> object:
    state = {"value": flatten(value, known, foreign=AbstractTerm)}
    write_checkpoint(folder / "file", state)
    return rebuild(read_checkpoint(folder / "file")["value"], known)


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    value = [(1, 2.5, None, "a", True), {"b": {3, 4}}, [], torch.arange(3)]
    back = round_trip(value, tmp_path)
    assert back[:3] == value[:3]
    assert torch.equal(back[3], value[3])
    projection = Projection(Status.EMPTY, 0.5, {"a": np.float64(1.0)}, {}, 3)
    assert round_trip(projection, tmp_path) == projection


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_keep_their_order_in_memory(tmp_path: Path, order: str) -> None:
    for array in (
        np.array(np.arange(6.0).reshape(2, 3), order=order),
        np.zeros((0, 0)),
        np.array([True, False]),
    ):
        back = round_trip(array, tmp_path)
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
        assert back.flags.c_contiguous == array.flags.c_contiguous
        assert back.flags.writeable


def test_an_object_that_is_met_twice_stays_one(tmp_path: Path) -> None:
    counts = Counts(projections=2)
    back = round_trip([counts, {"again": counts}], tmp_path)
    assert back[0] == counts
    assert back[0] is back[1]["again"]


def test_what_belongs_to_the_problem_is_that_of_the_new_run() -> None:
    w, other = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    term = oneproj.function(w.sum) <= 1.0
    state = flatten([w, term, w.clone()], {"w": w}, foreign=AbstractTerm)
    back = rebuild(state, {"w": other})
    assert back[0] is other
    assert back[2].item() == 1.0
    assert not isinstance(back[1], AbstractTerm), "an unknown term is nobody's term"


def test_a_bundle_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    bundle, space = Bundle(capacity=10), space_around([torch.zeros(4)])
    zero = space.pack([torch.zeros(4)])
    for _ in range(5):
        bundle.add("a", 1.0, space.pack([torch.randn(4, generator=generator)]), zero)
    copy = round_trip(bundle, tmp_path)
    last = space.pack([torch.randn(4, generator=generator)])
    for one in (bundle, copy):
        one.add("a", 1.0, last, zero)
        one.solve({"a": 0.0})
    assert copy.displacement(zero).minus(bundle.displacement(zero)).norm() == 0.0
    assert copy.multipliers() == bundle.multipliers()


@pytest.mark.parametrize("value", [print, deque(), torch.nn.Linear(1, 1), Counts])
def test_what_is_not_of_this_library_is_not_saved(value: object) -> None:
    with pytest.raises(oneproj.CheckpointError, match="cannot be saved: it holds a"):
        flatten({"x": [value]}, {}, foreign=AbstractTerm)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (("object", "subprocess", "Popen", {}), "a class of 'subprocess'"),
        (("named", "oneproj.solve", "solve", []), "'solve' of 'oneproj.solve'"),
        (("object", "oneproj.gone", "Chart", {}), "this version of the library does"),
        (("object", "oneproj.solve", "Gone", {}), "this version of the library does"),
    ],
)
def test_no_other_class_is_made(state: tuple[object, ...], message: str) -> None:
    with pytest.raises(oneproj.CheckpointError, match=message):
        rebuild(state, {})
