"""Every error is the same after a copy and in another process, which pickles it."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable

import pytest

import oneproj

CLASSES = [
    found
    for _, found in inspect.getmembers(oneproj, inspect.isclass)
    if issubclass(found, Exception)
]


@pytest.mark.parametrize("made", CLASSES)
@pytest.mark.parametrize(
    "again",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],  # noqa: S301 - our own bytes
    ids=["pickle", "copy", "deepcopy"],
)
def test_an_error_survives(
    made: type[Exception], again: Callable[[Exception], Exception]
) -> None:
    error = made("what went wrong")
    error.add_note("In the function of 'risk'.")
    twin = again(error)
    assert type(twin) is made
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_the_update_of_a_value_that_is_not_finite_survives() -> None:
    error = oneproj.NonFiniteError("the value of 'risk'", step=7)
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(twin) == str(error)
    assert (twin.quantity, twin.step) == ("the value of 'risk'", 7)
