"""The battery of training problems: its registry, its record, what it compares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch
from click.testing import Result

from benchmarks.train_battery import runs as runs_module
from benchmarks.train_battery.ablations import (
    ABLATIONS,
    ARGUMENTS,
    PATCHED,
    TABLE,
    Ablation,
    switched_off,
)
from benchmarks.train_battery.compare import changes, lines, short, summary
from benchmarks.train_battery.problems import CASES, FAMILIES
from benchmarks.train_battery.runs import Key, Record, Run, make_runs, read_runs, run
from oneproj import Defaults, InvalidProblemError, solve

QUICK = "polygon"


def _run(problem: str, seed: int, objective: float, **changed: object) -> Run:
    made = Run(
        *("", problem, seed, objective),
        feasible=True,
        worst=-1e-6,
        status="FEASIBLE",
        gradients=2,
        passes=10,
        active=1,
        lr=0.1,
        seconds=1.0,
        warned=(),
    )
    return Run(**vars(made) | changed)


def test_every_problem_has_a_name_of_its_own_a_family_and_a_sentence() -> None:
    assert len(CASES) >= 45
    assert sum(len(family.cases) for family in FAMILIES) == len(CASES)
    for name, case in CASES.items():
        assert name == case.name == case.build.__name__
        assert case.family
        assert case.steps >= 100
        assert case.about.endswith((".", "?"))


@pytest.mark.parametrize("name", ["wine_class_caps", "two_towers", "recurrent_gru"])
def test_a_problem_is_that_of_its_seed_and_leaves_the_global_state(name: str) -> None:
    state = torch.get_rng_state()
    first, again, other = (CASES[name].build(seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    pairs = zip(first.parameters, again.parameters, strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
    pairs = zip(first.parameters, other.parameters, strict=True)
    assert not all(torch.equal(p, q) for p, q in pairs)
    assert first.objective.value() == again.objective.value()


def test_a_run_repeats_and_is_feasible() -> None:
    first, second = (run(Key("", QUICK, 0)) for _ in range(2))
    assert first.feasible
    assert first.objective == second.objective
    assert first.status == "FEASIBLE"


def test_ablations_differ_in_name_and_change_something() -> None:
    assert len(ABLATIONS) == len(TABLE)
    for ablation in TABLE:
        assert ablation.arguments() or ablation.patches or ablation.seed_offset
        changed = ablation.arguments().get("defaults", Defaults()).changed()
        assert changed == ablation.defaults


@pytest.mark.parametrize("ablation", PATCHED, ids=lambda ablation: ablation.name)
def test_a_patched_name_exists_and_is_put_back(ablation: Ablation) -> None:
    before = [resolve_name(name) for name in ablation.patches]
    with switched_off(ablation):
        during = [resolve_name(name) for name in ablation.patches]
    assert before == [resolve_name(name) for name in ablation.patches]
    assert all(a is not b for a, b in zip(before, during, strict=True))


def test_only_what_has_no_argument_is_patched() -> None:
    assert not any(ablation.patches for ablation in ARGUMENTS)
    assert not any(ablation.arguments() for ablation in PATCHED)


@pytest.mark.parametrize("name", ABLATIONS)
def test_solve_takes_the_arguments_of_an_ablation(name: str) -> None:
    problem = CASES[QUICK].build(0)
    with switched_off(ABLATIONS[name]) as arguments:
        solution = solve(problem, steps=20, progress=False, **arguments)
    assert solution.feasible


@pytest.mark.parametrize(
    ("name", "problem"),
    [("late_weight", QUICK), ("hinge_width", QUICK), ("edge", "ball_linear")],
)
def test_an_ablation_changes_a_run(name: str, problem: str) -> None:
    plain, other = (run(Key(off, problem, 0)) for off in ("", name))
    assert plain.objective != other.objective


def test_a_record_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, keys = tmp_path / "record.json", [Key("", QUICK, 0), Key("", QUICK, 1)]
    made: list[Key] = []

    def fake(key: Key) -> Run:
        if len(made) == 1 and not file.read_text().count("polygon") > 1:
            made.append(key)
            raise KeyboardInterrupt
        made.append(key)
        return _run(key.problem, key.seed, 1.0)

    monkeypatch.setattr(runs_module, "run", fake)
    with pytest.raises(KeyboardInterrupt):
        make_runs(keys, Record(file), progress=False)
    assert [found.seed for found in read_runs(file)] == [0]
    make_runs(keys, Record(file), progress=False)
    assert made == [keys[0], keys[1], keys[1]]
    assert [found.key for found in read_runs(file)] == keys
    assert len(file.read_text().splitlines()) == 2 + len(keys)  # one line per run


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    for text in ("no json", "[]", json.dumps({"benchmark": "train", "runs": []})):
        file.write_text(text)
        with pytest.raises(InvalidProblemError, match="no record"):
            read_runs(file)


def test_changes_are_relative_and_only_of_common_seeds() -> None:
    before = [_run("a", 0, 1.0), _run("a", 1, 1.1), _run("b", 0, 5.0)]
    after = [_run("a", 0, 2.0), _run("a", 1, 2.1), _run("a", 2, 99.0)]
    (found,) = changes(before, after)
    assert (found.problem, found.seeds) == ("a", 2)
    assert found.ratio == pytest.approx(2.05 / 1.05)
    spread = 0.1 / 2**0.5 / 1.05  # of the starts; the change itself has none
    assert found.noise == pytest.approx(2 * spread / 2**0.5)
    assert found.exceeds(0.1)
    assert not found.lost


def test_objectives_near_zero_are_compared_absolutely() -> None:
    (found,) = changes([_run("a", 0, 1e-6)], [_run("a", 0, 1e-4)])
    assert found.change == pytest.approx(0.0099)
    assert not found.exceeds(0.01)


def test_a_change_within_the_spread_over_seeds_is_not_listed() -> None:
    before = [_run("a", 0, 1.0), _run("a", 1, 1.0)]
    after = [_run("a", 0, 1.5), _run("a", 1, 0.9)]
    (found,) = changes(before, after)
    assert found.change == pytest.approx(0.2)
    assert found.noise == pytest.approx(2 * 0.3 * 2**0.5 / 2**0.5)
    assert short([found]) == ("-", "-")


def test_a_change_that_other_minibatches_make_as_well_is_not_listed() -> None:
    before, after = [_run("a", 0, 1.0)], [_run("a", 0, 1.5)]
    for other, told in ((1.3, "-"), (1.2, "a 1.50")):
        found = changes(before, after, [_run("a", 0, other)])
        assert found[0].noise == pytest.approx(2 * (other - 1.0))
        assert short(found) == (told, "-")


def test_a_run_that_is_no_longer_feasible_is_worse_whatever_its_objective() -> None:
    found = changes([_run("a", 0, 1.0)], [_run("a", 0, 0.5, feasible=False)])
    assert short(found) == ("a 0.50 (infeasible)", "-")
    told: list[str] = []
    lines(found, told.append)
    assert told[-1] == "- fewer runs feasible: a"
    assert "| 1 -> 0 of 1 |" in told[2]


def test_the_summary_has_the_median_and_the_gradients() -> None:
    before = [_run(name, 0, 1.0) for name in "abc"]
    after = [
        _run(n, 0, f, gradients=5) for n, f in zip("abc", (1.0, 1.5, 3.0), strict=True)
    ]
    assert "median ratio 1.5000" in summary(changes(before, after))
    assert "6 -> 15" in summary(changes(before, after))


def test_the_program_runs_ablates_compares_and_lists(
    tmp_path: Path, run_program: Callable[..., Result]
) -> None:
    file, name = tmp_path / "record.json", "train_battery.__main__"
    common = ("--only", QUICK, "--seeds", 1, "--out", file)
    first = run_program(name, *common)
    assert first.exit_code == 0, first.output
    assert f"| {QUICK} | 0 |" in first.output
    again = run_program(name, *common, "--ablate", "late_weight")
    assert "`late_weight`" in again.output
    assert [r.ablation for r in read_runs(file)] == ["", "late_weight"]
    same = run_program(name, "--compare", file, file)
    assert "1 problems: median ratio 1.0000" in same.output
    assert all(case in run_program(name, "--list").output for case in CASES)


def test_unknown_names_are_refused_in_words(run_program: Callable[..., Result]) -> None:
    name = "train_battery.__main__"
    refused = run_program(name, "--only", "no such problem")
    assert refused.exit_code == 1
    assert "no such problem" in refused.output
    refused = run_program(name, "--ablate", "gravity", "--only", QUICK)
    assert refused.exit_code == 1
    assert "gravity" in refused.output
