"""The suite of projection problems: what is in it, who runs, what is counted."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from benchmarks.projection import ablate, page, peers, profile, scale, switches
from benchmarks.projection.__main__ import fill
from benchmarks.projection.ablate import MECHANISMS, ablations, tolerance_switches
from benchmarks.projection.cases import Case, Instance, below_zero, leaf
from benchmarks.projection.compare import comparison
from benchmarks.projection.large import make_large
from benchmarks.projection.record import (
    OURS,
    PLACE,
    Record,
    is_false,
    is_nearest,
    run,
    run_peer,
)
from benchmarks.projection.suite import all_instances
from benchmarks.projection.table import summaries
from oneproj import InvalidProblemError
from oneproj.projection import cuts
from oneproj.sets import Simplex

SUITE = all_instances()
BY_KEY = {i.key: i for i in SUITE}
SMALL = [BY_KEY["ellipsoids/condition 1e+02 d=2/0"], BY_KEY["thin/lens/0"]]


def one_of_each_family() -> list[Instance]:
    return list({i.family: i for i in reversed(SUITE) if i.seed == 0}.values())


# --- the problems -----------------------------------------------------------------


def test_the_suite_has_the_families_and_a_third_is_kept_aside() -> None:
    names = {(i.family, i.name) for i in SUITE}
    families = Counter(family for family, _ in names)
    assert len(BY_KEY) == len(SUITE) >= 600
    assert families["hock-schittkowski"] >= 40
    assert {i.seed for i in SUITE if i.family == "hock-schittkowski"} == {0, 1, 2, 5}
    assert 0.3 <= sum(i.kept_aside for i in SUITE) / len(SUITE) <= 0.4
    assert {(f, n) for f, n in names if f.startswith("networks")} >= {
        (f"networks {cap}", f"{kind} {start}, {count} constraints")
        for cap in ("mild", "tight")
        for kind in ("mlp", "cnn", "transformer", "pinn")
        for start in ("random", "trained", "adversarial")
        for count in (1, 5)
    }


@pytest.mark.parametrize("instance", one_of_each_family(), ids=lambda i: str(i.family))
def test_a_problem_is_the_same_each_time_and_leaves_random_numbers_alone(
    instance: Instance,
) -> None:
    before = torch.random.get_rng_state()
    one, two = instance.make(), instance.make()
    assert torch.equal(before, torch.random.get_rng_state())
    for p, q in zip(one.parameters, two.parameters, strict=True):
        assert torch.equal(p, q)
    values = [{n: c.value() for n, c in m.constraints.items()} for m in (one, two)]
    assert values[0] == values[1]
    assert max(values[0].values()) > 0


# --- runs and peers ---------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in peers.PEERS if name != "IPOPT"])
@pytest.mark.parametrize(
    "key", ["ellipsoids/condition 1e+02 d=2/0", "with sets/box, linear/0"]
)
def test_a_peer_finds_the_nearest_point(name: str, key: str) -> None:
    best = BY_KEY[key].make().best
    found = run_peer(BY_KEY[key], name, 20.0)
    assert found is not None
    assert found["feasible"]
    assert found["distance"] == pytest.approx(best, rel=1e-3)
    assert 2 <= found["gradients"] <= found["values"] + 1


def test_sets_become_bounds_and_equations() -> None:
    w, v = leaf(torch.ones(3)), leaf(torch.zeros(2))
    case = Case([v, w], {"s": Simplex(2.0).on(w), "f": below_zero(v, torch.sum)})
    f = peers.Functions(case)
    assert f.lower.tolist() == [-math.inf, -math.inf, 0.0, 0.0, 0.0]
    assert f.count == 1
    ((row, total),) = f.totals
    assert (row.tolist(), total) == ([0, 0, 1, 1, 1], 2.0)


def test_a_point_is_counted_once_and_a_peer_stops_at_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = peers.Functions(SMALL[0].make())
    for _ in range(3):
        f.slopes(f.start)
    f.slopes(f.start + 1.0)
    assert f.gradients == 2
    monkeypatch.setattr(peers, "BUDGET", 3)
    found = run_peer(SMALL[0], "augmented Lagrangian", 20.0)
    assert found is not None
    assert (found["gradients"], found["error"]) == (3, "stopped")
    assert not found["feasible"]


def test_peers_run_where_dense_matrices_in_float64_make_sense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = BY_KEY["narrow dtypes/plateau float32/0"]
    assert run_peer(narrow, "SLSQP", 1.0) is None
    large = Case([leaf(torch.zeros(2001))], {})
    assert peers.why_not("SLSQP", large) == "dense matrices of 2001 rows"
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    assert peers.why_not("IPOPT", SMALL[0].make()) == "cyipopt is not installed"


def test_ours_is_judged_by_the_constraints() -> None:
    found = run(SMALL[0], "auto", 20.0)
    assert found["feasible"]
    assert not found["false"]
    assert found["worst"] <= 0
    assert is_nearest(found, SMALL[0].make().best)
    slow = BY_KEY["ellipsoids/condition 1e+04 d=500/0"]
    late = run(slow, "auto", 1e-2)
    assert (late["error"], late["feasible"]) == ("out of time", False)


def test_false_claims() -> None:
    assert is_false({"false": True}, 1.0, exact=True)
    assert is_false({"proven empty": True}, 1.0, exact=False)
    assert not is_false({"proven empty": True}, None, exact=False)
    assert is_false({"bound": 1.01}, 1.0, exact=True)
    assert not is_false({"bound": 1.01}, 1.0, exact=False)
    assert not is_false({"bound": 1.0 + 1e-9}, 1.0, exact=True)


# --- the record and what reads it -------------------------------------------------


def made(gradients: int, distance: float = 1.0, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    plain = {"feasible": True, "worst": 0.0, "gradients": gradients}
    return plain | {"distance": distance} | more


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Two problems with a nearest point at 1, one without a feasible point."""
    record = Record(tmp_path / "record.json")
    known = {"distance": 1.0, "source": "closed form", "gradients": None}
    record.best = {
        SMALL[0].key: dict(known),
        SMALL[1].key: dict(known),
        "empty/balls/0": {"distance": None, "source": "empty", "gradients": None},
    }
    record.runs = {
        OURS: {
            SMALL[0].key: made(10, kkt=1e-9, bound=1.0),
            SMALL[1].key: made(8, 1.01, bound=1.5),
            "empty/balls/0": made(5, feasible=False, **{"proven empty": True}),
        },
        "SLSQP": {
            SMALL[0].key: made(30),
            SMALL[1].key: made(4, 0.9, worst=1e-7),
            "empty/balls/0": made(9, feasible=False, worst=1.0),
        },
    }
    return record


