"""Ctrl-C once finishes early and is said; twice it stops the user's own loop."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oneproj
from oneproj import Projection, Solution, Status, Update
from oneproj.problem import AbstractTerm
from oneproj.projection import AbstractProjector
from oneproj.vectors import Vector

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


def test_the_checkpoint_to_resume_from_is_named(
    nearest_in_ball: Make, tmp_path: Path
) -> None:
    path = tmp_path / "run.pt"
    with pytest.warns(oneproj.OneprojWarning) as said:
        oneproj.solve(
            nearest_in_ball(), steps=40, callbacks=press, checkpoint=str(path)
        )
    (message,) = [str(each.message) for each in said]
    assert f"The run can be resumed from the checkpoint {str(path)!r}." in message


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


class Delegates(AbstractProjector):
    """Projects as the library does; what is special comes on top."""

    name = "delegates"

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> None:
        del constraints

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        return oneproj.project(parameters, constraints)


class Doubts(Delegates):
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

    class Pressed(Delegates):
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


# --- the second Ctrl-C ----------------------------------------------------------------


@pytest.mark.parametrize(("after", "raises"), [(0.0, True), (2.0, True), (4.0, False)])
def test_the_second_one_has_to_come_soon(
    nearest_in_ball: Make,
    monkeypatch: pytest.MonkeyPatch,
    after: float,
    *,
    raises: bool,
) -> None:
    clock, shift = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock() + shift[0])
    with pytest.warns(oneproj.OneprojWarning, match="again within 3 seconds"):
        train([nearest_in_ball()], pressing=[0])
    shift[0] += after
    if raises:
        with pytest.raises(KeyboardInterrupt):
            train([nearest_in_ball()], pressing=[0])
        # It is all over: the next one is a first one again.
    with pytest.warns(oneproj.OneprojWarning, match="after update 25 of 40"):
        train([nearest_in_ball()], pressing=[0])


# --- callbacks ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_every_callback_is_called_whatever_the_others_want(
    nearest_in_ball: Make,
) -> None:
    seen: list[str] = []

    def stop(update: Update) -> bool:
        seen.append("stop")
        return update.update > 1

    def go_on(update: Update) -> None:
        del update
        seen.append("go on")

    oneproj.solve(nearest_in_ball(), steps=9, callbacks=[stop, go_on])
    assert seen == ["stop", "go on"] * 2
    seen.clear()
    oneproj.solve(nearest_in_ball(), steps=9, callbacks=stop)  # one needs no list
    assert seen == ["stop"] * 2


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
def test_an_answer_that_is_no_truth_is_named(
    nearest_in_ball: Make, answer: object
) -> None:
    kind = type(answer).__name__
    named = rf"one returned .*, a {kind}"
    with pytest.raises(oneproj.InvalidProblemError, match=named):
        oneproj.solve(nearest_in_ball(), steps=9, callbacks=lambda _: answer)


@pytest.mark.parametrize("answer", [True, np.bool_(True), torch.tensor([True])])  # noqa: FBT003 - it is the answer
@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_one_truth_of_any_library_stops(
    nearest_in_ball: Make,
    answer: Any,  # noqa: ANN401 - as above
) -> None:
    def stop_at_three(update: Update) -> Any:  # noqa: ANN401 - as above
        return answer if update.update == 3 else answer ^ answer

    found = oneproj.solve(nearest_in_ball(), steps=9, callbacks=stop_at_three)
    assert found.history["update"] == [1, 2, 3]


def test_a_callback_that_ends_the_run_at_once_is_named(nearest_in_ball: Make) -> None:
    with (
        pytest.warns(oneproj.OneprojWarning, match="selected iterate is the start"),
        pytest.warns(oneproj.OneprojWarning, match=r"first of 40 updates.*tqdm"),
    ):
        oneproj.solve(nearest_in_ball(), steps=40, callbacks=lambda _: True)
