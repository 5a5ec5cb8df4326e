"""One rank of a process group of gloo, for ``test_distributed``: runs all scenarios.

Its arguments are the rank, the number of ranks and a folder in which the ranks meet.
It prints what happened in each scenario as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import oneproj
from oneproj import Update

ROWS = 64
STEPS = 40
SLOW = 0.5
"""Seconds by which one rank is behind the other."""


def rows(seed: int, count: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * noise > 0).double()
    return x, y


def problem(
    data: tuple[torch.Tensor, torch.Tensor],
    *,
    start: float = 0.1,
    cap: float = 0.6,
    name: str = "risk",
    closure: bool = False,
) -> oneproj.Problem:
    w = torch.full((3,), start, dtype=torch.float64, requires_grad=True)

    def losses(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(
            x @ w, y, reduction="none"
        )

    if closure:
        risk = oneproj.function(lambda: losses(data).mean(), curvature="convex")
    else:
        risk = oneproj.mean(losses, data, curvature="convex")
    objective = oneproj.function(lambda: (w - 2.0).square().sum())
    return oneproj.Problem(w, objective, {name: risk <= cap}, radius=50.0)


def halves(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = rows(0)
    return x[rank::2], y[rank::2]


def solve(made: oneproj.Problem, **settings: object) -> dict[str, Any]:
    solution = oneproj.solve(made, steps=STEPS, **settings)
    return answer(made) | {
        "status": solution.status.name,
        "projections": solution.counts.projections,
        "gradients": solution.counts.constraint_gradients,
    }


def project(made: oneproj.Problem) -> dict[str, Any]:
    projection = oneproj.project(made.parameters, made.constraints)
    return answer(made) | {
        "status": projection.status.name,
        "gradients": projection.gradients,
    }


def certify(made: oneproj.Problem) -> dict[str, Any]:
    certificate = oneproj.certify(made)
    return answer(made) | {"kkt": certificate["KKT residual"].value}


def confirm(
    x: torch.Tensor, confidence: float = 0.9, *, largest: float = 1.0
) -> dict[str, Any]:
    risk = oneproj.mean(lambda batch: batch[:, 0].sigmoid(), x)
    rate = oneproj.rates.positive_rate(lambda batch: batch[:, 0], x)
    found = oneproj.confirm(
        {"risk": risk <= 0.9, "rate": rate <= 0.9}, confidence, range=(0, largest)
    )
    return found.to_dict()


def answer(made: oneproj.Problem) -> dict[str, Any]:
    return {
        "weights": [value.hex() for value in made.parameters[0].tolist()],
        "residuals": made.residuals(),
    }


def solve_with_callback_on_one_rank(rank: int) -> dict[str, Any]:
    made = problem(rows(0))

    def look(update: Update) -> None:
        if rank == 0 and update.update == 5:
            oneproj.certify(made)

    return solve(made, callbacks=look)


def solve_until(update: int) -> dict[str, Any]:
    return solve(problem(rows(0)), callbacks=lambda seen: seen.update == update)


def solve_or_project(rank: int) -> dict[str, Any]:
    made = problem(rows(0))
    return solve(made) if rank == 0 else project(made)


def frozen_on_one_rank(rank: int) -> dict[str, Any]:
    made = problem(rows(0))
    made.parameters[0].requires_grad_(rank == 0)
    return solve(made)


def with_noise(rank: int) -> dict[str, Any]:
    """Noise in the objective, from a generator that is another on each rank."""
    torch.manual_seed(rank)
    w = torch.zeros(2, requires_grad=True)
    objective = oneproj.function(
        lambda: ((w - 2.0) * (1.0 + torch.rand(2))).square().sum()
    )
    ball = {"size": oneproj.sets.Ball(1.0).on(w)}
    return solve(oneproj.Problem(w, objective, ball))


def alike_at_the_start(rank: int) -> dict[str, Any]:
    """Terms with the same value and gradient at the start, and others elsewhere."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    objective = oneproj.function(lambda: (w - 2.0).square().sum())
    bend = oneproj.function(
        lambda: 1.0 - w.sum() + (1 + rank) * (w[0] - 0.4).clamp(min=0).square()
    )
    return project(oneproj.Problem(w, objective, {"bend": bend <= 0.0}))


