"""The model at a place: its step, its multipliers, and the penalty."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oneproj.projection.nonconvex.model import Model

Array = NDArray[np.float64]


def plain(J: Array, d: Array) -> Model:
    """The model without curvature."""
    rows = np.vstack([J, d])
    return Model.flat(rows)


@pytest.mark.parametrize("seed", range(20))
def test_the_step_satisfies_the_kkt_conditions_of_the_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = 3, 5
    J, c, d = rng.normal(size=(m, n)), rng.normal(size=m), rng.normal(size=n)
    A = rng.normal(size=(n, n))
    H = np.eye(n) + A @ A.T  # I + B
    inverse = np.linalg.inv(H)
    rows = np.vstack([J, d])
    p, mu = Model(rows, rows @ inverse).feasible_step(0.0, c)
    assert (mu >= 0).all()
    np.testing.assert_allclose(d + H @ p + mu @ J, 0, atol=1e-8)
    residual = c + J @ p
    assert residual.max() <= 1e-8
    np.testing.assert_allclose(mu * residual, 0, atol=1e-7)


def test_a_weak_penalty_bounds_the_multipliers() -> None:
    model = plain(np.array([[1.0, 0.0]]), np.zeros(2))
    p, mu = model.step(0.5, np.array([2.0]))
    assert mu.tolist() == pytest.approx([0.5])
    assert p.tolist() == pytest.approx([-0.5, 0.0])
    p, mu = model.feasible_step(0.5, np.array([2.0]))
    assert mu.tolist() == pytest.approx([2.0])
    assert p.tolist() == pytest.approx([-2.0, 0.0])


def test_contradictions_are_met_half_way() -> None:
    # d_1 <= -1 and -d_1 <= -1: the least worst residual is at d_1 = 0.
    J = np.array([[1.0, 0.0], [-1.0, 0.0]])
    p, mu = plain(J, np.array([0.3, 0.0])).feasible_step(0.0, np.array([1.3, 0.7]))
    assert p[0] == pytest.approx(-0.3, abs=1e-6)
    assert mu.min() > 0


def test_equal_constraints_share_the_multiplier() -> None:
    J = np.array([[1.0, 0.0], [1.0, 0.0]])
    p, mu = plain(J, np.zeros(2)).feasible_step(0.0, np.array([2.0, 2.0]))
    assert p.tolist() == pytest.approx([-2.0, 0.0])
    assert mu.sum() == pytest.approx(2.0)


@pytest.mark.parametrize("J", [np.zeros((1, 2)), np.full((1, 2), 1e-200)])
def test_a_flat_constraint_ends_the_search_for_a_penalty(J: Array) -> None:
    p, mu = plain(J, np.array([1.0, 0.0])).feasible_step(0.0, np.array([1.0]))
    assert np.isfinite(p).all()
    assert np.isfinite(mu).all()


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_solution_is_that_of_a_strong_penalty(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = 4, 6
    J, d, c = rng.normal(size=(m, n)), rng.normal(size=n), rng.normal(size=m)
    model = plain(J, d)
    p, mu = model.feasible_step(0.0, c)
    q, nu = _with_penalty(model, 2.0 * mu.sum() + 1.0, c)
    np.testing.assert_allclose(p, q, atol=1e-9)
    np.testing.assert_allclose(mu, nu, atol=1e-9)


def _with_penalty(model: Model, rho: float, c: Array) -> tuple[Array, Array]:
    """A third copy of a constraint makes the quick way give up."""
    rows = np.vstack([model.J, model.J[:1], -model.free])
    twice = Model.flat(rows)
    p, mu = twice.step(rho, np.append(c, c[0]))
    return p, np.append(mu[0] + mu[-1], mu[1:-1])


def test_the_search_for_a_penalty_ends_where_nothing_is_a_number() -> None:
    model = plain(np.full((1, 2), np.nan), np.zeros(2))
    p, _ = model.feasible_step(0.0, np.array([9.7e99]))
    assert np.isnan(p).any()
