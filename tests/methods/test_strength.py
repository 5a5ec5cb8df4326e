"""Automatic strengths: units, growth and decay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oneproj
from benchmarks.variations import VARIATIONS
from oneproj.methods import algorithm1 as penalized
from oneproj.methods.strength import LARGEST, AutoStrength
from oneproj.oracles.anchor import Anchor
from oneproj.oracles.penalties import Hinges

OWN = oneproj.Defaults()
SAFETY, KEPT = OWN.strength_over_multiplier, OWN.strength_decay
MOST, ROUNDED = OWN.push_limit, OWN.hinge_width
examples = settings(derandomize=True, deadline=None, max_examples=100)
SEEDS = st.integers(0, 2**31)


def wide(*values: float) -> list[Tensor]:
    return [torch.tensor(values, dtype=torch.float64)]


def rows(seed: int, m: int, d: int) -> list[list[Tensor]]:
    """Vectors of two tensors each: the objective's and m of constraints."""
    generator = np.random.default_rng(seed)
    drawn = torch.from_numpy(generator.normal(size=(m + 1, d)))
    return [[row[:1], row[1:]] for row in drawn]


# --- what a strength is -------------------------------------------------------


class Watched:
    """An AutoStrength that is told one objective gradient per anchor."""

    def __init__(self, names: str) -> None:
        self.strength, self.names = AutoStrength(OWN), names

    def see(
        self, f: list[Tensor], point: list[Tensor], *seen: tuple[float, list[Tensor]]
    ) -> tuple[float, ...]:
        self.strength.watch(f)
        values = {n: v for n, (v, _) in zip(self.names, seen, strict=True)}
        jacobian = {n: row for n, (_, row) in zip(self.names, seen, strict=True)}
        penalty = self.strength.adapt(Anchor(point, values, jacobian))
        assert isinstance(penalty, Hinges)
        return penalty.strengths


def test_a_strength_is_twice_the_multiplier() -> None:
    watched = Watched("a")
    x = wide(0.0, 0.0)
    assert watched.see(wide(-6.0, 0.0), x, (0.1, wide(2.0, 0.0))) == (6.0,)


def test_the_mean_is_over_the_gradients_since_the_last_anchor() -> None:
    strength = AutoStrength(OWN)
    anchor = Anchor(wide(0.0), {"a": 1.0}, {"a": wide(1.0)})
    for slope in (-1.0, -2.0, -6.0):
        strength.watch(wide(slope))
    assert strength.adapt(anchor).strengths == (6.0,)
    strength.watch(wide(-10.0))
    assert strength.adapt(anchor).strengths == (20.0,)
    with pytest.raises(ValueError, match="before any objective gradient"):
        strength.adapt(anchor)


def test_watching_keeps_its_own_copy() -> None:
    strength, gradient = AutoStrength(OWN), wide(-3.0)
    strength.watch(gradient)
    gradient[0].fill_(1e9)  # as the optimiser does with .grad
    anchor = Anchor(wide(0.0), {"a": 1.0}, {"a": wide(1.0)})
    assert strength.adapt(anchor).strengths == (6.0,)
    assert gradient[0].item() == 1e9


@examples
@given(
    seed=SEEDS,
    a=st.floats(1e-3, 1e3),
    b=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3),
)
def test_strengths_have_the_units_of_f_over_c(
    seed: int, a: float, b: list[float]
) -> None:
    generator = np.random.default_rng(seed)
    plain, scaled, seen = Watched("xyz"), Watched("xyz"), 0
    for _ in range(4):
        f, *c = rows(int(generator.integers(2**31)), 3, 5)
        values, point = generator.normal(size=3), wide(*generator.normal(size=5))
        once = plain.see(f, point, *zip(values, c, strict=True))
        other = scaled.see(
            [a * part for part in f],
            point,
            *(
                (s * v, [s * t for t in row])
                for s, v, row in zip(b, values, c, strict=True)
            ),
        )
        expected = [a / s * lam for s, lam in zip(b, once, strict=True)]
        assert other == pytest.approx(expected, rel=1e-8)
        seen += sum(lam > 0 for lam in once)
    assert seen > 0


