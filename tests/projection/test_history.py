"""``Projection.history`` and its picture."""

from __future__ import annotations

import math

import matplotlib as mpl
import pytest
import torch

import oneproj
from oneproj.errors import InvalidProblemError
from oneproj.problem.problem import named_constraints
from oneproj.projection import Cuts, plot_history

mpl.use("Agg")


def project_onto_a_shell() -> oneproj.results.Projection:
    w = torch.tensor([3.0, 1.0], dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: w.square().sum() + w[0].sin())
    return oneproj.project(w, {"size": size <= 1.0})


def test_every_visited_point_is_in_the_history() -> None:
    done = project_onto_a_shell()
    looks, worst, far = zip(*done.history, strict=True)
    assert (looks[0], far[0]) == (1, 0.0)
    assert worst[0] == done.residuals_before["size"]
    assert list(looks) == sorted(looks)
    assert looks[-1] <= done.gradients
    assert (done.residuals["size"], pytest.approx(done.distance)) in zip(
        worst, far, strict=True
    )


def test_the_first_search_of_two_is_in_it_too() -> None:
    # Cuts run out of gradients here, and the local search begins at the start again.
    a = torch.logspace(0, 6, 30, dtype=torch.float64)
    w = torch.ones(30, dtype=torch.float64, requires_grad=True)
    size = oneproj.function(lambda: torch.sum(a * w.square()), curvature="convex")
    cuts = oneproj.projection.Cuts(max_evaluations=3)
    done = oneproj.project(w, {"size": size <= 1.0}, projector=cuts)
    assert done.history[-1][0] >= done.gradients - 2


def test_its_distances_are_those_of_the_rounded_points() -> None:
    w = torch.tensor([3.0, 1.0, 0.7], dtype=torch.bfloat16, requires_grad=True)
    start, points = w.detach().double(), []

    def size() -> torch.Tensor:
        points.append(w.detach().double())
        return w.float().square().sum() + w[0].float().sin()

    cap = named_constraints({"size": oneproj.function(size) <= 1.0})
    points.clear()
    done = Cuts().project([w], cap)
    seen = [(p - start).norm().item() for p in points]
    assert [far for _, _, far in done.history] == pytest.approx(seen, rel=1e-12)
    assert done.distance == pytest.approx((w.double() - start).norm().item())


def test_a_point_without_a_value_is_in_it_too() -> None:
    # The first linearisation of log(x) <= -1 at 3 points to x <= 0.
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    done = oneproj.project(w, {"log": oneproj.function(lambda: w.log().sum()) <= -1.0})
    assert [looks for looks, _, _ in done.history] == [*range(1, done.gradients + 1)]
    lost = [far for _, worst, far in done.history if worst == math.inf]
    assert lost
    assert min(lost) >= 3.0
    ax = plot_history(done)
    assert all(math.isfinite(y) for y in ax.get_ylim())
    ax.figure.canvas.draw()
    mpl.pyplot.close(ax.figure)


@pytest.mark.parametrize("linear", [True, False])
def test_points_where_only_values_are_taken_are_in_it_too(linear: bool) -> None:  # noqa: FBT001 - a parameter of the test
    w = torch.tensor([2.0, 0.5], dtype=torch.float64, requires_grad=True)
    start, points = w.detach().clone(), []

    def first() -> torch.Tensor:
        points.append(w.detach().clone())
        return w[0] - 1.0 if linear else w[0] * w[0] - 1.0

    stated = {"first": oneproj.function(first) <= 0.0}
    if linear:
        stated["sum"] = oneproj.sets.Simplex(2.5).on(w)
    stated = named_constraints(stated)
    points.clear()
    done = Cuts().project([w], stated)
    assert done.status.ok
    seen = [(p - start).norm().item() for p in points]
    assert [far for _, _, far in done.history] == pytest.approx(seen, abs=1e-12)
    assert done.history[-1][0] == done.gradients


def test_the_history_is_plain_data() -> None:
    assert project_onto_a_shell().to_dict()["history"][0][0] == 1


def test_the_picture_shows_every_point() -> None:
    done = project_onto_a_shell()
    ax = plot_history(done)
    shown = sum(len(dots.get_offsets()) for dots in ax.collections)
    assert shown == len(done.history)
    mpl.pyplot.close(ax.figure)


def test_a_projection_without_a_search_has_no_picture() -> None:
    w = torch.tensor([3.0], requires_grad=True)
    done = oneproj.project(w, {"box": oneproj.sets.Box(0.0, 1.0).on(w)})
    assert done.history == ()
    with pytest.raises(InvalidProblemError, match="no history to draw"):
        plot_history(done)
