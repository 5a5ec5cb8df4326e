"""Warnings are given at the line of the user's call; old names work and warn."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

import oneproj
from oneproj.errors import warn
from oneproj.projection.cuts import Cuts


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


# --- names of before ----------------------------------------------------------

DONE = oneproj.Projection(oneproj.Status.FEASIBLE, 0.0, {}, {}, gradients=7)
OLD = {
    "Projection.evaluations": (lambda: DONE.evaluations, 7),
    "Projection(evaluations=)": (
        lambda: oneproj.Projection(oneproj.Status.FEASIBLE, 0.0, {}, {}, evaluations=7),
        DONE,
    ),
    "Status.EMPTY": (
        lambda: oneproj.Status.EMPTY,
        oneproj.Status.PROVEN_INFEASIBLE,
    ),
    "Cuts(progress=)": (
        lambda: vars(Cuts(progress=0.5)),
        vars(Cuts(min_gain=0.5)),
    ),
}
NEW = {
    "Projection.evaluations": "Projection.gradients",
    "Projection(evaluations=)": "Projection(gradients=)",
    "Status.EMPTY": "Status.PROVEN_INFEASIBLE",
    "Cuts(progress=)": "Cuts(min_gain=)",
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_works_and_says_the_new_one(name: str) -> None:
    call: Callable[[], object]
    call, expected = OLD[name]
    with pytest.warns(DeprecationWarning, match="0.3.0") as said:
        found = call()
    assert found == expected
    assert str(said[0].message) == (
        f"{name} is deprecated since 0.2.0, and 0.3.0 will drop it. Write {NEW[name]}."
    )
    assert said[0].filename == __file__
    assert len(said) == 1


def test_the_old_status_is_no_member() -> None:
    assert "EMPTY" not in oneproj.Status.__members__


def test_a_method_whose_begin_says_setting_still_runs() -> None:
    w = torch.zeros(1, requires_grad=True)

    class Old(oneproj.methods.AbstractMethod):
        name = "old"

        def begin(
            self, setting: oneproj.methods.Context
        ) -> oneproj.methods.AbstractUpdater:
            return Run(setting)

    class Run(oneproj.methods.AbstractUpdater):
        def __init__(self, setting: oneproj.methods.Context) -> None:
            self.setting, self.oracle = setting, setting.look(oneproj.Hinge(1.0))

        def update(self) -> oneproj.oracles.Estimate:
            return self.oracle.backward()

        def finish(self) -> oneproj.Projection:
            return self.setting.project()

    risk = oneproj.function(w.sum) <= 1.0
    problem = oneproj.Problem(w, oneproj.function(w.sum), {"risk": risk}, radius=9.0)
    with pytest.warns(DeprecationWarning, match=r"Write context\.oracle"):
        assert oneproj.solve(problem, method=Old(), steps=2).feasible
