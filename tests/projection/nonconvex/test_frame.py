"""The frame: orthonormal coordinates of a growing span."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import oneproj
from oneproj.errors import NonFiniteError
from oneproj.projection.nonconvex.frame import INDEPENDENT, Frame
from oneproj.vectors import storage as piles
from oneproj.vectors.space import AbstractPacked, Long, Short
from oneproj.vectors.storage import pile_of


def short(*numbers: float) -> Short:
    return Short(np.array(numbers), eps=2**-52)


def long(*numbers: float) -> Long:
    whole = torch.tensor(numbers, dtype=torch.float64)
    return Long([whole[:1], whole[1:]])


both = pytest.mark.parametrize("pack", [short, long])
Pack = Callable[..., AbstractPacked]


def vectors(count: int, seed: int, pack: Pack = short) -> list[AbstractPacked]:
    rng = np.random.default_rng(seed)
    return [pack(*rng.normal(size=11)) for _ in range(count)]


def distance(a: AbstractPacked, b: AbstractPacked) -> float:
    return a.minus(b).norm()


@both
@pytest.mark.parametrize("seed", range(5))
def test_coordinates_keep_inner_products(seed: int, pack: Pack) -> None:
    frame, V = Frame(room=10), vectors(8, seed, pack)
    y = [frame.coordinates(v) for v in V]
    assert frame.size == 8
    for a, ya in zip(V, y, strict=True):
        for b, yb in zip(V, y, strict=True):
            assert float(ya @ yb) == pytest.approx(a.dot(b), abs=1e-12)


@both
@pytest.mark.parametrize("seed", range(5))
def test_there_and_back(seed: int, pack: Pack) -> None:
    frame, V = Frame(room=10), vectors(6, seed, pack)
    for v in V:
        y = frame.coordinates(v)
        assert distance(frame.vector(y), v) < 1e-11
    for v in V:  # and later, when the frame has grown
        assert distance(frame.vector(frame.coordinates(v)), v) < 1e-11
    assert frame.size == 6, "what is in the span adds nothing"


def test_any_coordinates_are_a_vector_of_their_length() -> None:
    frame = Frame(room=10)
    for v in vectors(6, 0):
        frame.coordinates(v)
    rng = np.random.default_rng(0)
    for size in (1, 3, 6):
        y = np.zeros(10)
        y[:size] = rng.normal(size=size)
        assert frame.vector(y).norm() == pytest.approx(float(np.linalg.norm(y)))


@pytest.mark.parametrize(("outside", "grows"), [(100.0, True), (0.01, False)])
def test_it_grows_by_what_is_independent_beyond_rounding(
    outside: float,
    grows: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    frame = Frame(room=10)
    frame.coordinates(short(1.0, 0.0))
    y = frame.coordinates(short(1.0, outside * INDEPENDENT))
    assert frame.size == np.count_nonzero(y) == 1 + grows
    assert y[0] == pytest.approx(1.0)


@both
def test_zeros_that_come_in_lists_add_nothing(pack: Pack) -> None:
    frame = Frame(room=2)
    for _ in range(2):
        rows = frame.all_coordinates([pack(0.0, 0.0, 0.0)])
        assert rows.tolist() == [[0.0, 0.0]]
    assert frame.size == 0


@both
def test_zero_adds_nothing(pack: Pack) -> None:
    frame, zero = Frame(room=2), pack(0.0, 0.0, 0.0)
    assert frame.coordinates(zero).tolist() == [0.0, 0.0]
    assert frame.size == 0
    frame.coordinates(pack(1.0, 1.0, 1.0))
    assert frame.coordinates(zero).tolist() == [0.0, 0.0]
    assert frame.size == 1


def test_float32_vectors_have_float64_coordinates() -> None:
    frame, generator = Frame(room=10), torch.Generator().manual_seed(1)
    V = [Long([torch.randn(5, generator=generator)]) for _ in range(4)]
    y = [frame.coordinates(v) for v in V]
    assert {row.dtype for row in y} == {np.dtype(np.float64)}
    last = frame.vector(y[-1])
    assert isinstance(last, Long)
    assert last.tensors[0].dtype == torch.float32
    assert distance(last, V[-1]) < 1e-5


def test_a_full_frame_gives_the_nearest_vector() -> None:
    frame, V = Frame(room=3), vectors(5, 2)
    for v in V:
        y = frame.coordinates(v)
    assert frame.size == 3
    rest = V[-1].minus(frame.vector(y))
    for v in V[:3]:
        assert rest.dot(v) == pytest.approx(0.0, abs=1e-12)


@both
@pytest.mark.parametrize("share", [1e-4, 1e-6, 1e-8])
def test_nearly_dependent_vectors_keep_their_small_parts(
    share: float, pack: Pack
) -> None:
    # As gradients at neighbouring points: the squares alone would lose the difference.
    frame, (base, *others) = Frame(room=6), vectors(5, 3, pack)
    V = [base, *(base.times(1.0) for _ in others)]
    for nearby, v in zip(V[1:], others, strict=True):
        nearby.add(v, share)
    for v in V:
        frame.coordinates(v)
    assert frame.size == 5
    y, z = (frame.coordinates(v) for v in V[-2:])
    apart = distance(V[-2], V[-1])
    assert float(np.linalg.norm(y - z)) == pytest.approx(apart, rel=1e-6)


@both
def test_all_coordinates_at_once_are_those_one_by_one(pack: Pack) -> None:
    a, b, c, d, e = vectors(5, 0, pack)
    nearly = a.times(1.0)
    nearly.add(d, 1e-6)  # what is left of it is stored in its place
    alone, together = Frame(room=6), Frame(room=6)
    rows = []
    for group in ([a, b], [nearly, c, b], [d, e], [c, nearly]):
        rows += [alone.coordinates(vector) for vector in group]
        found = together.all_coordinates(group)
        np.testing.assert_allclose(found, rows[-len(group) :], rtol=1e-9, atol=1e-9)
    assert alone.size == together.size == 5


@both
@pytest.mark.parametrize("group", [1, 3])
def test_lists_that_hardly_change_are_located_by_their_changes(
    pack: Pack, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed = []
    kind = type(pile_of(pack(1.0, 1.0)))
    make = kind.remainder
    monkeypatch.setattr(
        kind, "remainder", lambda *given: formed.append(given) or make(*given)
    )
    frame, lists = Frame(room=40), [vectors(group, 0, pack)]
    for seed in (1, 2):
        moved = [v.times(1.0) for v in lists[-1]]
        for v, change in zip(moved, vectors(group, seed, pack), strict=True):
            v.add(change, 1e-2**seed)  # each change is as new as it is small
        lists.append(moved)
    rows = [frame.all_coordinates(given) for given in lists]
    assert frame.size == 3 * group
    for given, found in zip(lists, rows, strict=True):
        for v, y in zip(given, found, strict=True):
            assert distance(frame.vector(y), v) < 1e-11
    assert not formed, "nothing was looked for twice"


@both
def test_there_are_no_more_axes_than_dimensions(pack: Pack) -> None:
    frame, moved = Frame(room=40), vectors(3, 0, pack)
    for seed in range(1, 7):
        frame.all_coordinates(moved)
        moved = [v.times(1.0) for v in moved]
        for v, change in zip(moved, vectors(3, seed, pack), strict=True):
            v.add(change, 1e-2**seed)
    assert frame.size <= 11


@both
def test_a_vector_that_all_but_vanished_keeps_its_digits(pack: Pack) -> None:
    frame, (large, tiny) = Frame(room=5), vectors(2, 0, pack)
    small = tiny.times(1e-12)
    frame.all_coordinates([large])
    row = frame.all_coordinates([small])[0]
    assert float(np.linalg.norm(row)) == pytest.approx(small.norm(), rel=1e-12)
    assert distance(frame.vector(row), small) < 1e-12 * small.norm()


def test_products_of_several_long_vectors_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_by_one = []
    monkeypatch.setattr(piles, "products", one_by_one.append)
    monkeypatch.setattr(piles, "products_of_change", one_by_one.append)
    frame = Frame(room=9)
    for seed in range(3):
        frame.all_coordinates(vectors(3, seed, long))
    assert frame.size == 9
    assert not one_by_one


@both
@pytest.mark.parametrize("room", [1, 3])
@np.errstate(over="ignore", invalid="ignore")
def test_a_vector_whose_square_overflows_is_refused(pack: Pack, room: int) -> None:
    frame = Frame(room)
    frame.coordinates(pack(1e150, 0.0))
    with pytest.raises(NonFiniteError, match="squared length"):
        frame.all_coordinates([pack(1e160, 1e160)])
    assert frame.size == 1
    assert frame.coordinates(pack(3e150, 0.0))[0] == pytest.approx(3e150)


def check_orthonormal(frame: Frame, tolerance: float = 1e-8) -> None:
    axes = [frame.vector(row) for row in np.eye(frame.room)[: frame.size]]
    gram = np.array([[a.dot(b) for b in axes] for a in axes])
    assert np.abs(gram - np.eye(frame.size)).max() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pause", [3, 1000])
def test_it_stays_orthonormal_in_few_bits(dtype: torch.dtype, pause: int) -> None:
    # What is left of a vector is rounded: known coordinates then lack a bit of it,
    # which was many times the next change.
    generator = torch.Generator().manual_seed(0)
    frame = Frame(room=60)
    x = torch.randn(400, generator=generator, dtype=torch.float64)
    for k in range(55):
        frame.all_coordinates([Long([x.to(dtype)])])
        size = 10.0 ** (-6 + 4 * torch.rand(1, generator=generator))
        change = torch.randn(400, generator=generator, dtype=torch.float64)
        x = x + (k % pause > 0) * size.item() * change
    check_orthonormal(frame, tolerance=4 * torch.finfo(dtype).eps)


@both
@pytest.mark.parametrize("listed", [False, True])
def test_it_stays_orthonormal_along_an_ill_conditioned_quadratic(
    pack: Pack,
    listed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # Gradients of a quadratic along its own descent: each nearly in the span so far.
    rng = np.random.default_rng(1)
    spread = np.logspace(3, -3, 30)
    x, frame = rng.normal(size=30), Frame(room=40)
    for _ in range(60):
        gradient = pack(*(spread * x))
        if listed:
            frame.all_coordinates([gradient])
        else:
            frame.coordinates(gradient)
        x = x - spread * x / spread.max() * rng.uniform(0.5, 1.5)
    assert 10 < frame.size <= 30
    check_orthonormal(frame)


@both
def test_what_was_too_small_for_an_axis_is_in_none_later(pack: Pack) -> None:
    # Known coordinates lack what was dropped; a change of that size would bring it in.
    rng = np.random.default_rng(0)
    frame, x = Frame(room=60), rng.normal(size=40)
    for k in range(150):
        frame.all_coordinates([pack(*x)])
        x = x + 10.0 ** rng.uniform(-12, -4) * rng.normal(size=40) * (k % 3 > 0)
    assert frame.size == 40
    check_orthonormal(frame)


@pytest.mark.parametrize("seed", range(3))
def test_an_ill_conditioned_quadratic_is_projected_onto(seed: int) -> None:
    # Once the frame was not orthonormal, steps led nowhere: 350 gradients and more.
    rng = np.random.default_rng(seed)
    spread, start = np.logspace(3, -3, 30), 3.0 * rng.normal(size=30)
    turn, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    low, high = 0.0, 1e6  # the nearest point is start / (1 + mu * spread)
    for _ in range(200):
        mu = 0.5 * (low + high)
        inside = (spread * (start / (1.0 + mu * spread)) ** 2).sum() <= 1.0
        low, high = (low, mu) if inside else (mu, high)
    nearest = np.linalg.norm(start - start / (1.0 + high * spread))
    root = torch.tensor(np.sqrt(spread)[:, None] * turn)
    w = torch.tensor(turn.T @ start, requires_grad=True)
    term = oneproj.function(lambda: (root @ w).square().sum())
    done = oneproj.project(w, {"ellipsoid": term <= 1.0})
    assert done.gradients <= 150
    assert nearest <= done.distance <= 1.001 * nearest