def ended_on_one_rank(rank: int) -> dict[str, Any]:
    """Rank 1 is killed in the middle of a run: it has no outcome."""

    def end(update: Update) -> None:
        if rank == 1 and update.update == 5:
            os._exit(0)

    return solve(problem(rows(0)), callbacks=end)


def folder() -> Path:
    """Where the ranks meet, and where they save their runs."""
    return Path(sys.argv[3])


def saved(name: str, rank: int, *, slow: int) -> dict[str, Any]:
    """Save a run, with one rank that comes late to the check of the file."""
    made, file = problem(rows(0)), folder() / name
    if rank == slow:
        time.sleep(SLOW)
    found = solve(made, checkpoint=oneproj.Checkpoint(file, every=10))
    return found | {"saved": file.exists()}


def saved_and_resumed(rank: int) -> dict[str, Any]:
    """Stop a run at update 20 and go on from the one file of both ranks."""
    file = folder() / "resumed.pt"

    def stop(update: Update) -> bool:
        time.sleep(SLOW / STEPS * rank)  # the ranks are not at the same update
        return update.update == STEPS // 2

    saving = oneproj.Checkpoint(file, every=3)
    solve(problem(rows(0)), checkpoint=saving, callbacks=stop)
    return solve(problem(rows(0)), checkpoint=saving)


def saved_on_one_rank(rank: int) -> dict[str, Any]:
    """Save the run of rank 0 alone."""
    file = folder() / "alone.pt" if rank == 0 else None
    return solve(problem(rows(0)), checkpoint=file)