INSTANCES = [*SMALL, BY_KEY["empty/balls/0"]]


def test_runs_are_made_once_and_survive_the_file(record: Record) -> None:
    ran: list[str] = []

    def count(instance: Instance) -> dict[str, Any]:
        ran.append(instance.key)
        return made(1)

    fill(record, OURS, INSTANCES, count)
    assert ran == []
    fill(record, "new", SMALL, count)
    fill(record, "new", INSTANCES, count, again=True)
    assert len(ran) == 5
    again = Record(record.path)
    assert (again.best, again.runs) == (record.best, record.runs)
    assert json.loads(record.path.read_text()).keys() == {"best", "runs"}


def test_a_violation_makes_no_best_distance(record: Record) -> None:
    assert record.nearest(SMALL[1].key) == 1.0
    record.runs["SLSQP"][SMALL[1].key]["worst"] = 0.0
    assert record.nearest(SMALL[1].key) == 0.9


def test_the_table_counts(record: Record) -> None:
    rows = {
        (s.family, s.label): s for s in summaries(record, INSTANCES, [OURS, "SLSQP"])
    }
    ours = rows["all", OURS]
    assert (ours.problems, ours.well, ours.near, ours.false) == (3, 3, 1, 1)
    assert (ours.mean, ours.median) == (pytest.approx(23 / 3), 8)
    peer = rows["all", "SLSQP"]
    assert (peer.well, peer.near, peer.false, peer.errors) == (3, 2, 0, 0)
    record.runs["SLSQP"]["empty/balls/0"]["error"] = "stopped"
    rows = {(s.family, s.label): s for s in summaries(record, INSTANCES, ["SLSQP"])}
    assert rows["empty", "SLSQP"].well == 0