# --- growth, decay, and what says nothing --------------------------------------


def test_a_strength_that_balances_a_violation_grows() -> None:
    # Too weak a hinge stands still where it balances f: the estimate is the strength
    # itself there, so it doubles from anchor to anchor.
    watched = Watched("a")
    watched.see(wide(-1.0), wide(-1.0), (0.5, wide(1.0)))
    lam = watched.see(wide(-1.0), wide(0.0), (0.5, wide(1.0)))[0]
    for _ in range(4):
        (found,) = watched.see(wide(-lam), wide(0.0), (0.5, wide(1.0)))
        assert found == pytest.approx(SAFETY * lam)
        lam = found


def test_what_is_not_needed_decays_to_the_floor_while_the_bound_is_near() -> None:
    watched = Watched("a")
    c = wide(1.0)
    (start,) = watched.see(wide(-3.0), wide(0.0), (1.0, c))
    assert start == 6.0
    for k in range(1, 8):  # f falls away from the constraint now: no multiplier
        expected = max(start * KEPT**k, OWN.strength_floor * 3.0)
        # The residual falls: one that stays would be the end of patience.
        seen = watched.see(wide(3.0), wide(-k), (0.8**k, c))
        assert seen == pytest.approx((expected,))


def test_far_outside_a_strength_does_not_fade() -> None:
    # Adam would slow down with it. One move is 1 long and the bound is 9 away.
    watched = Watched("a")
    (start,) = watched.see(wide(-3.0), wide(0.0), (10.0, wide(1.0)))
    assert start == 6.0
    for k in range(1, 4):
        c = 10.0 * 0.8**k
        assert watched.see(wide(0.0), wide(-1.0 * k), (c, wide(1.0))) == (start,)
    (near,) = watched.see(wide(0.0), wide(-4.0), (2.9, wide(1.0)))
    assert near == pytest.approx(KEPT * start)


def test_out_of_reach_it_decays_without_a_floor() -> None:
    watched = Watched("a")
    watched.see(wide(-3.0), wide(0.0), (1.0, wide(1.0)))
    for k in range(1, 20):
        (lam,) = watched.see(wide(3.0), wide(0.0), (-1.0, wide(1.0)))
        assert lam == pytest.approx(6.0 * KEPT**k)


def test_a_constraint_is_in_reach_if_the_last_move_again_would_meet_it() -> None:
    for value, expected in ((-1.9, 2 * 4.0), (-2.1, KEPT * 4.0)):
        watched = Watched("a")
        assert watched.see(wide(-2.0), wide(0.0), (9.0, wide(1.0))) == (4.0,)
        # One move further it is c + 2 at most; f pulls towards it with 4.
        (lam,) = watched.see(wide(-4.0), wide(2.0), (value, wide(1.0)))
        assert lam == pytest.approx(expected)


@pytest.mark.parametrize("slope", [0.0, 1e-30, 1e-8])
def test_a_saturated_constraint_does_not_explode(slope: float) -> None:
    # It is satisfied by far and flat: to balance f with it would take |f| / slope.
    watched = Watched("ab")
    active, flat_row = (0.1, wide(1.0, 0.0)), wide(0.0, slope)
    f = wide(-3.0, -1.0)
    for k in range(6):
        point = wide(0.1 * k, 0.0)
        lam, idle = watched.see(f, point, active, (-5.0, flat_row))
        assert lam == pytest.approx(6.0)
        assert idle == 0.0


