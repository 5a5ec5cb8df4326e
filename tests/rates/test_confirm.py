"""confirm: what is reported, that it is right, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import oneproj
from oneproj import InvalidProblemError, confirm, rates
from oneproj.rates.bounds import Count


def sample(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows whose first number is normal, and labels that agree with its sign."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator)
    noise = 0.5 * torch.randn(n, generator=generator)
    return x, x[:, 0] + noise > 0


def score(rows: Tensor) -> Tensor:
    return rows[:, 0]


def flags(*events: tuple[int, int]) -> list[rates.Rate]:
    """Positive rates with these counts, (accepted, rows), over rows of their own."""
    built, start = [], 0.0
    for accepted, rows in events:
        numbers = torch.arange(rows) + start
        x = torch.stack([numbers, numbers], dim=1)
        limit = start + accepted - 0.5
        built.append(rates.positive_rate(lambda r, c=limit: c - r[:, 0], data=x))
        start += rows
    return built


def test_a_rate_has_its_exact_bound() -> None:
    x, y = sample(1000)
    fpr = rates.false_positive_rate(score, data=(x, y), threshold=0.4)
    counts = fpr.counts()
    found = confirm({"fpr": fpr <= 0.2, "from below": fpr >= 0.01}, correction="none")
    check = found["fpr"]
    test = stats.binomtest(counts.events, counts.rows, alternative="less")
    assert check.confidence_bound == pytest.approx(test.proportion_ci(0.95).high)
    assert (check.observed, check.rows) == (fpr.value(), counts.rows)
    below = found["from below"]
    assert below.sense == ">="
    exact = Count(counts.events, counts.rows).lower(0.05)
    assert below.confidence_bound == pytest.approx(exact)
    assert check.holds == (check.confidence_bound <= 0.2)
    assert below.holds == (below.confidence_bound >= 0.01)
    assert check.method == below.method == "exact binomial"


def test_precision_is_binomial_given_the_accepted_rows() -> None:
    x, y = sample(800)
    precision = rates.precision(score, data=(x, y))
    counts = precision.counts()
    check = confirm({"precision": precision >= 0.8})["precision"]
    exact = Count(counts.events, counts.rows).lower(0.05)
    assert check.confidence_bound == pytest.approx(exact)
    assert check.observed == pytest.approx(precision.value())
    assert (check.bound, check.sense, check.holds) == (0.8, ">=", exact >= 0.8)
    assert check.rows == counts.rows < 800


def test_a_model_that_accepts_nothing_has_no_confirmed_precision() -> None:
    x, y = sample(50)
    found = confirm({"p": rates.precision(score, data=(x, y), threshold=99.0) >= 0.5})
    assert not found.holds
    assert math.isnan(found["p"].observed)
    assert found["p"].confidence_bound == 0.0


def test_a_gap_between_groups_of_one_table_is_exact() -> None:
    x, _ = sample(600)
    group = x[:, 1] > 0.3
    masked = [rates.positive_rate(score, data=x, where=w) for w in (group, ~group)]
    found = confirm({"gap": masked[0] - masked[1] <= 0.2})["gap"]
    assert found.method == "exact, two binomials"
    # Of two tables it cannot be seen that their rows are different.
    split = [rates.positive_rate(score, data=x[w]) for w in (group, ~group)]
    apart = confirm({"gap": split[0] - split[1] <= 0.2})["gap"]
    assert apart.method == "union bound"
    assert apart.confidence_bound > found.confidence_bound


def test_changed_copies_of_the_same_rows_are_not_independent() -> None:
    trials, wrong = 400, 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(trials):
        x = torch.randn(60, 1, generator=generator)
        once, twice = (rates.positive_rate(score, data=rows) for rows in (x, 2 * x))
        found = confirm({"sum": once + twice <= 1.0}, 0.9)["sum"]
        wrong += found.confidence_bound < 1.0  # which is the true sum
    assert stats.binom.sf(wrong - 1, trials, 0.1) > 1e-3


def test_a_gap_over_rows_in_common_is_bounded_by_its_parts() -> None:
    x, _ = sample(600)
    some = rates.positive_rate(score, data=x, where=x[:, 1] > 0.3)
    everyone = rates.positive_rate(score, data=x)
    check = confirm({"gap": some - everyone <= 0.2})["gap"]
    assert check.method == "union bound"
    repeated = x[:5].repeat(60, 1)  # duplicates cannot be told from the same rows
    twice = [rates.positive_rate(score, data=repeated[i::2].clone()) for i in (0, 1)]
    assert confirm({"gap": twice[0] - twice[1] <= 0.2})["gap"].method == "union bound"


def test_a_term_that_comes_twice_counts_once() -> None:
    a, b = flags((10, 100), (20, 150))
    plain, longer = (confirm({"c": c})["c"] for c in (a <= 0.3, a + b - b <= 0.3))
    assert plain.confidence_bound == pytest.approx(longer.confidence_bound)
    half = confirm({"c": a / 2 + a / 2 <= 0.3})["c"]
    assert half.confidence_bound == pytest.approx(plain.confidence_bound)
    assert half.method == "exact binomial"


def test_terms_without_data_are_exact() -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    size = oneproj.function(w.norm)
    inside = oneproj.sets.Ball(1.0).on(w)
    found = confirm({"size": size <= 6.0, "ball": inside})
    assert found["size"].confidence_bound == 5.0
    assert [c.holds for c in found.checks.values()] == [True, False]
    assert found["size"].rows == 0
    (a,) = flags((10, 100))
    mixed = confirm({"c": a + size <= 6.0})["c"]
    alone = confirm({"c": a <= 1.0})["c"]
    assert mixed.confidence_bound == pytest.approx(5.0 + alone.confidence_bound)


def test_exact_terms_take_no_share_of_the_error() -> None:
    w = torch.ones(2)
    (a,) = flags((10, 100))
    known = {"size": oneproj.function(w.norm) <= 6.0}
    both = confirm({"a": a <= 0.5, **known})
    assert both["a"].confidence_bound == confirm({"a": a <= 0.5})["a"].confidence_bound


def test_a_mean_needs_its_range_and_does_not_depend_on_the_order_of_its_rows() -> None:
    losses = torch.rand(500, generator=torch.Generator().manual_seed(0)).square()
    risk = oneproj.mean(lambda rows: rows, data=losses)
    check = confirm({"risk": risk <= 0.5}, range=(0, 1))["risk"]
    assert check.observed == pytest.approx(float(losses.double().mean()))
    assert check.observed < check.confidence_bound < check.observed + 0.06
    assert check.holds
    # Sorted rows would fool bets that are placed in their order.
    fooled = oneproj.mean(lambda rows: rows, data=losses.sort(descending=True).values)
    again = confirm({"risk": fooled <= 0.5}, range={"risk": (0, 1)})["risk"]
    assert again.confidence_bound == pytest.approx(check.confidence_bound, abs=0.02)
    same = confirm({"risk": risk <= 0.5}, range=(0, 1), seed=0)["risk"]
    assert same == check
    wider = confirm({"risk": risk <= 0.5}, range=(0, 50))["risk"]
    assert wider.confidence_bound > check.confidence_bound


def test_holm_confirms_more_than_bonferroni_and_its_bounds_agree() -> None:
    easy, hard, lost = flags((0, 300), (3, 300), (30, 300))
    at = {n: Count(k, 300).upper for n, k in {"hard": 3, "lost": 30}.items()}
    between = (at["hard"](0.05 / 3) + at["hard"](0.05 / 2)) / 2
    limits = {"easy": easy <= 0.05, "hard": hard <= between, "lost": lost <= 0.1}
    found = confirm(limits)
    assert [c.holds for c in found.checks.values()] == [True, True, False]
    assert not found.holds
    # What holds is said to be within its bound; the rest has the error for itself.
    assert found["easy"].confidence_bound == 0.05
    assert found["hard"].confidence_bound == pytest.approx(between)
    assert found["lost"].confidence_bound == pytest.approx(at["lost"](0.05))


def test_if_all_hold_all_bounds_are_those_of_bonferroni_or_the_constraints() -> None:
    first, second = flags((0, 300), (3, 300))
    found = confirm({"a": first <= 0.05, "b": second <= 0.026})
    assert found.holds
    assert found["a"].confidence_bound == pytest.approx(Count(0, 300).upper(0.025))
    assert Count(3, 300).upper(0.025) > 0.026 > Count(3, 300).upper(0.05)
    assert found["b"].confidence_bound == pytest.approx(0.026)


def test_a_fixed_sequence_uses_the_whole_error_up_to_the_first_failure() -> None:
    a, b, c = flags((3, 300), (30, 300), (0, 300))
    limits = {"a": a <= 0.026, "b": b <= 0.1, "c": c <= 0.5}
    found = confirm(limits, correction="fixed-sequence")
    assert [check.holds for check in found.checks.values()] == [True, False, False]
    assert found["b"].confidence_bound == pytest.approx(Count(30, 300).upper(0.05))
    assert found["c"].confidence_bound == math.inf
    assert not confirm({"a": a <= 0.026, "b": b <= 0.1})["a"].holds
    first = confirm({"a": a <= 0.026, "c": c <= 0.5}, correction="fixed-sequence")
    assert first.holds


def test_without_correction_each_has_the_whole_error() -> None:
    a, b = flags((3, 300), (30, 300))
    found = confirm({"a": a <= 0.026, "b": b <= 0.2}, correction="none")
    assert found.holds
    assert found["b"].confidence_bound == pytest.approx(Count(30, 300).upper(0.05))


TRUE = {"a": 0.1001, "b": 0.2001, "c": 0.0501}
VIOLATED = {"a": 0.1, "b": 0.2, "c": 0.05}
MIXED = {"a": 0.1, "b": 0.35, "c": 0.07}


def misses(
    correction: str, bounds: dict[str, float], trials: int
) -> tuple[int, int, int]:
    """How often a bound is wrong, a false constraint holds, or all are said to hold."""
    rng, rows = np.random.default_rng(3), 400
    wrong = false = everything = 0
    for _ in range(trials):
        counts = [(int(rng.binomial(rows, p)), rows) for p in TRUE.values()]
        built = dict(zip(TRUE, flags(*counts), strict=True))
        limits = {n: r <= bounds[n] for n, r in built.items()}
        found = confirm(limits, 0.8, correction=correction)  # type: ignore[arg-type]
        wrong += any(found[n].confidence_bound < TRUE[n] for n in TRUE)
        false += any(found[n].holds for n in TRUE if TRUE[n] > bounds[n])
        everything += found.holds
    return wrong, false, everything


@pytest.mark.parametrize("correction", ["holm", "fixed-sequence"])
@pytest.mark.parametrize("bounds", [VIOLATED, MIXED], ids=["violated", "mixed"])
def test_bounds_are_right_together_and_nothing_false_holds(
    correction: str, bounds: dict[str, float]
) -> None:
    trials = 250
    wrong, false, _ = misses(correction, bounds, trials)
    assert stats.binom.sf(wrong - 1, trials, 0.2) > 1e-5
    assert stats.binom.sf(false - 1, trials, 0.2) > 1e-5


def test_without_correction_all_hold_wrongly_no_more_often_than_stated() -> None:
    trials = 250
    wrong, _, everything = misses("none", MIXED, trials)
    assert stats.binom.sf(everything - 1, trials, 0.2) > 1e-5
    # The bounds are not right together: that is what the corrections are for.
    assert stats.binom.sf(wrong - 1, trials, 0.2) < 1e-5


def test_what_holds_alone_need_not_hold_among_others() -> None:
    (rare, *lost) = flags((3, 300), (30, 300), (30, 300))
    bound = (Count(3, 300).upper(0.05) + Count(3, 300).upper(0.05 / 3)) / 2
    limits = {f"lost {i}": rate <= 0.1 for i, rate in enumerate(lost)}
    limits["rare"] = rare <= bound
    assert confirm({"rare": rare <= bound}).holds
    found = confirm(limits)
    assert not found["rare"].holds
    expected = Count(3, 300).upper(0.05 / 3)
    assert found["rare"].confidence_bound == pytest.approx(expected)


def test_a_gap_is_confirmed_wrongly_no_more_often_than_stated() -> None:
    rng, trials, false = np.random.default_rng(0), 120, 0
    for _ in range(trials):
        accepted = [int(rng.binomial(80, p)) for p in (0.25, 0.1)]
        scores = torch.arange(80) - torch.tensor(accepted)[:, None] + 0.5
        x, group = -scores.reshape(-1, 1), torch.arange(160) < 80
        a, b = (rates.positive_rate(score, x, where=w) for w in (group, ~group))
        false += confirm({"gap": a - b <= 0.1499}, 0.8).holds
    assert stats.binom.sf(false - 1, trials, 0.2) > 1e-5
    assert false > 0.08 * trials  # nor much less often: it is not conservative


def test_bounds_that_would_read_alike_get_more_digits() -> None:
    def text(upper: float) -> str:
        check = oneproj.ConstraintCheck(
            0.04, "<=", 0.05, upper, 300, holds=upper <= 0.05, method="betting"
        )
        return str(check)

    assert "<= 0.05 " in text(0.0500001)
    assert "<= 0.0500001" in text(0.0500001)
    assert text(0.05).count("<= 0.05 ") == 2


def test_a_bound_that_is_the_constraint_s_own_is_explained() -> None:
    a, b = flags((3, 300), (30, 300))
    found = confirm({"a": a <= 0.05, "b": b <= 0.05})
    assert found["a"].holds
    assert found["a"].confidence_bound == found["a"].bound
    assert "equals the bound itself" in str(found)
    assert "equals the bound itself" not in str(confirm({"a": a <= 0.05}))


def test_rows_of_a_gap_are_those_of_each_group() -> None:
    a, b = flags((3, 300), (30, 200))
    check = confirm({"gap": a - b <= 0.05})["gap"]
    assert (check.rows, check.rows_each) == (500, (300, 200))
    assert "300 + 200" in str(check)
    assert confirm({"a": a <= 0.05})["a"].rows_each == ()


def test_it_prints_and_converts() -> None:
    a, b = flags((3, 300), (30, 300))
    found = confirm({"a": a <= 0.05, "b": b <= 0.05})
    text = str(found)
    assert "a           0.01" in text
    assert "at least 0.95" in text
    assert text.endswith("Not all are confirmed.")
    assert "<td>&lt;= 0.05</td>" in found._repr_html_()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["checks"]["b"]["holds"] is plain["holds"] is False
    assert "exact binomial" in str(found["a"])
    with pytest.raises(KeyError, match="only: a, b"):
        found["c"]


def test_of_many_constraints_the_worst_are_printed() -> None:
    terms = flags(*((k, 300) for k in range(25)))
    upper = {f"c{k}": term <= 0.1 for k, term in enumerate(terms)}
    lines = str(confirm(upper)).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["c24", "c23", "c22"]
    assert lines[12].startswith("and 15 more, all of which hold: shown are the 10")
    assert len(lines) == 15
    assert "and 15 more" in confirm(upper)._repr_html_()
    assert len(confirm(upper).to_dict()["checks"]) == 25

    lower = {f"c{k}": term >= 0.02 for k, term in enumerate(terms)}
    text = str(confirm(lower))
    assert text.splitlines()[2].startswith("c0 ")
    held = sum(check.holds for check in confirm(lower).checks.values())
    assert f"and 15 more, {held} of which hold" in text
    none = {f"c{k}": term >= 0.5 for k, term in enumerate(terms)}
    assert "and 15 more, none of which is confirmed" in str(confirm(none))


def test_twenty_constraints_and_a_fixed_sequence_are_printed_in_full() -> None:
    terms = flags(*((k, 300) for k in range(25)))
    named = {f"c{k}": term <= 0.1 for k, term in enumerate(terms)}
    twenty = confirm({f"c{k}": named[f"c{k}"] for k in range(20)})
    in_order = confirm(named, correction="fixed-sequence")
    for found in (twenty, in_order):
        shown = [line.split()[0] for line in str(found).splitlines()[2:-2]]
        assert shown == list(found.checks)


def test_a_module_is_evaluated_in_evaluation_mode() -> None:
    x, _ = sample(200)
    model = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.Linear(2, 1))
    accepted = rates.positive_rate(lambda rows: model(rows)[:, 0], data=x)
    with torch.no_grad():
        expected = float((model.eval()(x)[:, 0] > 0).double().mean())
    model.train()
    assert confirm({"a": accepted <= 1.0})["a"].observed == expected
    assert model[0].training


def problem(x: Tensor, y: Tensor) -> oneproj.Problem:
    w = torch.zeros(2, requires_grad=True)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        rows, labels = batch
        return torch.nn.functional.softplus(-(2.0 * labels - 1) * (rows @ w))

    objective = oneproj.mean(losses, data=(x, y))
    fpr = rates.false_positive_rate(lambda rows: rows @ w, data=(x, y))
    return oneproj.Problem(w, objective, {"fpr": fpr <= 0.3})


def held_out(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"fpr": rates.false_positive_rate(score, data=(x, y)) <= 0.3}


@pytest.mark.parametrize(
    "make",
    [lambda x: x[50:150], lambda x: x[50:150].clone(), lambda x: x[:100:2].numpy()],
    ids=["view", "copy", "array"],
)
def test_rows_of_the_training_data_are_refused(make: Callable[[Tensor], Any]) -> None:
    x, y = sample(300)
    trained = problem(x[:100], y[:100])
    rows = make(x)
    labels = torch.arange(len(rows)) % 2
    training: Any
    for training in (trained, trained.constraints, x[:100], (x[:100], y[:100])):
        with pytest.raises(InvalidProblemError, match="in the training data"):
            confirm(held_out(rows, labels), training=training)
        confirm(held_out(x[100:], y[100:]), training=training)


def test_terms_of_a_problem_are_refused_without_being_told() -> None:
    x, y = sample(100)
    limits = held_out(x, y)
    w = torch.zeros(2, requires_grad=True)
    fpr = rates.false_positive_rate(lambda rows: rows @ w, data=(x, y))
    limits["learned"] = fpr <= 0.3
    trained = problem(x, y)
    with pytest.raises(InvalidProblemError, match="part of a problem"):
        confirm(trained.constraints)
    confirm(limits)
    objective = oneproj.function(lambda: w.square().sum())
    oneproj.Problem(w, objective, {"fpr": fpr <= 0.3})
    with pytest.raises(InvalidProblemError, match="part of a problem"):
        confirm(limits)


def test_terms_of_a_projection_are_refused_too() -> None:
    w = torch.ones(2, requires_grad=True)
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    risk = oneproj.mean(lambda rows: rows @ w, data=x)
    oneproj.project(w, {"risk": risk <= 0.5})
    with pytest.raises(InvalidProblemError, match="of a projection"):
        confirm({"risk": risk <= 0.5}, range=(-9, 9))


def test_duplicates_are_no_reason_to_refuse() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(4, (400, 3), generator=generator).float()
    y = torch.arange(400) % 2
    confirm(held_out(x[200:], y[200:]), training=x[:200].clone())


def test_rows_of_other_types_are_not_compared() -> None:
    x, y = sample(200)
    confirm(held_out(x[:100], y[:100]), training=x[:100].double())


REFUSED: list[tuple[str, Callable[[], object], str]] = [
    ("confidence", lambda: confirm({"a": flags((1, 9))[0] <= 1.0}, 95), "0.95, for"),
    ("no constraint", lambda: confirm({}), "no constraint to confirm"),
    (
        "correction",
        lambda: confirm({"a": flags((1, 9))[0] <= 1.0}, correction="holms"),  # type: ignore[arg-type]
        "'fixed-sequence'",
    ),
    ("no bound", lambda: confirm({"a": flags((1, 9))[0]}), "says no bound"),
    (
        "no range",
        lambda: confirm({"a": oneproj.mean(lambda r: r, torch.rand(9)) <= 1.0}),
        r"range=\(0, 1\)",
    ),
    (
        "outside",
        lambda: confirm(
            {"a": oneproj.mean(lambda r: r + 1, torch.ones(9)) <= 1.0}, range=(0, 1)
        ),
        "observed between 2 and 2",
    ),
    (
        "empty range",
        lambda: confirm({"a": flags((1, 9))[0] <= 1.0}, range=(1, 0)),
        "the smaller first",
    ),
    (
        "range of nothing",
        lambda: confirm({"a": flags((1, 9))[0] <= 1.0}, range={"b": (0, 1)}),
        "no constraint; there are: 'a'",
    ),
    (
        "weights",
        lambda: confirm(
            {
                "a": rates.positive_rate(score, sample(9)[0], weights=torch.ones(9))
                <= 0.5
            }
        ),
        "not binomial",
    ),
    (
        "weighted precision",
        lambda: confirm(
            {"a": rates.precision(score, sample(9), weights=torch.ones(9)) >= 0.5}
        ),
        "not binomial",
    ),
]


@pytest.mark.parametrize(
    ("call", "match"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_it_is_refused_in_words(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        call()


def test_a_solution_is_no_training_data() -> None:
    w = torch.ones(1, requires_grad=True)
    square = oneproj.function(lambda: w.square().sum())
    solution = oneproj.solve(oneproj.Problem(w, square, {}), steps=3)
    training: Any = solution
    with pytest.raises(InvalidProblemError, match="Pass the Problem"):
        confirm({"a": flags((1, 9))[0] <= 1.0}, training=training)


def test_a_value_that_is_not_finite_is_an_error() -> None:
    risk = oneproj.mean(lambda rows: rows / 0, data=torch.zeros(5))
    with pytest.raises(oneproj.NonFiniteError, match="'risk'"):
        confirm({"risk": risk <= 1.0}, range=(0, 1))
