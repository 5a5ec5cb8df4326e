"""Automatic strengths: units, growth and decay."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from benchmarks.variations import VARIATIONS
from oneproj.methods import algorithm1 as penalized
from oneproj.methods.strength import LARGEST, AutoStrength, Patience, limited_push
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
        again = AutoStrength(OWN)
        again.load_state_dict(state)
        assert again.penalty == penalty


def test_no_hinge_is_wider_than_its_constraint_was_away_from_its_bound() -> None:
    # In many dimensions moves are long and hardly along a gradient: with 10^5
    # parameters the width was 60 times the violation, and the hinge held nothing.
    strength = AutoStrength(OWN)
    for point, c, expected in [(0.0, -0.5, 0.0), (9.0, 0.2, 0.5), (0.0, 0.7, 0.7)]:
        strength.watch(wide(-1.0))
        anchor = Anchor(wide(point), {"a": c}, {"a": wide(2.0)})
        assert strength.adapt(anchor).widths == (expected,)
        resumed = AutoStrength(OWN)
        resumed.load_state_dict(strength.state_dict())
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
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.penalty.strengths == (6.0,)
    found = []
    for strength in (first, second):
        strength.watch([torch.tensor([-8.0])])
        found.append(strength.adapt(anchors[1]).strengths)
    assert found == [(8.0,), (8.0,)]


OWN = oneproj.Defaults()


def floors(
    residuals: list[float], present: float = 0.1, defaults: oneproj.Defaults = OWN
) -> list[float]:
    patience = Patience(defaults)
    return [patience.floor("c", c, alone=3.0, present=present) for c in residuals]


@pytest.mark.parametrize(
    "residuals",
    [
        [0.8**k for k in range(30)],  # falls
        [1.0, 1.0, 1.0, 1.0, 1.0, -0.1] * 5,  # met now and then
        [-1.0] * 30,
        [1.0] * (OWN.patience - 1),  # not long enough
    ],
)
def test_what_falls_or_is_met_is_left_to_the_estimates(residuals: list[float]) -> None:
    assert set(floors(residuals)) == {0.0}


def test_what_stays_is_doubled_up_to_a_bound_and_halved_where_it_is_met() -> None:
    found = floors([1.0] * (OWN.patience + 9) + [-1.0] * 3)
    assert found[OWN.patience - 1 : OWN.patience + 2] == [3.0, 6.0, 12.0]
    most = 3.0 * OWN.push_limit
    assert found[-4:] == [most, most / 2, most / 4, most / 8]


def test_the_defaults_say_how_long_and_what_counts_as_better() -> None:
    short = replace(OWN, patience=2, push_limit=3.0)
    assert floors([1.0] * 5, defaults=short) == [0.0, 3.0, 6.0, 9.0, 9.0]
    falling = [0.8**k for k in range(3)]
    assert set(floors(falling, defaults=short)) == {0.0}
    demanding = replace(short, patience_fall=0.7)
    assert floors(falling, defaults=demanding) == [0.0, 3.0, 6.0]


def test_a_strength_that_was_more_is_doubled_itself() -> None:
    assert floors([1.0] * OWN.patience, present=5.0)[-1] == 10.0


def test_a_limit_lowers_what_patience_asks_for() -> None:
    patience = Patience(replace(OWN, patience=1))
    assert patience.floor("c", 1.0, alone=3.0, present=0.1) == 3.0
    patience.limit("c", 0.5)
    assert patience.floor("c", -1.0, alone=3.0, present=0.1) == 0.25


def test_it_resumes() -> None:
    first, second = Patience(OWN), Patience(OWN)
    for patience in (first, second):
        for k in range(OWN.patience):
            patience.floor("c", 1.0 + k, alone=3.0, present=0.1)
    third = Patience(OWN)
    third.load_state_dict(second.state_dict())
    for c in (9.0, 9.0, -1.0):
        assert first.floor("c", c, alone=3.0, present=0.1) == third.floor(
            "c", c, alone=3.0, present=0.1
        )


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 10, generator=generator)
    signs = torch.tensor([1.0, -1.0]).repeat(5)
    return x, x @ signs + torch.randn(400, generator=generator)


def test_the_largest_of_many_is_held_as_the_same_set_is() -> None:
    # At an anchor the largest entry shows its own gradient, a tenth of what is needed.
    x, y = regression()
    answers = []
    for as_set in (True, False):
        w = torch.zeros(10, requires_grad=True)
        largest = oneproj.function(lambda w=w: w.abs().max()) <= 0.2
        box = oneproj.sets.Box(-0.2, 0.2).on(w)
        problem = oneproj.Problem(
            w,
            oneproj.mean(lambda b, w=w: (b[0] @ w - b[1]) ** 2, data=(x, y)),
            {"size": box if as_set else largest},
        )
        answers.append(oneproj.solve(problem, steps=500).objective)
    reference, found = answers
    assert found == pytest.approx(reference, rel=0.01)


def test_what_is_short_enough_stays_as_it_is() -> None:
    w = torch.zeros(2, requires_grad=True)
    w.grad = torch.tensor([1.0, 0.0])
    with limited_push([w], 5.0):
        w.grad += torch.tensor([3.0, 4.0])
    assert w.grad.tolist() == [4.0, 4.0]


def test_the_length_is_that_over_all_parameters_with_or_without_a_gradient() -> None:
    a, b, c = (torch.zeros(1, requires_grad=True) for _ in range(3))
    a.grad = torch.ones(1)
    with limited_push([a, b, c], 5.0):
        a.grad += 30.0
        b.grad = torch.tensor([40.0])
    assert a.grad.item() == pytest.approx(4.0)
    assert b.grad.item() == pytest.approx(4.0)
    assert c.grad is None


def saturated(bias: float) -> oneproj.Problem:
    """A recall whose sigmoids are all off at the start, and the risk of the score."""
    generator = torch.Generator().manual_seed(100)
    x = torch.randn(500, 5, generator=generator)
    sign = (x[:, 0] + 0.5 * torch.randn(500, generator=generator)).sign()
    w = torch.zeros(6)
    w[5] = bias
    w.requires_grad_()

    def scores(rows: Tensor) -> Tensor:
        return rows @ w[:5] + w[5]

    risk = oneproj.mean(lambda b: softplus(-b[1] * scores(b[0])), data=(x, sign))
    recall = oneproj.mean(lambda rows: torch.sigmoid(5 * scores(rows)), x[sign > 0])
    return oneproj.Problem(w, risk, {"recall": recall >= 0.95})


@pytest.mark.parametrize("bias", [0.0, -5.0, -8.0, -12.0])
def test_a_plateau_at_the_start_is_left_and_forgotten(bias: float) -> None:
    """Its strength of 10^14 would push with 10^9 as the sigmoids wake up."""
    optimum = oneproj.solve(saturated(0.0), steps=500, method="slsqp").objective
    solution = oneproj.solve(saturated(bias), steps=500)
    assert solution.objective == pytest.approx(optimum, rel=2e-3)


# --- a hinge for each constraint ------------------------------------------------------

NUMBERS = st.floats(-1e3, 1e3)
PAIRS = st.lists(st.tuples(NUMBERS, st.floats(0.0, 1e3)), min_size=1, max_size=6)
examples = settings(derandomize=True, deadline=None, max_examples=100)


@examples
@given(pairs=PAIRS)
def test_hinges_are_single_ones(pairs: list[tuple[float, float]]) -> None:
    values, strengths = zip(*pairs, strict=True)
    weights = [lam if u > 0 else 0.0 for u, lam in pairs]
    assert Hinges(strengths).weigh(values) == weights


def test_equal_hinges_are_a_hinge_with_sum() -> None:
    c = [1.0, -2.0, 0.5]
    assert oneproj.Hinge(3.0, "sum").weigh(c) == Hinges((3.0, 3.0, 3.0)).weigh(c)


def test_hinges_at_zero_and_without_constraints() -> None:
    penalty = Hinges((5.0, 0.0, 2.0))
    assert Hinges(()).weigh([]) == oneproj.Hinge(1.0).weigh([]) == []
    assert penalty.weigh([0.0, 1.0, 5e-324]) == [0.0, 0.0, 2.0]


@examples
@given(u=st.floats(-3.0, 3.0), lam=st.floats(0.0, 1e3), w=st.floats(1e-3, 2.0))
def test_a_rounded_hinge_is_the_derivative_of_its_formula(
    u: float, lam: float, w: float
) -> None:
    def value(at: float) -> float:
        return lam * ((at + w) ** 2 / (4 * w) if abs(at) < w else max(at, 0.0))

    step = 1e-6 * w
    difference = (value(u + step) - value(u - step)) / (2 * step)
    (weight,) = Hinges((lam,), (w,)).weigh([u])
    assert difference == pytest.approx(weight, abs=1e-5 * lam + 1e-9)


def test_a_rounded_hinge_has_half_its_weight_at_the_bound() -> None:
    penalty = Hinges((6.0, 6.0, 6.0, 6.0), (2.0, 2.0, 2.0, 0.0))
    assert penalty.weigh([0.0, 2.0, -2.0, 0.0]) == [3.0, 6.0, 0.0, 0.0]
    assert penalty.weigh([1.0, 9.0, -9.0, 1e-300]) == [4.5, 6.0, 0.0, 6.0]


def test_no_number_has_no_weight_to_divide_by() -> None:
    assert Hinges((1.0,)).weigh([math.nan]) == [0.0]