def resumed_on_one_rank(rank: int) -> dict[str, Any]:
    """Go on from a file that only rank 0 can see."""
    own = folder() / f"own-{rank}.pt"
    solve(problem(rows(0)), checkpoint=own, callbacks=lambda u: u.update == STEPS // 2)
    if rank == 1:
        own.unlink()
    return solve(problem(rows(0)), checkpoint=oneproj.Checkpoint(own))


def refused_on_one_rank(rank: int) -> dict[str, Any]:
    """Rank 1 finds a checkpoint where it would write its own."""
    own = folder() / f"taken-{rank}.pt"
    if rank == 1:
        own.write_text("precious")
    return solve(problem(rows(0)), checkpoint=own)


def unwritable_on_one_rank(rank: int) -> dict[str, Any]:
    """The checkpoint of rank 1 would be in a folder that is a file."""
    blocker = folder() / "blocker"
    blocker.write_text("")
    own = folder() / "written.pt" if rank == 0 else blocker / "run.pt"
    return solve(problem(rows(0)), checkpoint=own)


def sharded_parameters(made_by: str, used_by: str) -> dict[str, Any]:
    """Parameters that are DTensors, in every place that takes parameters."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    if made_by == "fully_shard":
        model = torch.nn.Linear(4, 2)
        fully_shard(model, mesh=mesh)
        parameters = list(model.parameters())
    else:
        whole = torch.ones(4), torch.ones(2, 4)
        parts = [distribute_tensor(p, mesh, [Shard(0)]) for p in whole]
        parameters = [part.requires_grad_() for part in parts]
    objective = oneproj.function(lambda: sum(p.square().sum() for p in parameters))
    if used_by == "Problem":
        oneproj.Problem(parameters, objective, {})
    elif used_by == "project":
        oneproj.project(parameters, {"size": objective <= 1.0})
    else:
        oneproj.OneProjection(parameters, lr=0.1, prox_weight=0.1, inner_steps=2)
    return {}


SCENARIOS: dict[str, Callable[[int], dict[str, Any]]] = {
    "solve with the same data": lambda _: solve(problem(rows(0))),
    "projected-sgd with the same data": lambda _: solve(
        problem(rows(0)), method="projected-sgd"
    ),
    "project with the same data": lambda _: project(problem(rows(0), start=2.0)),
    "certify with the same data": lambda _: certify(problem(rows(0))),
    "confirm with the same data": lambda _: confirm(rows(0)[0]),
    "solve with shards": lambda rank: solve(problem(halves(rank))),
    "project with shards": lambda rank: project(problem(halves(rank), start=2.0)),
    "certify with shards": lambda rank: certify(problem(halves(rank))),
    "confirm with shards": lambda rank: confirm(halves(rank)[0]),
    "confirm with shards of different sizes": lambda rank: confirm(
        rows(rank, 31 + 150 * rank)[0]
    ),
    "confirm with another confidence": lambda rank: confirm(
        rows(0)[0], 0.9 + 0.05 * rank
    ),
    "fail to confirm on one rank": lambda rank: confirm(
        rows(0)[0], largest=1.0 - 0.9 * rank
    ),
    "solve with shards from zero": lambda rank: solve(problem(halves(rank), start=0.0)),
    "solve with shards in a function": lambda rank: solve(
        problem(halves(rank), closure=True)
    ),
    "solve with shards of different sizes": lambda rank: solve(
        problem(rows(0, ROWS - rank))
    ),
    "solve with other parameters": lambda rank: solve(
        problem(rows(0), start=0.1 + 1e-15 * rank)
    ),
    "project with other parameters": lambda rank: project(
        problem(rows(0), start=2.0 + rank)
    ),
    "solve with another bound": lambda rank: solve(
        problem(rows(0), cap=0.6 + 0.01 * rank)
    ),
    "solve with another name": lambda rank: solve(
        problem(rows(0), name=f"risk {rank}")
    ),
    "solve with another seed": lambda rank: solve(problem(rows(0)), seed=rank),
    "solve with another option": lambda rank: solve(
        problem(rows(0)), lr=0.1 / (1 + rank)
    ),
    "solve with other defaults": lambda rank: solve(
        problem(rows(0)), defaults=replace(oneproj.Defaults(), patience=7 + rank)
    ),
    "solve with a clock": lambda _: solve(problem(rows(0)), seconds=60.0),
    "solve until another update": lambda rank: solve_until(20 + 10 * rank),
    "solve with noise": with_noise,
    "project with terms that differ elsewhere": alike_at_the_start,
    "solve and look from one rank": solve_with_callback_on_one_rank,
    "solve or project": solve_or_project,
    "fail on one rank": frozen_on_one_rank,
    "save to one file, rank 0 late": lambda rank: saved("late-0.pt", rank, slow=0),
    "save to one file, rank 1 late": lambda rank: saved("late-1.pt", rank, slow=1),
    "save to one file and resume": saved_and_resumed,
    "save on one rank": saved_on_one_rank,
    "resume on one rank": resumed_on_one_rank,
    "find a file on one rank": refused_on_one_rank,
    "cannot write on one rank": unwritable_on_one_rank,
}
SCENARIOS |= {
    f"{used_by} of {made_by}": lambda _, m=made_by, u=used_by: sharded_parameters(m, u)
    for made_by in ("fully_shard", "distribute_tensor")
    for used_by in ("Problem", "project", "OneProjection")
}


SCENARIOS["end on one rank"] = ended_on_one_rank  # the last: it leaves one rank


def main(rank: str, ranks: str, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", oneproj.OneprojWarning)
    for number, (name, scenario) in enumerate(SCENARIOS.items()):
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting-{number}",
            rank=int(rank),
            world_size=int(ranks),
            timeout=timedelta(seconds=60),
        )
        try:
            found = scenario(int(rank))
        except oneproj.OneprojError as error:
            found = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps({"scenario": name} | found), flush=True)  # noqa: T201 - read by the test
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
