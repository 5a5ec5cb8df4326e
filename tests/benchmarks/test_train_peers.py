"""Other libraries: their loops near feasibility, and the grid takes the best."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks import train_peers
from benchmarks.train_outcome import Outcome, Task
from benchmarks.train_peers import PEERS, Peer, run_grid, run_peer
from benchmarks.train_trace import Trace
from oneproj import InvalidProblemError, NonFiniteError
from oneproj.vectors import norm
from oneproj_paper.tasks import build

QUANTITY = "the value of 'objective'"


def make_task(steps: int = 100) -> Task:
    experiment = build("abstention-gaussian", seed=0)
    return Task(experiment, 0, steps, Trace(experiment.problem))


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_nears_the_constraints_and_our_projection_does_the_rest(
    peer: Peer,
) -> None:
    pytest.importorskip(peer.module)
    task = make_task()
    start = max(task.problem.residuals().values())
    found = run_peer(task, peer=peer, lr=0.03, knob=peer.knobs[-1])
    assert found.residual_before is not None
    assert 0 < found.residual_before < start / 2
    assert found.feasible
    assert (found.updates, found.projections) == (100, 1)
    # Each update sees the objective and both constraints; so does the projection.
    assert found.objective_gradients == 100
    assert found.constraint_gradients == 200 + found.constraint_passes
    assert norm(task.problem.parameters) <= task.problem.radius * (1 + 1e-6)


def test_a_peer_that_is_absent_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_peers, "find_spec", lambda _: None)
    refusals = {
        c.refuses(make_task().experiment) for c in train_peers.peer_contestants()
    }
    advice = 'pip install "oneproj[test]" (in a clone: ".[test]")'
    assert f"cooper is not installed: {advice}" in refusals
    assert None not in refusals


def test_the_grid_takes_the_best_feasible_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def run(task: Task, *, peer: Peer, lr: float, knob: float) -> Outcome:
        del task, peer
        seen.append((lr, knob))
        if lr == 0.1:
            raise NonFiniteError(QUANTITY)
        feasible = (lr, knob) != (0.001, 0.01)
        objective = 10 * lr + knob if feasible else -1.0
        residual = -1e-9 if feasible else 0.1
        return Outcome(objective, residual, 0.1, 2.0, 0.1, 1, True, 1, 1, 1, 1)  # noqa: FBT003

    monkeypatch.setattr(train_peers, "run_peer", run)
    best = run_grid(make_task(), peer=PEERS[0])
    assert seen == [(lr, knob) for lr in (0.001, 0.01, 0.1) for knob in (0.01, 0.1)]
    assert best.objective == pytest.approx(0.11)
    assert best.note in {
        "lr 0.001, dual lr 0.1; the whole grid took 8 s",
        "lr 0.01, dual lr 0.01; the whole grid took 8 s",
    }


def test_a_grid_that_only_diverges_says_so() -> None:
    def diverge(*_: object) -> object:
        raise NonFiniteError(QUANTITY)

    peer = replace(PEERS[0], loop=diverge)  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match="Every point of the grid of cooper"):
        run_grid(make_task(), peer=peer)
    assert math.isfinite(max(make_task().problem.residuals().values()))