def test_a_violated_constraint_that_turns_flat_is_pushed_in_proportion() -> None:
    # Sigmoids that saturate on the wrong side: to balance f takes |f| / slope, and once
    # the slope is back a push of that strength is many times what f pulls with.
    watched = Watched("a")
    watched.see(wide(-3.0), wide(0.0), (0.1, wide(1.0)))
    for k in range(1, 30):
        (lam,) = watched.see(wide(-3.0), wide(0.1 * k), (0.1, wide(1e-6)))
        assert lam * 1e-6 <= MOST * 3.0 * (1 + 1e-9)
        assert watched.strength.most_push == pytest.approx(MOST * 3.0)
    assert lam > 1e6, "the strength alone is no limit"
    (lam,) = watched.see(wide(-3.0), wide(3.0), (0.1, wide(1.0)))
    assert lam <= MOST * 3.0
    assert watched.strength.most_push is None


def test_gradients_that_cancel_ask_for_no_more() -> None:
    # Together they have a slope of 1e-5 towards f: multipliers of 1.5e5 each, and so
    # pushes that a step to the side leaves unbalanced.
    a, b = wide(1.0, 1e-5), wide(-1.0, 1e-5)
    c = wide(0.0, 0.0)
    lam = Watched("abc").see(wide(0.0, -3.0), c, (0.1, a), (0.1, b), (-9.0, c))
    assert lam[:2] == pytest.approx((MOST * 3.0, MOST * 3.0))


def test_no_strength_is_too_large_for_float32() -> None:
    (lam,) = Watched("a").see(wide(-3.0), wide(0.0), (0.1, wide(1e-60)))
    assert lam == LARGEST
    assert np.isfinite(np.float32(lam))


def test_without_constraints_there_is_nothing_to_weigh() -> None:
    assert Watched("").see(wide(1.0), wide(0.0)) == ()


# --- how rounded a hinge is ---------------------------------------------------


def test_hinges_are_as_wide_as_their_constraints_move() -> None:
    strength = AutoStrength(OWN)
    for point, expected in [(1.0, (0.0, 0.0)), (3.0, (4.0, 10.0)), (3.0, (0.0, 0.0))]:
        strength.watch(wide(-1.0))
        jacobian = {"a": wide(2.0), "b": wide(-5.0)}
        anchor = Anchor(wide(point), {"a": 9.0, "b": -9.0}, jacobian)
        penalty = strength.adapt(anchor)
        assert penalty.widths == pytest.approx([ROUNDED * w for w in expected])
        state = strength.state_dict()
        again = AutoStrength(OWN).load_state_dict(state, wide(0.0), ["a", "b"])
        assert again == penalty


def test_no_hinge_is_wider_than_its_constraint_was_away_from_its_bound() -> None:
    # In many dimensions moves are long and hardly along a gradient: with 10^5
    # parameters the width was 60 times the violation, and the hinge held nothing.
    strength = AutoStrength(OWN)
    for point, c, expected in [(0.0, -0.5, 0.0), (9.0, 0.2, 0.5), (0.0, 0.7, 0.7)]:
        strength.watch(wide(-1.0))
        anchor = Anchor(wide(point), {"a": c}, {"a": wide(2.0)})
        assert strength.adapt(anchor).widths == (expected,)
        resumed = AutoStrength(OWN)
        resumed.load_state_dict(strength.state_dict(), wide(0.0), ["a"])
        strength = resumed


def test_rounded_hinges_let_iterates_follow_a_bound() -> None:
    problem = VARIATIONS[0].problem
    rounded, sharp = (
        sum(
            oneproj.solve(
                problem(hidden=16, seed=s), steps=500, seed=s, defaults=defaults
            ).objective
            for s in range(2)
        )
        for defaults in (OWN, replace(OWN, hinge_width=1e-9))
    )
    assert rounded < 0.95 * sharp


# --- in a run -----------------------------------------------------------------


class Spy(AutoStrength):
    """Remembers the strengths of a run."""

    seen: list[tuple[float, ...]]

    def __init__(self, defaults: oneproj.Defaults) -> None:
        super().__init__(defaults)
        self.seen = []
        Spy.last = self

    def adapt(self, anchor: Anchor) -> Hinges:
        found = super().adapt(anchor)
        self.seen.append(found.strengths)
        return found


