"""Warnings are given at the line of the user's call."""

from __future__ import annotations

import functools

import pytest
import torch

import oneproj
from oneproj.errors import warn


def from_inside(package: str) -> None:
    """Warn as a function of that package would."""
    scope = {"__name__": package, "warn": warn}
    exec("def call(): warn('a')", scope)  # noqa: S102 - a frame of another package
    scope["call"]()


@pytest.mark.parametrize("package", ["oneproj", "oneproj.methods.auto", "torch.optim"])
def test_frames_of_the_library_and_of_torch_are_passed_over(package: str) -> None:
    with pytest.warns(oneproj.OneprojWarning) as said:
        from_inside(package)
    assert said[0].filename == __file__


@pytest.mark.parametrize("package", ["oneprojector", "torchvision.ops"])
def test_other_packages_with_such_names_are_users(package: str) -> None:
    with pytest.warns(oneproj.OneprojWarning) as said:
        from_inside(package)
    assert said[0].filename == "<string>"


def test_a_problem_in_a_decorated_function_is_the_users_call() -> None:
    w = torch.ones(2, requires_grad=True)
    layer = torch.nn.Dropout()
    drop = oneproj.function(lambda: layer(w).sum())

    @torch.enable_grad()
    def build() -> oneproj.Problem:
        return oneproj.Problem(w, oneproj.function(w.sum), {"drop": drop <= 1.0})

    with pytest.warns(oneproj.OneprojWarning, match="training mode") as said:
        functools.partial(build)()
    assert said[0].filename == __file__
    assert said[0].lineno == build.__wrapped__.__code__.co_firstlineno + 2
