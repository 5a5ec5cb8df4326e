"""What comes back: statuses, tables that read, dictionaries that are plain JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import oneproj
from oneproj import Certificate, Counts, Measure, Projection, Solution, Status, Update

CERTIFICATE = Certificate(
    (
        Measure("feasibility", -0.25, bound=0.0, source="full data"),
        Measure("gradient mapping", 0.5, error=1e-3),
        Measure("Moreau residual", 2.0, bound=1.0, source="Theorem 2"),
    ),
    {"source risk": 0.75},
)


def solution(residuals: Mapping[str, float], **fields: Any) -> Solution:  # noqa: ANN401
    return Solution(
        status=Status.FEASIBLE,
        objective=0.125,
        residuals=residuals,
        certificate=CERTIFICATE,
        counts=Counts(1000, 20, 300, 1),
        projection=Projection(Status.FEASIBLE, 0.0625, residuals, {"cap": 2.0}, 3),
        **fields,
    )


# --- status, feasibility ------------------------------------------------------


def test_the_status_says_whether_the_point_is_feasible() -> None:
    assert {status.name: status.ok for status in Status} == {
        "FEASIBLE": True,
        "INTERRUPTED": True,
        "OUT_OF_TIME": True,
        "START": True,
        "EARLIER": True,
        "INFEASIBLE": False,
        "PROVEN_INFEASIBLE": False,
    }
    assert all(isinstance(status.value, str) for status in Status)


@pytest.mark.parametrize(
    ("residuals", "feasible"),
    [
        ({}, True),
        ({"a": 0.0, "b": -0.0}, True),
        ({"a": -1.0, "b": 5e-324}, False),
        ({"a": math.nan}, False),
    ],
)
def test_feasible_means_at_most_zero_exactly(
    residuals: dict[str, float], *, feasible: bool
) -> None:
    assert solution(residuals).feasible is feasible


def test_counts_start_at_zero() -> None:
    assert set(dataclasses.asdict(Counts()).values()) == {0}


# --- measures and certificates ------------------------------------------------


@pytest.mark.parametrize(
    ("value", "bound", "holds"),
    [(1.0, None, None), (1.0, 1.0, True), (1.1, 1.0, False), (math.nan, 1.0, False)],
)
def test_a_measure_holds_up_to_its_bound(
    value: float, bound: float | None, *, holds: bool | None
) -> None:
    assert Measure("m", value, bound=bound).holds is holds


@pytest.mark.parametrize(
    ("value", "error", "holds"),
    [(0.9, 0.0, True), (0.9, 0.0625, True), (0.9, 0.2, False), (1.1, 0.2, False)],
)
def test_a_bound_must_hold_at_the_far_end_of_the_error(
    value: float, error: float, *, holds: bool
) -> None:
    assert Measure("m", value, bound=1.0, error=error).holds is holds
    mirrored = Measure("slope", -value, bound=-1.0, error=error, at_least=True)
    assert mirrored.holds is holds


def test_a_lower_bound_is_shown_as_one() -> None:
    certificate = Certificate((Measure("slope", 2.0, bound=1.0, at_least=True),), {})
    assert certificate.holds
    assert ">= 1.000e+00  yes" in str(certificate)


def test_a_certificate_is_looked_up_by_name() -> None:
    assert CERTIFICATE["gradient mapping"].value == 0.5
    assert "feasibility" in CERTIFICATE
    assert "speed" not in CERTIFICATE
    with pytest.raises(
        KeyError, match=r"No measure 'speed'.*it has: feasibility, grad"
    ):
        CERTIFICATE["speed"]


def test_a_certificate_holds_if_no_bound_fails() -> None:
    assert not CERTIFICATE.holds
    assert Certificate(CERTIFICATE.measures[:2], {}).holds
    assert Certificate((), {}).holds


# --- tables -------------------------------------------------------------------


def test_a_certificate_reads_as_a_table() -> None:
    assert str(CERTIFICATE).splitlines() == [
        "measure           value              bound      holds  source",
        "----------------  -----------------  ---------  -----  ---------",
        "feasibility       -2.500e-01         0.000e+00  yes    full data",
        "gradient mapping  5.000e-01 +-1e-03",
        "Moreau residual   2.000e+00          1.000e+00  NO     Theorem 2",
        "multipliers: source risk=0.75",
    ]


def test_a_solution_reads_as_a_table() -> None:
    text = str(solution({"cap": -0.5}, seconds={"train": 1.5}))
    above, below = text.split("\n\n")
    assert [line.split("  ")[0] for line in above.splitlines()[2:]] == [
        "status",
        "objective",
        "residual: cap",
        "distance moved",
        "objective gradients",
        "constraint gradients",
        "constraint passes",
        "projections",
        "seconds: train",
    ]
    for number in ("0.125", "-5.000e-01", "6.250e-02", "1000", "300", "1.500"):
        assert number in above
    assert Status.FEASIBLE.value in above
    assert below == str(CERTIFICATE)


def test_a_solution_that_failed_says_how_near_the_projection_came() -> None:
    found = Projection(Status.PROVEN_INFEASIBLE, 2e5, {"a": 0.25, "b": -1.0}, {}, 9)
    text = str(
        dataclasses.replace(
            solution({"a": 3.0}), status=Status.PROVEN_INFEASIBLE, projection=found
        )
    )
    assert "residual: a           3.000e+00" in text
    assert "0: the best residual found was 2.500e-01, 2.000e+05 away" in text
    assert Status.PROVEN_INFEASIBLE.value in text


def test_a_projection_reads_as_a_table() -> None:
    found = Projection(
        status=Status.FEASIBLE,
        distance=0.25,
        residuals={"source risk": -1e-9, "size": -0.5},
        multipliers={"source risk": 0.75},
        gradients=4,
        kkt_residual=2e-7,
        residuals_before={"source risk": 0.125, "size": 0.0},
        lower_bound=0.2499,
    )
    assert str(found).splitlines() == [
        "quantity        value",
        "--------------  ---------------------------------------",
        "status          every residual is <= 0 on the full data",
        "distance moved  2.500000e-01",
        "lower bound     2.499000e-01",
        "gradients used  4",
        "KKT residual    2.000e-07",
        "",
        "constraint   before     after       multiplier",
        "-----------  ---------  ----------  ----------",
        "source risk  1.250e-01  -1.000e-09  7.500e-01",
        "size         0.000e+00  -5.000e-01",
    ]
    assert repr(found).startswith("Projection(status=<Status.FEASIBLE")


def test_a_projection_says_what_it_does_not_know_and_what_was_unusual() -> None:
    bare = Projection(Status.INFEASIBLE, 1.0, {"a": 2.0}, {}, 3, remark="Odd.")
    lines = str(bare).splitlines()
    assert "lower bound     unknown" in lines
    assert lines[lines.index("") - 1] == "Odd."
    assert lines[-1].split() == ["a", "2.000e+00"]


KINDS = (Certificate, Counts, Measure, Projection, Solution, Update)


@pytest.mark.parametrize("kind", KINDS)
def test_help_says_what_every_field_is(kind: type[Any]) -> None:
    told = str(inspect.getdoc(kind))
    names = [field.name for field in dataclasses.fields(kind)]
    assert [name for name in names if f"    {name}: " not in told] == []


# --- plain JSON ---------------------------------------------------------------


def test_a_solution_becomes_plain_json() -> None:
    found = solution(
        {"cap": -0.5},
        history={"update": [1, 2], "objective": [1.0, math.nan]},
        settings={
            "radius": math.inf,
            "seed": np.int64(3),
            "lr": np.float32(0.5),
            "schedule": None,
            "exact": True,
            "shape": (2, 3),
            "counts": Counts(),
            "kind": int,
        },
    ).to_dict()
    # json refuses what is not plain, and NaN where it is told to.
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert found["feasible"] is True
    assert found["status"] == "feasible"
    assert found["residuals"] == {"cap": -0.5}
    assert found["counts"] == {
        "objective_gradients": 1000,
        "constraint_gradients": 20,
        "constraint_passes": 300,
        "projections": 1,
    }
    assert found["certificate"]["measures"][2]["source"] == "Theorem 2"
    assert found["certificate"]["multipliers"] == {"source risk": 0.75}
    assert found["projection"]["multipliers"] == {"cap": 2.0}
    assert found["history"] == {"update": [1, 2], "objective": [1.0, "nan"]}
    settings = found["settings"]
    assert (settings["radius"], settings["seed"], settings["lr"]) == ("inf", 3, 0.5)
    assert isinstance(settings["seed"], int)
    assert settings["schedule"] is None
    assert settings["exact"] is True
    assert settings["shape"] == [2, 3]
    assert settings["counts"]["projections"] == 0
    assert settings["kind"] == "<class 'int'>"


def test_results_cannot_be_changed_afterwards() -> None:
    found = solution({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.objective = 0.0  # type: ignore[misc]


def test_projections_and_certificates_become_json_too() -> None:
    done = Projection(Status.FEASIBLE, 0.5, {"cap": math.nan}, {"cap": 2.0}, 3)
    read = json.loads(json.dumps(done.to_dict(), allow_nan=False))
    assert (read["status"], read["distance"]) == ("feasible", 0.5)
    assert (read["multipliers"], read["residuals"]) == ({"cap": 2.0}, {"cap": "nan"})
    assert Certificate((), {"cap": 1.0}).to_dict()["multipliers"] == {"cap": 1.0}


# --- what the status leaves out -----------------------------------------------


def found(kkt: float, bound: float | None = None, **fields: Any) -> Projection:  # noqa: ANN401
    return Projection(
        fields.pop("status", Status.FEASIBLE), 1.0, {"cap": 0.0}, {}, 9,
        kkt_residual=kkt, lower_bound=bound, **fields,
    )  # fmt: skip


def test_a_projection_that_is_not_the_nearest_says_so() -> None:
    because = "KKT residual of the projection 0.57"
    text = f"feasible; a nearer feasible point may exist: {because}"
    assert found(0.57).status_text == text
    assert text in str(found(0.57))
    assert found(0.57).to_dict()["status_text"] == text
    assert found(0.57).status is Status.FEASIBLE
    whole = dataclasses.replace(solution({"cap": 0.0}), projection=found(0.57))
    assert whole.status_text == whole.to_dict()["status_text"] == text
    assert text in str(whole)
    late = dataclasses.replace(whole, status=Status.OUT_OF_TIME)
    assert late.status_text.startswith(Status.OUT_OF_TIME.value)
    assert late.status_text.endswith("KKT residual of the projection 0.57")


@pytest.mark.parametrize(
    "done",
    [
        found(0.01),
        found(0.57, 0.95),
        found(0.57, status=Status.INFEASIBLE),
        found(0.57, relative_distance=1e-5),
        found(math.inf, relative_distance=0.0),
    ],
    ids=["balanced", "proven", "infeasible", "hardly moved", "not moved"],
)
def test_a_projection_that_is_the_nearest_or_failed_says_no_more(
    done: Projection,
) -> None:
    assert done.status_text == done.status.value
    assert "a nearer feasible point" not in str(done)


def test_a_loose_proof_vouches_for_nothing() -> None:
    assert "a nearer feasible point may exist" in found(0.57, 0.5).status_text


def risk_problem() -> oneproj.Problem:
    w = torch.zeros(1, requires_grad=True)
    risk = oneproj.function(lambda: (w - 2.0).square().sum(), curvature="convex")
    goal = oneproj.function(lambda: (w + 2.0).square().sum())
    return oneproj.Problem(w, goal, {"risk": risk <= 1.0})


def test_a_run_that_ends_far_from_feasible_says_so() -> None:
    short = oneproj.solve(risk_problem(), steps=1, method="penalty-sgd", lr=1e-6)
    assert short.feasible
    assert short.status is Status.FEASIBLE
    assert short.projection.residuals_before["risk"] > 2.5
    assert "training ended far from feasible: 'risk' was +3" in str(short)
    assert (
        "more steps, a larger lr or a larger strength" in short.to_dict()["status_text"]
    )


def test_a_run_that_ends_nearly_feasible_says_no_more() -> None:
    long = oneproj.solve(risk_problem(), steps=500)
    assert long.remark == ""
    assert long.status_text == Status.FEASIBLE.value


def test_a_kept_start_has_no_faults_of_the_point_that_was_dropped() -> None:
    dropped = Projection(
        Status.FEASIBLE, 3.0, {}, {}, 9, kkt_residual=0.6, remark="A nearer point."
    )
    parts = (0.5, {}, Certificate((), {}), Counts(projections=1), dropped)
    kept = Solution(Status.START, *parts)
    assert kept.status_text == Status.START.value
    assert "A nearer point." not in str(kept)
    assert "A nearer point." in str(Solution(Status.FEASIBLE, *parts))
