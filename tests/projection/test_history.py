"""``Projection.history`` and its picture."""

from __future__ import annotations

import matplotlib as mpl
import pytest
import torch

import oneproj
from oneproj.errors import InvalidProblemError
from oneproj.projection import plot_history

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