def valley(scale: float, unit: float) -> oneproj.Problem:
    """min (w - 5)^2 / 2 subject to w <= 0, where the slope is 5, from 4.9.

    The slope is 0.1 there: the first strength is 0.2 and balances f at 4.8, the next
    0.4, and so on.
    """
    w = torch.full((1,), 4.9, dtype=torch.float64, requires_grad=True)
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: scale * (w - 5.0).square().sum() / 2),
        constraints={"cap": oneproj.function(lambda: unit * w.sum()) <= 0.0},
        radius=100.0,
    )


@pytest.mark.parametrize(("scale", "unit"), [(1.0, 1.0), (1e-3, 1.0), (1.0, 100.0)])
def test_it_grows_until_the_penalty_is_exact(
    monkeypatch: pytest.MonkeyPatch, scale: float, unit: float
) -> None:
    monkeypatch.setattr(penalized, "AutoStrength", Spy)
    problem, mu = valley(scale, unit), 5.0 * scale / unit
    solution = oneproj.solve(problem, steps=500)
    strengths = [lam for (lam,) in Spy.last.seen]
    assert strengths[0] == pytest.approx(0.2 * scale / unit)
    assert max(strengths) < 10 * mu
    # An anchor that finds the bound out of reach keeps KEPT * SAFETY = 0.8 mu; the next
    # that does not repairs it.
    late = strengths[-20:]
    assert min(late) > 0.7 * mu
    assert sum(lam > mu for lam in late) > 15
    # Exact: the iterate came to the bound by itself, and the projection moved little.
    assert solution.projection.distance < 1e-2
    assert problem.parameters[0].item() == pytest.approx(0.0, abs=1e-2)


def test_a_start_at_the_objective_s_minimiser_is_left() -> None:
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    goal, steep = w.detach().clone(), torch.tensor([10.0, 1.0], dtype=torch.float64)
    problem = oneproj.Problem(
        w,
        objective=oneproj.function(lambda: steep @ (w - goal).square()),
        constraints={"size": oneproj.sets.Ball(1.0).on(w)},
        radius=10.0,
    )
    solution = oneproj.solve(problem, steps=500, progress=False)
    # The plain projection of the start has 67.84; the solution 55.2.
    assert solution.feasible
    assert solution.objective < 55.5


def test_a_rate_that_saturates_does_not_stop_the_run() -> None:
    # Four labels are wrong, and lie on the flat side of their sigmoids. Strengths that
    # would balance the objective there ended at an objective of 0.94: pushed far into
    # the feasible set, and too little left of Adam's steps to come back.
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(60, 3, generator=generator)
    x[:, 2] = 1.0
    y = torch.sign(x[:, 0] + 0.3 * torch.randn(60, generator=generator))
    y[:4] *= -1
    w = torch.zeros(3, requires_grad=True)

    def misses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return torch.sigmoid(-8.0 * batch[1] * (batch[0] @ w))

    rate = {
        sign: oneproj.mean(misses, (x[y == sign], y[y == sign])) for sign in (-1, 1)
    }
    problem = oneproj.Problem(w, rate[-1], {"missed": rate[1] <= 0.02})
    solution = oneproj.solve(problem, steps=500, progress=False)
    assert solution.feasible
    assert solution.objective < 0.7


def test_strengths_remember_the_last_anchor() -> None:
    # A constraint that holds is within reach after a move as long as the last one.
    anchors = [
        Anchor([torch.tensor([at])], {"cap": value}, {"cap": [torch.tensor([2.0])]})
        for at, value in ((0.0, 0.1), (1.0, -1.5))
    ]
    own = oneproj.Defaults()
    first, second = AutoStrength(own), AutoStrength(own)
    first.watch([torch.tensor([-6.0])])
    first.adapt(anchors[0])
    penalty = second.load_state_dict(first.state_dict(), [torch.zeros(1)], ["cap"])
    assert penalty.strengths == (6.0,)
    found = []
    for strength in (first, second):
        strength.watch([torch.tensor([-8.0])])
        found.append(strength.adapt(anchors[1]).strengths)
    assert found == [(8.0,), (8.0,)]
