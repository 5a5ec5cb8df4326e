"""The plan: what is done is not done again, and what would mislead is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oneproj.errors import InvalidProblemError
from oneproj_paper.errors import RecordError
from oneproj_paper.experiments.plan import Job, make_plan, missing
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.specs import Spec, make_spec
from oneproj_paper.experiments.surroundings import versions

Maker = Callable[..., Record]
FOLDER = Path("runs")


@pytest.fixture
def spec() -> Spec:
    return make_spec("abstention-gaussian", "paper", "one-projection")


@pytest.fixture
def slow() -> Spec:
    return make_spec("abstention-nasa", "paper", "projected-sgd")


def record_of(
    make_record: Maker,
    job: Job,
    **changes: Any,  # noqa: ANN401 - of any field
) -> Record:
    spec = job.spec
    fields: dict[str, Any] = {
        "experiment": spec.experiment,
        "preset": spec.preset,
        "method": spec.method,
        "projector": spec.projector,
        "seed": job.seed,
        "settings": spec.settings() | {"caps": {"class 0 error": 0.5}},
    }
    return make_record(**(fields | changes))


def left(plan: list[Job], *records: Record) -> list[int]:
    found = {record.key: record for record in records}
    return [job.seed for job in missing(plan, found, FOLDER)]


def test_only_what_has_no_record_is_left(make_record: Maker, spec: Spec) -> None:
    plan = make_plan([spec], seeds=3, extrapolate_from=50)
    assert left(plan) == [0, 1, 2]
    assert left(plan, record_of(make_record, plan[1])) == [0, 2]


@pytest.mark.parametrize("package", ["oneproj", "torch"])
def test_another_version_is_refused(
    make_record: Maker, spec: Spec, package: str
) -> None:
    plan = make_plan([spec], seeds=2, extrapolate_from=50)
    other = versions() | {package: "0.0.1"}
    # Not a run that is asked for: the folder is one report all the same.
    record = record_of(make_record, plan[0], seed=7, versions=other)
    with pytest.raises(RecordError, match=f"made with {package} 0.0.1") as caught:
        left(plan, record)
    assert str(FOLDER / record.key.path) in str(caught.value)
    assert "--out" in str(caught.value)


def test_other_versions_of_python_are_no_reason(make_record: Maker, spec: Spec) -> None:
    plan = make_plan([spec], seeds=1, extrapolate_from=50)
    other = versions() | {"python": "3.99"}
    assert left(plan, record_of(make_record, plan[0], versions=other)) == []


@pytest.mark.parametrize(
    "change", [{"lr": 0.06}, {"thresholds": [0.3, 0.31]}, {"updates": 499}]
)
def test_other_settings_are_refused(
    make_record: Maker, spec: Spec, change: dict[str, Any]
) -> None:
    plan = make_plan([spec], seeds=1, extrapolate_from=50)
    settings = spec.settings() | change
    (name,) = change
    with pytest.raises(RecordError, match=f"made with {name} = "):
        left(plan, record_of(make_record, plan[0], settings=settings))


def test_a_slow_run_is_cut_on_one_seed_unless_asked_for(slow: Spec) -> None:
    cut = make_plan([slow], seeds=3, extrapolate_from=50)
    assert [(job.seed, job.until) for job in cut] == [(0, 50)]
    whole = make_plan([slow], seeds=3, extrapolate_from=0)
    assert [job.until for job in whole] == [None] * 3
    beyond = make_plan([slow], seeds=3, extrapolate_from=250)  # half: not worth it
    assert [job.until for job in beyond] == [None] * 3


def test_a_run_of_a_hundred_updates_is_not_cut_to_fifty() -> None:
    spec = make_spec("transfer-climsim", "paper", "projected-sgd")
    assert spec.is_slow
    plan = make_plan([spec], seeds=2, extrapolate_from=50)
    assert [job.until for job in plan] == [None, None]


def test_a_cut_run_is_done_once_it_has_the_updates(
    make_record: Maker, slow: Spec
) -> None:
    job = make_plan([slow], seeds=1, extrapolate_from=50)[0]
    whole = record_of(make_record, job)
    cut = record_of(make_record, job, updates=50, complete=False, extrapolated_from=50)
    for until, record, done in (
        (50, cut, True),
        (50, whole, True),
        (60, cut, False),
        (0, cut, False),
        (0, whole, True),
    ):
        plan = make_plan([slow], seeds=1, extrapolate_from=until)
        assert (left(plan, record) == []) == done


def test_a_run_that_failed_on_the_way_is_not_repeated(
    make_record: Maker, slow: Spec
) -> None:
    job = make_plan([slow], seeds=1, extrapolate_from=0)[0]
    failed = record_of(make_record, job, updates=3, complete=False, feasible=False)
    assert left([job], failed) == []


def test_the_command_makes_the_run_again(spec: Spec, slow: Spec) -> None:
    first, second = make_plan([spec, slow], seeds=1, extrapolate_from=60)
    assert first.command == (
        "oneproj-paper reproduce abstention-gaussian --preset paper --method "
        "one-projection --projector dual-bisection --seeds 1"
    )
    assert second.command.endswith("--seeds 1 --extrapolate-from 60")


@pytest.mark.parametrize("numbers", [{"seeds": 0}, {"extrapolate_from": -1}])
def test_numbers_without_meaning_are_refused(
    spec: Spec, numbers: dict[str, int]
) -> None:
    with pytest.raises(InvalidProblemError, match="must be at least"):
        make_plan([spec], **({"seeds": 1, "extrapolate_from": 0} | numbers))


def test_projected_sgd_may_have_fewer_seeds() -> None:
    mine = make_spec("abstention-gaussian", "oneproj", "one-projection")
    slower = make_spec("abstention-gaussian", "oneproj", "projected-sgd")
    plan = make_plan([mine, slower], seeds=3, extrapolate_from=0, projected_sgd_seeds=2)
    runs = [(job.spec, job.seed) for job in plan]
    assert runs == [(mine, 0), (mine, 1), (mine, 2), (slower, 0), (slower, 1)]
    assert "--seeds 2" in plan[-1].command
