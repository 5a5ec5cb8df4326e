"""The table of a schedule: one row per number, each with its equation."""

from __future__ import annotations

import pytest

from oneproj.theory import (
    ConvexConstants,
    NonconvexConstants,
    Schedule,
    convex_schedule,
    inner_bound,
    nonconvex_schedule,
)

CONVEX = convex_schedule(
    ConvexConstants(
        weak_convexity=1.5,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        boundary_slope=3.0,
        radius=0.5,
    ),
    0.5,
)
NONCONVEX = nonconvex_schedule(
    NonconvexConstants(
        weak_convexity=1.0,
        gradient_bound=2.0,
        constraint_gradient_bound=4.0,
        constraint_smoothness=4.0,
        boundary_slope=1.5,
        infeasible_slope=1.0,
        initial_gap=0.75,
    ),
    0.5,
    inner_steps="smallest",
)

# On the unit ball: m = ell R^2, and G_H R.
CONVEX_BOUND = inner_bound(
    CONVEX.inner_steps, 0.375, (5 + 40 / 3) / 2, CONVEX.inner_failure
)

# symbol, word, the number itself, where it comes from
CONVEX_ROWS = [
    ("epsilon", "target", 0.5, "Theorems convex-smooth, convex-nonsmooth"),
    ("R", "radius", 0.5, "Assumption convex"),
    ("Delta_f", "initial gap", 2.0, "2 G_f R"),
    ("G_F", "proximal Lipschitz constant", 5.0, "eq. convex-error-constants"),
    ("lambda_0", "strength", CONVEX.strength, "eq. convex-settings"),
    ("G_H", "subproblem gradient bound", 5 + 40 / 3, "eq. convex-error-constants"),
    ("beta", "prox weight", 3.0, "eq. convex-penalty"),
    ("m", "strong convexity", 1.5, "eq. convex-penalty"),
    ("T", "outer steps", CONVEX.outer_steps, "eq. cv-schedule"),
    ("delta_in", "inner failure", CONVEX.inner_failure, "eq. cv-schedule"),
    ("e_*", "inner error target", CONVEX.inner_error_target, "eq. cv-schedule"),
    ("K", "inner steps", CONVEX.inner_steps, "e_K <= e_*, below eq. cv-schedule"),
    ("U_K", "inner bound", CONVEX_BOUND, "Lemma inner, eq. inner-bound"),
    ("e_K", "inner error", CONVEX.inner_error, "eq. convex-error-constants"),
    ("gamma", "smoothing", CONVEX.smoothing, "1/K, eq. convex-settings"),
    ("I", "index set", None, "Theorems convex-smooth, convex-nonsmooth"),
    ("T K", "gradient calls", CONVEX.gradient_calls, "eq. convex-smooth-rate"),
]
NONCONVEX_ROWS = [
    ("epsilon", "target", 0.5, "Theorem nonconvex"),
    ("R", "radius", 1.0, "Assumption nonconvex"),
    ("lambda", "strength", 4.0, "eq. nc-parameters"),
    ("h_feas", "feasibility margin", 2.0, "Lemma nc-transfer"),
    ("R_tube", "tube radius", 0.375, "Lemma geometry"),
    ("G_lambda", "penalized Lipschitz constant", 18.0, "app. nonconvex"),
    ("Delta_lambda", "initial gap", 0.75, "given"),
    ("rho_lambda", "penalized weak convexity", 17.0, "app. nonconvex"),
    ("beta", "prox weight", 34.0, "eq. nc-parameters"),
    ("m", "strong convexity", 17.0, "eq. nc-parameters"),
    ("G_H", "subproblem gradient bound", 86.0, "app. nonconvex"),
    ("T", "outer steps", NONCONVEX.outer_steps, "eq. nc-schedule"),
    ("delta_in", "inner failure", NONCONVEX.inner_failure, "eq. nc-schedule"),
    ("e_*", "inner error target", NONCONVEX.inner_error_target, "eq. nc-schedule"),
    ("K", "inner steps", NONCONVEX.inner_steps, "U_K <= e_*, below eq. nc-schedule"),
    ("U_K", "inner error", NONCONVEX.inner_error, "Lemma inner, eq. inner-bound"),
    ("I", "index set", None, "eq. nc-settings"),
    ("T K", "gradient calls", NONCONVEX.gradient_calls, "eq. nc-rate"),
]
BOTH = pytest.mark.parametrize(
    ("schedule", "expected"),
    [(CONVEX, CONVEX_ROWS), (NONCONVEX, NONCONVEX_ROWS)],
    ids=["convex", "nonconvex"],
)


def rows(schedule: Schedule) -> list[list[str]]:
    """Cut the table at the columns that the rule under its header marks."""
    _, table, _ = schedule.describe().split("\n\n")
    _, rule, *lines = table.splitlines()
    a, b, c = (len(dashes) for dashes in rule.split()[:3])
    cuts = [
        (0, a),
        (a + 2, a + b + 2),
        (a + b + 4, a + b + c + 4),
        (a + b + c + 6, None),
    ]
    return [[line[start:end].strip() for start, end in cuts] for line in lines]


@BOTH
def test_each_number_has_one_row_with_its_equation(
    schedule: Schedule, expected: list[tuple[str, str, float | None, str]]
) -> None:
    table = rows(schedule)
    assert [row[:2] for row in table] == [list(row[:2]) for row in expected]
    for (*_, value, source), (_, _, number, equation) in zip(
        table, expected, strict=True
    ):
        assert equation in source
        if isinstance(number, int):
            assert value.replace(",", "") == str(number)
        elif number is not None:
            assert value == f"{number:.6g}"


@BOTH
def test_the_table_names_its_theorems_and_what_they_promise(
    schedule: Schedule, expected: object
) -> None:
    del expected
    title, _, verdict = schedule.describe().split("\n\n")
    names = {
        "convex": [
            "Theorem convex-smooth (Smooth objective with convex constraints)",
            "Theorem convex-nonsmooth (Nonsmooth objective with convex constraints)",
        ],
        "nonconvex": [
            "Theorem nonconvex (Nonsmooth objective with nonconvex constraints)"
        ],
    }
    assert all(name in title for name in names[schedule.setting])
    assert verdict.startswith("Guarantee: ")
    assert ">= 2/3" in verdict
    assert "OUTSIDE" not in verdict


@BOTH
def test_index_sets_are_written_as_in_the_paper(
    schedule: Schedule, expected: object
) -> None:
    del expected
    T = schedule.outer_steps
    written = {row[0]: row[2] for row in rows(schedule)}["I"]
    assert (
        written
        == {"convex": f"{{1..{T}}}", "nonconvex": f"{{0..{T - 1}}}"}[schedule.setting]
    )


@BOTH
def test_a_shortened_run_promises_nothing_and_shows_its_true_error(
    schedule: Schedule, expected: object
) -> None:
    del expected
    quick = schedule.with_steps(outer_steps=10, inner_steps=100)
    assert "OUTSIDE THE THEOREM" in quick.describe()
    assert "Guarantee" not in quick.describe()
    values = {row[0]: row[2] for row in rows(quick)}
    error = values["e_K" if schedule.setting == "convex" else "U_K"]
    assert float(error) == pytest.approx(quick.inner_error, rel=1e-5)
    assert float(error) > float(values["e_*"])


def test_the_table_is_plain_ascii_without_trailing_blanks() -> None:
    for schedule in (CONVEX, NONCONVEX):
        text = schedule.describe()
        assert text.isascii()
        assert all(line == line.rstrip() for line in text.splitlines())
