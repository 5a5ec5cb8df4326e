"""The bundle: the nearest point of some halfspaces, whatever is forgotten of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from oneproj.projection.bundle import Bundle
from oneproj.vectors.space import AbstractPacked, Long, Short

Array = NDArray[np.float64]


def halfspaces(count: int, size: int, seed: int) -> tuple[Array, Array]:
    """``G d + v <= 0``, satisfied strictly by some d and violated by 0."""
    rng = np.random.default_rng(seed)
    inside = rng.normal(size=size)
    G = rng.normal(size=(count, size)) * rng.uniform(0.1, 10.0, size=(count, 1))
    return G, -G @ inside - rng.uniform(0.0, 0.5, size=count)


def pack_short(array: Array) -> AbstractPacked:
    return Short(array.copy(), np.finfo(array.dtype).eps)


def pack_long(array: Array) -> AbstractPacked:
    """Two tensors, as of a model with two parameters."""
    whole = torch.tensor(array)
    return Long([whole[:1], whole[1:]])


Pack = Callable[[Array], AbstractPacked]
both = pytest.mark.parametrize("pack", [pack_short, pack_long])


def filled(
    G: Array, v: Array, at: Array | None = None, *, pack: Pack = pack_short
) -> Bundle:
    bundle = Bundle(capacity=100)
    point = np.zeros(G.shape[1]) if at is None else at
    for i, (g, value) in enumerate(zip(G, v, strict=True)):
        bundle.add(f"c{i}", float(value + g @ point), pack(g), pack(point))
    return bundle


def flat(vector: AbstractPacked) -> Array:
    if isinstance(vector, Short):
        return vector.numbers
    assert isinstance(vector, Long)
    return np.concatenate([t.numpy() for t in vector.tensors])


def unit_normals(bundle: Bundle, like: AbstractPacked) -> list[Array]:
    """The normals, one by one, as vectors."""
    return [flat(bundle.basis.vector(row, like)) for row in bundle.normals]


def no_margins(count: int) -> dict[str, float]:
    return {f"c{i}": 0.0 for i in range(count)}


def nearest(G: Array, v: Array) -> Array:
    found = minimize(
        lambda d: 0.5 * d @ d,
        np.zeros(G.shape[1]),
        jac=lambda d: d,
        constraints={
            "type": "ineq",
            "fun": lambda d: -(G @ d + v),
            "jac": lambda _: -G,
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return np.asarray(found.x)


@both
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("count", "size"), [(1, 2), (3, 2), (4, 6), (10, 5)])
def test_it_finds_the_nearest_point_and_its_multipliers(
    count: int, size: int, seed: int, pack: Pack
) -> None:
    G, v = halfspaces(count, size, seed)
    bundle = filled(G, v, pack=pack)
    assert bundle.solve(no_margins(count))
    d = flat(bundle.displacement(pack(np.zeros(size))))
    mu = np.array([bundle.multipliers()[f"c{i}"] for i in range(count)])
    # The KKT conditions, which for halfspaces are the whole truth.
    assert (G @ d + v <= 1e-10 * (1 + np.abs(v))).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(d, -mu @ G, atol=1e-10)
    np.testing.assert_allclose(mu * (G @ d + v), 0.0, atol=1e-9)
    np.testing.assert_allclose(d, nearest(G, v), atol=1e-5)
    assert bundle.lower_bound() == pytest.approx(np.linalg.norm(d), rel=1e-10)


def test_a_cut_may_be_taken_anywhere() -> None:
    G, v = halfspaces(4, 3, 0)
    here, there = filled(G, v), filled(G, v, at=np.array([3.0, -2.0, 5.0]))
    for bundle in (here, there):
        bundle.solve(no_margins(4))
    like = pack_short(np.zeros(3))
    np.testing.assert_allclose(
        flat(here.displacement(like)), flat(there.displacement(like)), atol=1e-12
    )


@both
def test_the_gram_matrix_is_that_of_the_unit_normals_after_every_change(
    pack: Pack,
) -> None:
    G, v = halfspaces(12, 4, 1)
    for capacity in (3, 5, 100):
        bundle = Bundle(capacity)
        for i, (g, value) in enumerate(zip(G, v, strict=True)):
            bundle.make_room(1)
            bundle.add(f"c{i}", float(value), pack(g), pack(np.zeros(4)))
            bundle.solve(no_margins(12))
            N = np.array(unit_normals(bundle, pack(np.zeros(4))))
            assert len(bundle.basis) <= capacity
            np.testing.assert_allclose(bundle.gram, N @ N.T, atol=1e-12)
            np.testing.assert_allclose(np.diag(bundle.gram), 1.0, atol=1e-12)


def test_a_margin_is_measured_in_the_constraints_own_units() -> None:
    bundle = Bundle(10)
    zero = pack_short(np.zeros(1))
    bundle.add("a", 2.0, pack_short(np.array([4.0])), zero)
    assert bundle.solve({"a": 1.0})  # 2 + 4 d <= -1
    assert flat(bundle.displacement(zero)).item() == pytest.approx(-0.75)
    # Without the margin -0.5 would do; the dual value at this z proves a little less.
    assert 0.4 < bundle.lower_bound() <= 0.5


def test_two_cuts_of_one_constraint_add_up_in_its_multiplier() -> None:
    bundle = Bundle(10)
    zero = pack_short(np.zeros(2))
    bundle.add("kink", 1.0, pack_short(np.array([2.0, 0.0])), zero)
    bundle.add("kink", 3.0, pack_short(np.array([0.0, 4.0])), zero)
    bundle.solve({"kink": 0.0})
    # d = (-1/2, -3/4) = -(1/4) (2, 0) - (3/16) (0, 4)
    assert bundle.multipliers() == pytest.approx({"kink": 1 / 4 + 3 / 16})


@both
@pytest.mark.parametrize("seed", range(5))
def test_mixing_keeps_the_solution_the_multipliers_and_the_bound(
    seed: int, pack: Pack
) -> None:
    G, v = halfspaces(6, 8, seed)
    bundle = filled(G, v, pack=pack)
    margins = no_margins(6)
    bundle.solve(margins)
    like = pack(np.zeros(8))
    d, mu, bound = (
        flat(bundle.displacement(like)),
        bundle.multipliers(),
        bundle.lower_bound(),
    )
    bundle.capacity = len(bundle.basis)
    bundle.make_room(bundle.capacity - 1)  # leaves one cut, the mean of all
    assert len(bundle) == len(bundle.basis) == 1
    assert bundle.solve(margins)
    np.testing.assert_allclose(flat(bundle.displacement(like)), d, atol=1e-10)
    assert bundle.lower_bound() == pytest.approx(bound, rel=1e-10)
    found = bundle.multipliers()
    assert found == pytest.approx({n: mu[n] for n in found}, abs=1e-10)
    assert sum(mu[n] for n in mu if n not in found) == 0.0


def test_mixed_cuts_are_still_satisfied_by_every_feasible_point() -> None:
    rng = np.random.default_rng(0)
    G, v = halfspaces(3, 3, 4)
    bundle = filled(G, v)
    bundle.solve(no_margins(3))
    bundle.capacity = len(bundle.basis)
    bundle.make_room(bundle.capacity - 1)
    D = 5 * rng.normal(size=(20_000, 3))
    feasible = D[(D @ G.T + v <= 0).all(axis=1)]
    assert len(feasible) > 10
    (offset,), (normal,) = (
        bundle.offset,
        unit_normals(bundle, pack_short(np.zeros(3))),
    )
    assert (feasible @ normal <= offset + 1e-12).all()


def test_a_flat_linearisation_that_is_met_is_no_cut() -> None:
    bundle, zero = Bundle(5), pack_short(np.zeros(2))
    bundle.add("flat", -1.0, zero, zero)
    assert bundle.solve({"flat": 0.0})
    assert flat(bundle.displacement(zero)).tolist() == [0.0, 0.0]


def test_a_flat_linearisation_that_is_not_met_excludes_everything() -> None:
    # A convex function whose gradient vanishes is nowhere lower.
    bundle, zero = Bundle(5), pack_short(np.zeros(2))
    bundle.add("flat", 1.0, zero, zero)
    assert not bundle.solve({"flat": 0.0})
    assert bundle.contradicts


@pytest.mark.parametrize(("gap", "proof"), [(1.0, True), (1e-3, True), (1e-12, False)])
def test_a_contradiction_is_a_proof_only_beyond_rounding(
    gap: float,
    proof: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bundle = Bundle(3)
    zero, up = pack_short(np.zeros(2)), np.array([1.0, 1.0])
    bundle.add("above", 1.0 + gap, pack_short(-up), zero)  # sum(d) >= 1 + gap
    bundle.add("below", -1.0, pack_short(up), zero)  # sum(d) <= 1
    assert not bundle.solve({"above": 0.0, "below": 0.0})
    assert bundle.contradicts is proof


def mixed_from(far: float) -> Bundle:
    """``d_1 <= 0.001`` and ``-d_1 + 0.001 d_2 <= 0``, seen from far away, then mixed.

    The normals cancel but for a thousandth, which says ``d_2 <= 1``.
    """
    bundle, at = Bundle(10), np.array([far, 0.0])
    for g, h in ((np.array([1.0, 0.0]), 1e-3), (np.array([-1.0, 1e-3]), 0.0)):
        bundle.add("far", float(g @ at - h), pack_short(g), pack_short(at))
    bundle.z = bundle.slope.copy()  # one of each normal
    bundle.capacity = 2
    bundle.make_room(1)
    return bundle


def test_what_is_left_of_normals_that_cancel_has_the_rounding_of_both() -> None:
    cuts = mixed_from(1e6)
    assert cuts.offset == pytest.approx([1.0], rel=1e-5)
    # Two cuts of rounding eps 10^6 each, added, and divided by the length 0.001; and
    # the normals' own, which is as many units of the distance 1.
    unit = np.finfo(np.float64).eps
    assert cuts.rounding == pytest.approx([2.0 * unit * (1e6 + 1.0) / 1e-3], rel=1e-6)
    near = mixed_from(0.0)
    assert near.rounding == pytest.approx([2.0 * unit / 1e-3], rel=1e-6)


@pytest.mark.parametrize(
    ("far", "gap", "proof"), [(1e6, 1e-4, False), (1e6, 1e-2, True), (1.0, 1e-4, True)]
)
def test_a_mixed_cut_is_no_proof_within_its_rounding(
    far: float, gap: float, *, proof: bool
) -> None:
    bundle = mixed_from(far)
    bundle.add(
        "near", 1.0 + gap, pack_short(np.array([0.0, -1.0])), pack_short(np.zeros(2))
    )
    assert not bundle.solve({"far": 0.0, "near": 0.0})  # d_2 <= 1 and d_2 >= 1 + gap
    assert bundle.contradicts is proof


def test_the_bound_does_not_rest_on_what_rounding_moved() -> None:
    bundle, far = Bundle(10), 1e7
    unit = pack_short(np.array([1.0, 0.0], dtype=np.float32))
    bundle.add("near", 1.0, unit, pack_short(np.zeros(2)))  # d_1 <= -1
    # The same halfspace from far away, where one rounding unit of a number is 1.
    bundle.add("far", far + 2.0, unit, pack_short(np.array([far, 0.0])))
    assert bundle.solve({"near": 0.0, "far": 0.0})
    assert bundle.length() == 2.0
    assert 1.0 - 2.0**-22 <= bundle.lower_bound() <= 1.0