def test_the_profile(record: Record, tmp_path: Path) -> None:
    keys = profile.contested(record, INSTANCES)
    assert keys == [i.key for i in SMALL]
    found = profile.factors(record, INSTANCES)
    assert found == {OURS: [1.0, math.inf], "SLSQP": [1.0, 3.0]}
    assert profile.share(found["SLSQP"], 2.9) == 0.5
    assert profile.share(found["SLSQP"], 3.0) == 1.0
    profile.draw(record, INSTANCES, tmp_path / "profile.svg")
    assert profile.described(found) in (tmp_path / "profile.svg").read_text()


def test_a_peer_is_shown_when_its_runs_are_complete(record: Record) -> None:
    record.runs["IPOPT"] = {SMALL[0].key: made(3)}
    assert profile.labels_of(record, INSTANCES) == [OURS, "SLSQP"]
    assert profile.labels_of(record, SMALL[:1]) == [OURS, "SLSQP", "IPOPT"]


def test_the_page_of_the_docs_is_that_of_the_record() -> None:
    record, kept = Record(PLACE), [i for i in SUITE if i.kept_aside]
    text = (page.FOLDER / page.PAGE).read_text()
    assert page.filled(text, record, kept) == text
    found = profile.factors(record, kept)
    assert profile.described(found) in (page.FOLDER / page.PLOT).read_text()
    assert {i.key for i in kept} <= record.runs[OURS].keys()


def test_a_page_is_filled_in(record: Record) -> None:
    text = "a\n<!-- generated: reached -->\nold\n<!-- end -->\nb\n"
    new = page.filled(text, record, INSTANCES)
    assert "old" not in new
    assert "| thin | 1 | 1 / 0 | 1 / 1 |" in new
    assert page.filled(new, record, INSTANCES) == new
    record.runs["SLSQP"][SMALL[0].key]["error"] = "stopped"
    part = text.replace("reached", "stopped")
    assert "SLSQP 1, of these 1 by the time" in page.filled(part, record, INSTANCES)
    assert "or not completely: IPOPT," in page.filled(part, record, INSTANCES)
    with pytest.raises(InvalidProblemError, match="part 'other'"):
        page.filled(text.replace("reached", "other"), record, INSTANCES)


def test_two_records_are_compared(record: Record, tmp_path: Path) -> None:
    other = Record(tmp_path / "other.json")
    other.runs = {OURS: {key: dict(r) for key, r in record.runs[OURS].items()}}
    same = comparison(record, other, INSTANCES, OURS)
    assert "NO" not in same
    other.runs[OURS][SMALL[0].key]["distance"] = 1.02
    other.runs[OURS][SMALL[1].key]["gradients"] = 12
    other.runs[OURS]["empty/balls/0"]["feasible"] = True
    rows = {
        line.split("  ")[0]: line
        for line in comparison(record, other, INSTANCES, OURS).splitlines()
    }
    assert rows["ellipsoids"].split()[3:6] == ["2.0e-02", "condition", "1e+02"]
    assert "50.0%" in rows["thin"]
    assert all(rows[f].rstrip().endswith("NO") for f in ("ellipsoids", "thin", "empty"))


# --- switches and ablations -------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Numbers:
    penalty: float = 1.5


def test_switches_are_set_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers()
    monkeypatch.setattr(cuts, "NUMBERS", numbers, raising=False)
    before = cuts.project_onto_sets
    chosen = [
        "oneproj.projection.closed_form:project_onto_sets=math:hypot",
        "oneproj.projection.cuts:NUMBERS.penalty=2.0",
        "memory=0",
    ]
    with switches.overridden(chosen) as options:
        assert cuts.project_onto_sets is math.hypot  # type: ignore[comparison-overlap]
        assert numbers.penalty == 2.0
        assert options == {"memory": 0}
    assert (cuts.project_onto_sets, numbers.penalty) == (before, 1.5)


