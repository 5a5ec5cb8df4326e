"""Ranks of a process group solve one problem, or none: two processes with gloo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import oneproj

WORKER = Path(__file__).with_name("distributed_worker.py")
SECONDS = 300
"""No scenario may wait for ever."""
Outcomes = dict[str, list[dict[str, Any]]]


def outcomes(folder: Path, ranks: int) -> Outcomes:
    """What each scenario came to, on every rank."""
    command = [sys.executable, str(WORKER)]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    found: Outcomes = {}
    try:
        for process in running:
            printed, complaint = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, complaint
            for line in printed.splitlines():
                outcome = json.loads(line)
                found.setdefault(outcome.pop("scenario"), []).append(outcome)
    finally:
        for process in running:
            process.kill()
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes(tmp_path_factory.mktemp("two"), ranks=2)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes(tmp_path_factory.mktemp("one"), ranks=1)


SAME = (
    "solve with the same data",
    "projected-sgd with the same data",
    "project with the same data",
    "certify with the same data",
)


@pytest.mark.parametrize("scenario", SAME)
def test_ranks_with_the_same_data_come_to_the_same_bits(
    two: Outcomes, one: Outcomes, scenario: str
) -> None:
    first, second = two[scenario]
    assert first == second
    assert first["weights"] == one[scenario][0]["weights"]
    if "status" in first:
        assert first["status"] == "FEASIBLE"
        assert max(first["residuals"].values()) <= 0


def test_ranks_with_the_same_data_confirm_the_same(
    two: Outcomes, one: Outcomes
) -> None:
    first, second = two["confirm with the same data"]
    assert first == second == one["confirm with the same data"][0]


def test_a_comparison_is_counted_and_made_once_in_a_run(
    two: Outcomes, one: Outcomes
) -> None:
    for scenario in SAME[:3]:
        assert two[scenario][0]["gradients"] == one[scenario][0]["gradients"] + 1


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("solve with shards", ("oneproj.solve", "'risk'", "same full data")),
        ("project with shards", ("oneproj.project", "'risk'", "same full data")),
        ("certify with shards", ("oneproj.certify", "'risk'", "same full data")),
        ("confirm with shards", ("oneproj.confirm", "'risk'", "same full data")),
        ("confirm with shards of different sizes", ("(31 on rank 0, 181 on rank 1)",)),
        ("confirm with another confidence", ("confidence (0.9 on rank 0",)),
        ("fail to confirm on one rank", ("outside of its range",)),
        # Where the loss is log 2 whatever the data.
        ("solve with shards from zero", ("gradient of 'risk'", "same full data")),
        ("solve with shards in a function", ("'risk'", "same full data")),
        ("solve with shards of different sizes", ("64", "63", "same full data")),
        ("solve with other parameters", ("the parameters", "manual_seed")),
        ("project with other parameters", ("the parameters", "manual_seed")),
        ("solve with another bound", ("the value of 'risk'",)),
        ("solve with another name", ("'risk 0'", "absent on rank 1")),
        ("solve with another seed", ("seed (0 on rank 0, 1 on rank 1)",)),
        ("solve with another option", ("lr (0.1 on rank 0, 0.05 on rank 1)",)),
        ("solve with other defaults", ("patience=7", "patience=8")),
        ("save on one rank", ("saved (True on rank 0, False on rank 1)",)),
        ("solve with a clock", ("seconds=60.0", "steps")),
        ("solve until another update", ("the last update (20 on rank 0, 30",)),
        ("solve with noise", ("the parameters at the end", "torch.manual_seed")),
        ("project with terms that differ elsewhere", ("the parameters at the end",)),
        ("solve or project", ("oneproj.solve on rank 0, oneproj.project on rank 1",)),
        ("fail on one rank", ("was frozen",)),
    ],
)
def test_ranks_that_differ_all_raise(
    two: Outcomes, scenario: str, words: tuple[str, ...]
) -> None:
    assert len(two[scenario]) == 2
    for outcome in two[scenario]:
        assert outcome["error"] == "InvalidProblemError"
        for word in words:
            assert word in outcome["message"]


@pytest.mark.parametrize("late", [0, 1])
def test_ranks_may_save_to_one_file(two: Outcomes, late: int) -> None:
    first, second = two[f"save to one file, rank {late} late"]
    assert first == second
    assert first["status"] == "FEASIBLE"
    assert first["saved"]
    assert first["weights"] == two["solve with the same data"][0]["weights"]


@pytest.mark.parametrize(
    "scenario", ["save to one file and resume", "resume on one rank"]
)
def test_ranks_go_on_to_the_same_bits(two: Outcomes, scenario: str) -> None:
    first, second = two[scenario]
    assert first == second
    assert first["weights"] == two["solve with the same data"][0]["weights"]


@pytest.mark.parametrize(
    ("scenario", "word"),
    [
        ("find a file on one rank", "There is a checkpoint at"),
        ("cannot write on one rank", "cannot be written"),
    ],
)
def test_a_checkpoint_that_one_rank_refuses_ends_all(
    two: Outcomes, scenario: str, word: str
) -> None:
    first, second = two[scenario]
    assert second["error"] == "CheckpointError"
    assert first["error"] == "InvalidProblemError"
    assert "failed on rank 1 of 2" in first["message"]
    for outcome in (first, second):
        assert word in outcome["message"]


def test_a_rank_that_ends_is_named_by_the_others(two: Outcomes) -> None:
    (left,) = two["end on one rank"]
    assert left["error"] == "RankError"
    assert "At the end of oneproj.solve, rank 0 of 2" in left["message"]
    assert "no answer from rank 1" in left["message"]


def test_one_rank_may_look_during_a_run(two: Outcomes) -> None:
    first, second = two["solve and look from one rank"]
    assert first == second
    assert first["status"] == "FEASIBLE"


def test_one_rank_is_not_compared(one: Outcomes) -> None:
    for scenario, (outcome,) in one.items():
        assert "error" not in outcome or "DTensor" in outcome["message"], scenario


@pytest.mark.parametrize("made_by", ["fully_shard", "distribute_tensor"])
@pytest.mark.parametrize("used_by", ["Problem", "project", "OneProjection"])
def test_sharded_parameters_are_refused_with_the_reason(
    two: Outcomes, one: Outcomes, made_by: str, used_by: str
) -> None:
    scenario = f"{used_by} of {made_by}"
    for outcome in two[scenario] + one[scenario]:
        assert outcome["error"] == "InvalidProblemError"
        assert "is a DTensor" in outcome["message"]
        assert "not supported yet" in outcome["message"]
        assert "full_tensor()" in outcome["message"]


def test_without_a_process_group_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.distributed, "all_gather_object")
    w = torch.zeros(2, requires_grad=True)
    objective = oneproj.function(lambda: (w - 3.0).square().sum())
    problem = oneproj.Problem(w, objective, {"size": oneproj.sets.Ball(1.0).on(w)})
    assert oneproj.solve(problem, steps=20).feasible
    assert oneproj.project(problem.parameters, problem.constraints).distance == 0
    assert oneproj.certify(problem).holds
