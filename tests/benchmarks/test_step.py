"""The record's structure and the parts that decide it; no assertion on a time."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from rich.console import Console

from benchmarks import step
from benchmarks.copies import held_copies
from benchmarks.layouts import LAYOUTS, Layout, Point, shapes
from benchmarks.measure import Spread, alternate, paired_ratio, surroundings
from benchmarks.step_table import step_table
from oneproj import InvalidProblemError, OneProjection


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return step.step_record([1000, 2000], repeats=3, progress=False)


def test_the_record_survives_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_every_size_layout_and_case_has_a_row(record: dict[str, Any]) -> None:
    keys = ("size", "layout", "select", "momentum")
    got = [tuple(row[key] for key in keys) for row in record["rows"]]
    wanted = itertools.product(
        (1000, 2000), ("one tensor", "transformer"), ("last", "random"), (0.0, 0.9)
    )
    assert sorted(got) == sorted(wanted)


def test_a_row_holds_times_ratio_bar_and_copies(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        for key in ("step", "reference", "ratio"):
            spread = row[key]
            assert 0 < spread["lower"] <= spread["median"] <= spread["upper"]


def test_every_row_has_the_bar(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        assert row["bar"] == 1.10
        assert row["met"] == (row["ratio"]["median"] <= 1.10)


def test_the_counted_copies(record: dict[str, Any]) -> None:
    copies = {(row["select"], row["momentum"]): row["copies"] for row in record["rows"]}
    assert copies == {
        ("last", 0.0): 2.0,
        ("random", 0.0): 3.0,
        ("last", 0.9): 3.0,
        ("random", 0.9): 4.0,
    }
    assert all(row["copies_met"] for row in record["rows"])


def test_the_surroundings_name_threads_and_versions_but_no_host(
    record: dict[str, Any],
) -> None:
    around = record["surroundings"]
    assert around["threads"] == torch.get_num_threads()
    assert around["torch"] == torch.__version__
    assert set(around) == set(surroundings())
    assert set(around) == {
        "cpu_count",
        "load",
        "oneproj",
        "platform",
        "python",
        "threads",
        "torch",
    }


def test_the_table_shows_a_missed_bar_and_too_many_copies(
    record: dict[str, Any],
) -> None:
    worse = json.loads(json.dumps(record))
    for row in worse["rows"]:
        row |= {"met": True, "copies_met": True}
    assert "MISSED" not in render(worse)
    assert render(worse).count("1.10 met") == 16
    worse["rows"][0]["met"] = False
    assert render(worse).count("1.10 MISSED") == 1
    worse["rows"][1] |= {"copies": 4.0, "copies_met": False}
    assert render(worse).count("4.00 of 3 MISSED") == 1


def test_the_command_prints_the_table_and_writes_the_record(
    tmp_path: Path, run_program: Callable[..., Result]
) -> None:
    out = tmp_path / "step.json"
    run = run_program("step", "--size", 1000, "--repeats", 2, "--out", out)
    assert run.exit_code == 0, run.output
    assert "Only the ratios are claims" in run.stdout
    record = json.loads(out.read_text())
    assert [row["size"] for row in record["rows"]] == [1000] * 8
    assert record["settings"]["repeats"] == 2


def render(record: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(step_table(record))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1000, 54_321, 10**6])
def test_a_layout_has_exactly_the_size_asked_for(layout: Layout, size: int) -> None:
    assert sum(torch.Size(s).numel() for s in shapes(layout, size)) == size


def test_a_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="does not fit into 100 parameters"):
        shapes("transformer", 100)
    with pytest.raises(InvalidProblemError, match="does not fit into 0 parameters"):
        shapes("one tensor", 0)


def test_contestants_do_not_share_what_they_change() -> None:
    point = Point.draw("one tensor", 10, torch.Generator().manual_seed(0))
    (a,), (b,) = point.parameters(), point.parameters()
    with torch.no_grad():
        a.zero_()
    assert torch.equal(b, point.values[0])
    assert not torch.equal(a, b)


def test_a_block_is_one_outer_iteration_and_stays_inside_the_ball() -> None:
    point = Point.draw("transformer", 1000, torch.Generator().manual_seed(0))
    for case in step.CASES:
        parameters = point.parameters()
        opt = case.build(parameters)
        for _ in range(3):
            step._block(opt.step)()
        assert opt._at.t == 3
        norm = torch.linalg.vector_norm(torch.cat([p.flatten() for p in parameters]))
        assert norm < step.RADIUS / 2


def test_three_passes_follow_the_reference_step() -> None:
    point = Point.draw("one tensor", 100, torch.Generator().manual_seed(0))
    (mine,), (theirs,) = point.parameters(), point.parameters()
    start = mine.detach().clone()
    step._reference_block([mine])()
    sgd = torch.optim.SGD([theirs], lr=step.LEARNING_RATE, momentum=step.MOMENTUM)
    with torch.no_grad():
        for _ in range(step.INNER_STEPS):
            sgd.step()
            for _ in range(3):
                theirs.lerp_(start, step.PASS_WEIGHT)
    assert torch.equal(mine, theirs)


def test_ratios_are_paired_repeat_by_repeat() -> None:
    # A machine that slows down tenfold half-way changes the times, not the ratio.
    mine, reference = [2.0, 2.0, 20.0, 20.0], [1.0, 1.0, 10.0, 10.0]
    assert paired_ratio(mine, reference) == Spread(2.0, 2.0, 2.0)


def test_tasks_take_turns_and_the_first_round_is_not_kept() -> None:
    ran: list[str] = []
    rounds: list[int] = []
    ticks = itertools.count()
    seconds = alternate(
        {name: partial(ran.append, name) for name in "abc"},
        repeats=3,
        advance=lambda: rounds.append(len(ran)),
        clock=lambda: float(next(ticks)),
    )
    assert "".join(ran) == "abc" + "cba" + "abc" + "cba"
    assert seconds == {name: [1.0] * 3 for name in "abc"}
    assert rounds == [6, 9, 12]


def test_one_repeat_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="at least 2 repeats, got 1"):
        alternate({"a": lambda: None}, repeats=1)


def test_hidden_buffers_are_counted_and_shared_memory_once() -> None:
    w = torch.ones(100, requires_grad=True)
    w.grad = torch.ones(100)
    opt = OneProjection([w], lr=0.1, prox_weight=0.2, inner_steps=2)
    assert held_copies(opt) == 2.0
    opt._hidden = {"deep": [torch.zeros(50)]}  # type: ignore[attr-defined]
    assert held_copies(opt) == 2.5
    opt._view = opt._hidden["deep"][0][:10]  # type: ignore[attr-defined]
    opt._alias = (w, w.grad)  # type: ignore[attr-defined]
    assert held_copies(opt) == 2.5