@pytest.mark.parametrize(
    ("switch", "why"),
    [
        ("memory", "it has no value"),
        ("memory=few", "neither a Python literal"),
        ("oneproj.nowhere:A=1", "no module oneproj.nowhere"),
        ("oneproj.projection.cuts:A=1", "there is no A"),
    ],
)
def test_a_switch_that_cannot_be_set_says_why(switch: str, why: str) -> None:
    with pytest.raises(InvalidProblemError, match=why), switches.overridden([switch]):
        pass


def test_every_mechanism_can_be_switched_off() -> None:
    for switch in (*MECHANISMS.values(), *tolerance_switches().values()):
        text = switch.replace("NONE", "benchmarks.projection.ablate:nothing")
        with switches.overridden([text]) as options:
            cuts.Cuts(**options)


def test_an_ablation_says_what_a_mechanism_is_worth(record: Record) -> None:
    said: list[str] = []
    chosen = [BY_KEY["ellipsoids/undeclared, condition 1e+02 d=20/0"]]
    ablations(chosen, ["max_evaluations=3"], 20.0, record=record, say=said.append)
    cells = [line.split() for line in said]
    assert cells[0][0] == "without"
    assert cells[1][-3:] == ["1", "of", "1"]
    name, *numbers = cells[2]
    assert name == "max_evaluations=3"
    feasible, lost, _, farther = map(int, numbers[:4])
    assert (feasible, lost + farther) in {(0, 1), (1, 1)}


def test_a_wrong_switch_is_refused_before_the_work(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[object] = []
    monkeypatch.setattr(ablate, "run", lambda *given: ran.append(given))
    with pytest.raises(InvalidProblemError, match="there is no A"):
        ablations(SMALL, ["oneproj.projection.cuts:A=1"], 20.0, record=record)
    assert ran == []


# --- time and memory --------------------------------------------------------------


def test_the_trained_start_is_slightly_infeasible() -> None:
    for size in (18, 200):
        generators = [torch.Generator().manual_seed(1) for _ in range(2)]
        random = make_large(size, "random", generators[0])
        trained = make_large(size, "trained", generators[1])
        worst = [
            max(c.value() for c in made.constraints.values())
            for made in (random, trained)
        ]
        assert 0 < worst[1] < 0.5 * worst[0]


def test_time_is_a_ratio_and_switches_apply() -> None:
    (_, _, one, two) = scale.time_table(sizes=[18]).splitlines()
    assert one.split()[:2] == ["18", "random"]
    assert two.split()[:2] == ["18", "trained"]
    assert float(one.split()[3]) > 0
    many = scale.time_over_gradients(200, "random", ["min_gain=0.0"])[0]
    assert many > scale.time_over_gradients(200, "random")[0]


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)
def test_memory_counts_copies() -> None:
    found = scale.weigh(10**6)
    assert found.feasible
    assert 1 <= found.gradient_copies <= 20
    assert found.gradient_copies <= found.copies <= 200


def test_the_program(tmp_path: Path, run_program: Callable[..., Result]) -> None:
    place = tmp_path / "record.json"
    arguments = ["--family", "thin", "--only", "lens", "--record", place]
    result = run_program("projection.__main__", *arguments, "--peer", "SLSQP")
    assert result.exit_code == 0, result.output
    assert [line.split()[:3] for line in result.output.splitlines()[2:4]] == [
        ["thin", OURS, "2"],
        ["thin", "SLSQP", "2"],
    ]
    shown = run_program("projection.__main__", *arguments, "--show", "--each")
    assert "thin/lens/1" in shown.output
    plot = tmp_path / "profile.svg"
    drawn = run_program("projection.__main__", *arguments, "--plot", plot)
    assert drawn.exit_code == 0, drawn.output
    assert plot.exists()
    same = run_program("projection.__main__", *arguments, "--compare", place)
    assert same.output.rstrip().endswith("yes")
