"""Local models: the step, its multipliers, the penalty, and what follows from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import oneproj
from oneproj.problem import named_constraints
from oneproj.projection.local import LocalModels, Model, project_local
from oneproj.projection.view import View
from oneproj.terms import AbstractTerm

Array = NDArray[np.float64]


def plain(J: Array, d: Array) -> Model:
    """The model without curvature."""
    return Model(J, J, -d)


def models(w: Tensor, stated: dict[str, AbstractTerm]) -> LocalModels:
    view = View([w], named_constraints(stated), differentiate_all=True)
    return LocalModels(view, memory=12, capacity=50)


def point(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


# --- the model ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_step_satisfies_the_kkt_conditions_of_the_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = 3, 5
    J, c, d = rng.normal(size=(m, n)), rng.normal(size=m), rng.normal(size=n)
    A = rng.normal(size=(n, n))
    H = np.eye(n) + A @ A.T  # I + B
    inverse = np.linalg.inv(H)
    p, mu, rho = Model(J, J @ inverse, -inverse @ d).feasible_step(0.0, c)
    assert (mu >= 0).all()
    assert mu.sum() <= rho * (1 + 1e-12)
    np.testing.assert_allclose(d + H @ p + mu @ J, 0, atol=1e-8)
    residual = c + J @ p
    assert residual.max() <= 1e-8
    np.testing.assert_allclose(mu * residual, 0, atol=1e-7)


def test_a_weak_penalty_bounds_the_multipliers() -> None:
    model = plain(np.array([[1.0, 0.0]]), np.zeros(2))
    p, mu = model.step(0.5, np.array([2.0]))
    assert mu.tolist() == pytest.approx([0.5])
    assert p.tolist() == pytest.approx([-0.5, 0.0])
    p, mu, rho = model.feasible_step(0.5, np.array([2.0]))
    assert rho >= 2.0
    assert p.tolist() == pytest.approx([-2.0, 0.0])


def test_contradictions_are_met_half_way() -> None:
    # d_1 <= -1 and -d_1 <= -1: the least worst residual is at d_1 = 0.
    J = np.array([[1.0, 0.0], [-1.0, 0.0]])
    p, mu, _ = plain(J, np.array([0.3, 0.0])).feasible_step(0.0, np.array([1.3, 0.7]))
    assert p[0] == pytest.approx(-0.3, abs=1e-6)
    assert mu.min() > 0


# --- the method ---------------------------------------------------------------


def test_one_step_reaches_a_halfspace_exactly() -> None:
    w = point(3.0, 1.0)
    found = models(w, {"side": oneproj.function(lambda: 2.0 * w[0]) <= 2.0})
    found.advance()
    assert w.tolist() == pytest.approx([1.0, 1.0], abs=1e-10)
    assert found.feasible
    assert found.multipliers() == pytest.approx({"side": 1.0})
    assert found.kkt_residual() < 1e-10
    assert found.length == pytest.approx(2.0)


def test_multipliers_of_several_constraints_are_theirs() -> None:
    w = point(3.0, 5.0, 7.0)
    stated = {
        "a": oneproj.function(lambda: 2.0 * w[0]) <= 2.0,
        "idle": oneproj.function(w.sum) <= 100.0,
        "b": oneproj.function(lambda: 4.0 * w[1]) <= 4.0,
    }
    found = models(w, dict(stated))
    found.advance()
    # 3 - 1 = 2 mu_a, 5 - 1 = 4 mu_b
    expected = {"a": 1.0, "idle": 0.0, "b": 1.0}
    assert found.multipliers() == pytest.approx(expected, abs=1e-9)


def test_a_bend_is_followed_to_the_kkt_conditions() -> None:
    # The nearest point of the outside of the unit disc, from (0.3, 0.4).
    w = point(0.3, 0.4)
    view = View(
        [w],
        named_constraints({"hole": oneproj.function(lambda: w.square().sum()) >= 1.0}),
        differentiate_all=True,
    )
    found = project_local(
        view, tolerance=1e-9, progress=0.0, max_evaluations=50, memory=12, capacity=50
    )
    assert view.best_point[0].tolist() == pytest.approx([0.6, 0.8], abs=1e-7)
    # (0.6, 0.8) - (0.3, 0.4) = mu 2 (0.6, 0.8)
    assert found.multipliers() == pytest.approx({"hole": 0.25}, abs=1e-6)
    assert view.evaluations < 20


@pytest.mark.parametrize("capacity", [4, 6, 100])
def test_a_new_frame_keeps_the_place(capacity: int) -> None:
    w = point(*(2.0 + 0.1 * k for k in range(6)))
    scale = torch.arange(1, 7, dtype=torch.float64)
    bowl = oneproj.function(lambda: (scale * w.square()).sum().sqrt()) <= 1.0
    view = View([w], named_constraints({"bowl": bowl}), differentiate_all=True)
    found = LocalModels(view, memory=12, capacity=capacity)
    for _ in range(15):
        found.advance()
        d = found._frame.vector(found.place.d)[0]
        assert torch.allclose(d, w.detach() - view.origin[0], atol=1e-6)
        assert found._frame.size <= capacity
    assert found.place.look.worst < 0.02 * view.first.worst


def test_resuming_goes_to_the_best_point() -> None:
    w = point(3.0, 0.0)
    stated = {"size": oneproj.function(lambda: w.square().sum()) <= 4.0}
    found = models(w, dict(stated))
    found._view.move([torch.tensor([-1.2, 0.1], dtype=torch.float64)])
    assert not found.feasible
    found.resume()
    assert found.feasible
    assert found.length == pytest.approx(math.hypot(1.2, 0.1))
    assert found.mu.tolist() == [0.0]


def test_the_way_inside_is_found_from_a_hair_outside() -> None:
    w = point(1.0 + 1e-7, 0.0)
    view = View(
        [w],
        named_constraints({"disc": oneproj.function(w.norm) <= 1.0}),
        differentiate_all=True,
    )
    found = LocalModels(view, memory=12, capacity=50)
    found.restore(np.maximum(found.place.c, 0.0))
    assert found.feasible
    assert found.length <= 3e-7


def test_a_rejected_full_step_is_corrected_before_it_is_shortened() -> None:
    w = point(3 * math.cos(3.0), 3 * math.sin(3.0))
    visited: list[Array] = []

    def size() -> Tensor:
        visited.append(w.detach().numpy().copy())
        return w.square().sum()

    found = models(
        w,
        {
            "circle": oneproj.function(size) <= 1.0,
            "right": oneproj.function(lambda: w[0] + 0.3 * w[1].sin()) >= 0.5,
            "not inside": oneproj.function(lambda: w.square().sum()) >= 0.99,
        },
    )
    assert found.advance() > 0
    start, full, corrected = visited
    p, q = full - start, corrected - start
    assert abs(p[0] * q[1] - p[1] * q[0]) > 1e-3, "it turns; a shorter step would not"


def test_a_step_that_overshoots_is_shortened() -> None:
    # tanh is flat at 3: its linearisation asks for a step that lands far beyond.
    w = point(3.0)
    visited: list[float] = []

    def wall() -> Tensor:
        visited.append(w.item())
        return w.tanh().sum() + 10.0 * (w + 1.0).clamp(max=0.0).square().sum()

    found = models(w, {"wall": oneproj.function(wall) <= 0.0})
    for _ in range(8):
        found.advance()
    assert min(visited) < -50.0, "the full step was tried"
    assert abs(w.item()) < 3.0
    assert found._view.best.worst < 0.5
