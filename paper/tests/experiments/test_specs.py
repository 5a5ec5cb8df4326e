"""The specs: appendix D of the paper, number by number, and the library's defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from oneproj.errors import InvalidProblemError
from oneproj.methods.step_size import choose_inner_steps
from oneproj_paper.errors import CalibrationError
from oneproj_paper.experiments.calibration_file import (
    SHIPPED,
    read_calibrations,
    write_calibration,
)
from oneproj_paper.experiments.plan import make_plan
from oneproj_paper.experiments.record_schema import Method, Preset
from oneproj_paper.experiments.specs import make_spec, make_specs
from oneproj_paper.tasks import PAPER

# lr of One Projection and of Projected SGD, updates of both, batch size, radius
TABLE = {
    "transfer-gaussian": ((0.5, 1.0), (3000, 500), 32, 20.0),
    "transfer-climsim": ((0.05, 0.3), (1000, 100), 40, 20.0),
    "abstention-gaussian": ((0.05, 0.05), (500, 500), 64, 2.0),
    "abstention-climsim": ((0.05, 0.05), (500, 500), 64, 10.0),
    "abstention-nasa": ((0.05, 0.03), (500, 500), 64, 10.0),
    "abstention-credit": ((0.10, 0.03), (500, 500), 64, 10.0),
}
THRESHOLDS = {
    "abstention-gaussian": ((0.3, 0.3), (0.3, 0.3)),
    "abstention-climsim": ((0.18, 0.29), (0.14, 0.225)),
    "abstention-nasa": ((0.26, 0.21), (0.26, 0.28)),
    "abstention-credit": ((0.425, 0.4), (0.425, 0.4)),
}
VARIABLES = {"gaussian": (10, 8), "climsim": (124,), "nasa": (6,), "credit": (11,)}


@pytest.mark.parametrize("experiment", PAPER)
def test_the_preset_paper_is_appendix_d(experiment: str) -> None:
    rates, updates, batch_size, radius = TABLE[experiment]
    thresholds = THRESHOLDS.get(experiment, (None, None))
    for i, method in enumerate(get_args(Method)):
        spec = make_spec(experiment, "paper", method)
        settings = spec.settings()
        assert settings["lr"] == rates[i]
        assert settings["updates"] == spec.updates == updates[i]
        assert settings["batch_size"] == batch_size
        assert settings["radius"] == radius
        assert (settings["base"], settings["decay"]) == ("sgd", "constant")
        assert spec.thresholds == thresholds[i]


@pytest.mark.parametrize("experiment", PAPER)
def test_one_projection_of_the_paper(experiment: str) -> None:
    options = make_spec(experiment, "paper", "one-projection").options
    assert options["inner_steps"] == 25  # K, and T = 20 makes 500 updates
    assert options["prox_weight"] == pytest.approx(2 * 0.1)  # beta = 2 ell
    assert options["late_weight"] == 0.0  # the mean of the inner iterates
    assert options["strength"] == 5.0
    assert options["combine"] == "max"
    assert options["select"] == "last"
    assert options["oracle"] == "minibatch"


def test_projectors_of_the_paper_have_its_settings() -> None:
    linear = make_spec("abstention-gaussian", "paper", "projected-sgd")
    assert linear.projector == "dual-bisection"
    options = linear.settings()["projector_options"]
    assert (options["bisection_steps"], options["dual_steps"]) == (30, 500)
    assert options["tolerance"] == 1e-5
    for experiment in ("transfer-climsim", "abstention-nasa"):
        network = make_spec(experiment, "paper", "one-projection")
        assert network.projector == "augmented-lagrangian"
        assert network.settings()["projector_options"] == {
            "lr": 0.01,
            "inner_steps": 150,
            "rounds": 6,
            "penalty": 1.0,
            "growth": 5.0,
            "max_penalty": 1e6,
            "refinements": 25,
            "tolerance": 1e-5,
            "boundary_tolerance": 1e-4,
            "strict": True,
        }


@pytest.mark.parametrize("experiment", PAPER)
@pytest.mark.parametrize("method", get_args(Method))
def test_the_preset_oneproj_gives_no_setting(experiment: str, method: Method) -> None:
    spec = make_spec(experiment, "oneproj", method)
    found = {c.key: c for c in read_calibrations(SHIPPED)}.get(
        (experiment, "oneproj", method)
    )
    updates = 500 if found is None else found.settings["steps"]
    # None but those that were chosen along with the thresholds.
    assert spec.options == ({} if found is None else found.options)
    assert set(spec.options) <= {"batch_size", "strength"}
    assert (spec.updates, spec.projector) == (updates, "cuts")
    assert spec.inner_steps == choose_inner_steps(None, updates)
    assert (spec.thresholds is None) == experiment.startswith("transfer")


def test_thresholds_are_shipped_for_every_abstention_experiment() -> None:
    known = {c.key for c in read_calibrations(SHIPPED)}
    for name, settings in PAPER.items():
        if settings.task == "abstention":
            assert (name, "oneproj", "one-projection") in known
            limits = make_spec(name, "oneproj", "one-projection").thresholds
            assert limits is not None
            assert all(-0.03 < limit < 1 for limit in limits)


def test_thresholds_may_be_the_users_own(tmp_path: Path) -> None:
    name = "abstention-gaussian"
    shipped = {c.key: c for c in read_calibrations(SHIPPED)}
    own = replace(
        shipped[name, "oneproj", "one-projection"],
        thresholds=(0.11, 0.12),
        settings={
            "steps": 120,
            "projector": "cuts",
            "radius": 1.5,
            "batch_size": 48,
        },
    )
    file = tmp_path / "own.json"
    write_calibration(file, own)
    spec = make_spec(name, "oneproj", "one-projection", thresholds=file)
    assert (spec.thresholds, spec.calibrated) == ((0.11, 0.12), file)
    assert spec.updates == 120  # thresholds are for the updates they were found with
    assert spec.settings()["updates"] == 120
    assert spec.radius == spec.settings()["radius"] == 1.5  # and the ball
    assert spec.options == {"batch_size": 48}  # and what else was chosen
    (job,) = make_plan([spec], seeds=1, extrapolate_from=50)
    assert job.command.endswith("--thresholds own.json")
    # What the file has not, and what is the paper's, is as if there were no file.
    for other in (
        (name, "oneproj", "projected-sgd"),
        (name, "paper", "one-projection"),
        ("abstention-nasa", "oneproj", "one-projection"),
        ("transfer-gaussian", "oneproj", "one-projection"),
    ):
        assert make_spec(*other, thresholds=file) == make_spec(*other)
    with pytest.raises(CalibrationError, match="cannot be read"):
        make_spec(name, "oneproj", "one-projection", thresholds=tmp_path / "none.json")


@pytest.mark.parametrize("name", ["seed", "inner_steps", "lr"])
def test_a_calibration_may_set_only_what_calibrations_choose(
    name: str, tmp_path: Path
) -> None:
    shipped = {c.key: c for c in read_calibrations(SHIPPED)}
    one = shipped["abstention-gaussian", "oneproj", "one-projection"]
    file = tmp_path / "edited.json"
    write_calibration(file, replace(one, settings={**one.settings, name: 3}))
    with pytest.raises(CalibrationError, match=f"{name!r} is none of") as raised:
        make_spec(*one.key, thresholds=file)
    assert "steps, projector, radius, batch_size, strength" in str(raised.value)


def test_raw_variables_are_those_of_the_paper() -> None:
    for name, settings in PAPER.items():
        task, _, data = name.partition("-")
        assert settings.variables == VARIABLES[data][-1 if task == "abstention" else 0]


def test_slow_are_the_runs_with_the_papers_projector_on_networks() -> None:
    specs = make_specs(PAPER, get_args(Preset), get_args(Method))
    slow = {(s.experiment, s.preset, s.method) for s in specs if s.is_slow}
    assert slow == {
        (name, "paper", "projected-sgd") for name in PAPER if PAPER[name].hidden
    }


def test_the_projector_can_be_chosen() -> None:
    specs = make_specs(PAPER, get_args(Preset), get_args(Method), "cuts")
    assert {spec.projector for spec in specs} == {"cuts"}
    assert not any(spec.is_slow for spec in specs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abstention-mars", "paper", "one-projection"), "no experiment"),
        (("abstention-nasa", "ours", "one-projection"), "no preset"),
        (("abstention-nasa", "paper", "lagrangian"), "no method"),
        (("abstention-nasa", "paper", "one-projection", "auto"), "no projector"),
        (("abstention-nasa", "paper", "one-projection", "dual-bisection"), "convex"),
    ],
)
def test_what_is_unknown_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        make_spec(*arguments)
