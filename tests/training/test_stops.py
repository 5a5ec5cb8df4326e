"""Ctrl-C once finishes early and is said; twice it stops the user's own loop."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Projection, Solution, Status, Update
from oneproj.problem import AbstractTerm
from oneproj.projection.cuts import Cuts
from oneproj.training import loop as stops
from oneproj.training.loop import AGAIN, Callbacks, End, warn_of_end
from oneproj.vectors.arithmetic import Vector


@pytest.fixture(autouse=True)
def no_warning_before() -> None:
    stops._WARNED.set(-math.inf)


Make = Callable[[], oneproj.Problem]


def press(update: Update) -> None:
    if update.update == 25:
        signal.raise_signal(signal.SIGINT)


def train(problems: list[oneproj.Problem], pressing: list[int]) -> list[Solution]:
    """A loop as a user writes it; in some of its runs Ctrl-C is pressed."""
    return [
        oneproj.solve(problem, steps=40, callbacks=press if k in pressing else ())
        for k, problem in enumerate(problems)
    ]


# --- in a loop of the user's own ------------------------------------------------------


def test_one_ctrl_c_is_said_and_the_loop_goes_on(nearest_in_ball: Make) -> None:
    problems = [nearest_in_ball() for _ in range(3)]
    with pytest.warns(oneproj.OneprojWarning, match="after update 25 of 40") as said:
        found = train(problems, pressing=[1])
    assert len(said) == 1
    assert said[0].filename == __file__, "at the line of the user's call"
    statuses = [solution.status for solution in found]
    assert statuses == [Status.FEASIBLE, Status.INTERRUPTED, Status.FEASIBLE]
    assert all(solution.feasible for solution in found)


def test_two_ctrl_c_stop_the_loop_and_lose_nothing(nearest_in_ball: Make) -> None:
    problems = [nearest_in_ball() for _ in range(4)]
    with (
        pytest.warns(oneproj.OneprojWarning, match="again within 3 seconds"),
        pytest.raises(KeyboardInterrupt),
    ):
        train(problems, pressing=[0, 1])
    start, size = -0.6394, [problem.residuals()["size"] for problem in problems]
    assert start < size[0] <= 0
    assert start < size[1] <= 0, "the second answer is projected as well"
    assert size[2:] == pytest.approx([start, start], abs=1e-3), "these never began"


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_a_callback_that_stops_is_not_ctrl_c(nearest_in_ball: Make) -> None:
    solution = oneproj.solve(
        nearest_in_ball(), steps=40, callbacks=[lambda update: update.update == 3]
    )
    assert solution.status is Status.INTERRUPTED  # and another warning an error


def test_where_warnings_are_errors_the_solution_is_not_lost(
    nearest_in_ball: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    solutions = train([nearest_in_ball()], pressing=[0])  # as they are in these tests
    assert solutions[0].status is Status.INTERRUPTED
    assert "Ctrl-C ended this run after update 25 of 40" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        train([nearest_in_ball()], pressing=[0])


# --- what is not Ctrl-C ---------------------------------------------------------------


def nowhere() -> oneproj.Problem:
    w = torch.zeros(2, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum(), curvature="convex")
    return oneproj.Problem(w, size, {"size": size <= -1.0})


@pytest.mark.parametrize("on_failure", ["raise", "return"])
@pytest.mark.parametrize("method", ["one-projection", "projected-sgd"])
def test_what_a_callback_raises_passes_as_it_is(
    nearest_in_ball: Make,
    method: str,
    on_failure: Any,  # noqa: ANN401 - a word
) -> None:
    failed: list[oneproj.InfeasibleError] = []

    def validate(update: Update) -> None:
        other = nowhere()
        with torch.no_grad():  # a run that diverged, were it that of its own error
            problem.parameters[0].fill_(1e9)
        try:
            oneproj.project(other.parameters, other.constraints)
        except oneproj.InfeasibleError as error:
            failed.append(error)
            if update.update == 3:
                raise

    for _ in range(2):  # the second one soon after the first
        problem = nearest_in_ball()
        with pytest.raises(oneproj.InfeasibleError) as caught:
            oneproj.solve(
                problem,
                method=method,
                steps=9,
                callbacks=validate,
                on_failure=on_failure,
            )
        assert caught.value is failed[-1]
        assert problem.parameters[0].detach().norm() > 1e9, "nothing is undone"


def test_what_a_callback_finds_nan_is_not_said_of_this_run(
    nearest_in_ball: Make,
) -> None:
    def validate(update: Update) -> None:
        raise oneproj.NonFiniteError(quantity, step=update.update + 30)

    quantity = "a score"
    with pytest.raises(oneproj.NonFiniteError, match=r"a score.* at update 31"):
        oneproj.solve(nearest_in_ball(), steps=9, callbacks=validate)


class Doubts(Cuts):
    """Says of its third answer that it is none."""

    calls = 0

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        found = super().project(parameters, constraints)
        self.calls += 1
        status = Status.INFEASIBLE if self.calls == 3 else found.status
        return dataclasses.replace(found, status=status)


@pytest.mark.parametrize("on_failure", ["raise", "return"])
def test_a_projection_that_failed_in_an_update_is_not_ctrl_c(
    nearest_in_ball: Make,
    on_failure: Any,  # noqa: ANN401 - a word
) -> None:
    for _ in range(2):
        with pytest.warns(
            oneproj.OneprojWarning, match="projection of update 3 failed"
        ):
            solution = oneproj.solve(
                nearest_in_ball(),
                method="projected-sgd",
                steps=9,
                projector=Doubts(),
                on_failure=on_failure,
            )
        assert solution.status is Status.INTERRUPTED
        assert solution.feasible
        assert solution.history["update"] == [1, 2]


def test_ctrl_c_while_it_projects_raises_and_leaves_the_trained_point(
    nearest_in_ball: Make,
) -> None:
    # Pulled to (3, 4), with a push back that is too weak.
    arguments = {"steps": 40, "strength": 0.01, "base": "sgd", "lr": 0.1}
    problem = nearest_in_ball()
    pressed: list[Tensor] = []

    class Pressed(Cuts):
        def project(
            self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
        ) -> Projection:
            pressed.extend(p.detach().clone() for p in parameters)
            with torch.no_grad():
                parameters[0].fill_(1e6)
            signal.raise_signal(signal.SIGINT)
            return super().project(parameters, constraints)

    with pytest.raises(KeyboardInterrupt):
        oneproj.solve(problem, projector=Pressed(), **arguments)
    (w,) = problem.parameters
    assert torch.equal(w.detach(), pressed[0])
    assert 4.0 < w.norm().item() < 5.0, "trained, and not projected"


# --- the parts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "raises"), [(0.0, True), (AGAIN - 0.5, True), (AGAIN + 0.5, False)]
)
def test_the_second_one_has_to_come_soon(after: float, *, raises: bool) -> None:
    now = time.monotonic()
    with pytest.warns(oneproj.OneprojWarning, match="Ctrl-C ended this run"):
        warn_of_end(End.PRESSED, now, 3, 10, kept=None)
    if raises:
        with pytest.raises(KeyboardInterrupt):
            warn_of_end(End.PRESSED, now + after, 4, 10, kept=None)
        after = AGAIN  # it is all over: the next one is a first one again
    with pytest.warns(oneproj.OneprojWarning, match="after update 5 of 10"):
        warn_of_end(End.PRESSED, now + after, 5, 10, kept=None)


def test_every_callback_is_called_whatever_the_others_want() -> None:
    seen: list[str] = []

    def stop(update: Update) -> bool:
        seen.append("stop")
        return update.update > 1

    def go_on(update: Update) -> None:
        del update
        seen.append("go on")

    calls = Callbacks([stop, go_on])
    assert not calls(Update(1, 9, 0.0, {}, 0.0))
    assert calls(Update(2, 9, 0.0, {}, 0.0))
    assert seen == ["stop", "go on"] * 2
    assert Callbacks(stop)(Update(2, 9, 0.0, {}, 0.0)), "one needs no list"


@pytest.mark.parametrize("callbacks", [3, [3], [print, "no"]])
def test_what_cannot_be_called_back_is_refused(
    nearest_in_ball: Make,
    callbacks: Any,  # noqa: ANN401 - anything
) -> None:
    with pytest.raises(
        oneproj.InvalidProblemError, match=r"callback is called.*list of"
    ):
        oneproj.solve(nearest_in_ball(), steps=4, callbacks=callbacks)


@pytest.mark.parametrize("answer", [torch.zeros(2), np.zeros(2), 1, 0.25, "stop"])
def test_an_answer_that_is_no_truth_is_named(answer: object) -> None:
    kind = type(answer).__name__
    named = rf"one returned .*, a {kind}"
    with pytest.raises(oneproj.InvalidProblemError, match=named):
        Callbacks(lambda _: answer)(Update(1, 9, 0.0, {}, 0.0))


@pytest.mark.parametrize("answer", [True, np.bool_(True), torch.tensor([True])])  # noqa: FBT003 - it is the answer
def test_one_truth_of_any_library_stops(answer: Any) -> None:  # noqa: ANN401 - as above
    assert Callbacks(lambda _: answer)(Update(1, 9, 0.0, {}, 0.0))
    assert not Callbacks(lambda _: answer ^ answer)(Update(1, 9, 0.0, {}, 0.0))


def test_a_callback_that_ends_the_run_at_once_is_named(nearest_in_ball: Make) -> None:
    with (
        pytest.warns(oneproj.OneprojWarning, match="selected iterate is the start"),
        pytest.warns(oneproj.OneprojWarning, match=r"first of 40 updates.*tqdm"),
    ):
        oneproj.solve(nearest_in_ball(), steps=40, callbacks=lambda _: True)
