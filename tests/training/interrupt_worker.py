"""Trains one small model with ``checkpoint=``; made to be killed and started again.

For every line of input, "METHOD CHECKPOINT ANSWER", a new process trains; its id is
printed when it starts, its exit code when it is gone. Called by test_interruptions.py.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import softplus

import oneproj
from oneproj import Status, Update

STEPS, CHECKPOINT_EVERY = 200, 7
PAUSE = 2e-3  # seconds per update, so that a signal meets every part of one


def build() -> tuple[oneproj.Problem, torch.nn.Module]:
    """A network with dropout and batch norm, under a risk that holds it back."""
    fill = torch.Generator().manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 6),
        torch.nn.BatchNorm1d(6),
        torch.nn.Tanh(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(6, 1),
    )
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=fill))
    x, source = torch.randn(2, 400, 5, generator=fill)
    y = torch.sign(x[:, 0] + 0.3 * x[:, 1])
    z = torch.sign(source[:, 0] - 0.3 * source[:, 2])

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return softplus(-batch[1] * model(batch[0])[:, 0])

    # With chunks of their own: else the constraint would be seen as a whole.
    risk = oneproj.mean(loss, data=(source, z), chunk_size=200)
    problem = oneproj.Problem(
        model.parameters(),
        objective=oneproj.mean(loss, data=(x, y)),
        constraints={"source": risk <= 0.45},
        radius=20.0,
        model=model,
    )
    return problem, model


def train(method: str, checkpoint: str, answer: str) -> None:
    """Train, or go on; write the answer's bits once all updates are made."""
    torch.manual_seed(0)  # dropout draws from the global generator
    problem, model = build()

    def pause(update: Update) -> None:
        del update
        time.sleep(PAUSE)

    solution = oneproj.solve(
        problem,
        method=method,
        steps=STEPS,
        batch_size=16,
        callbacks=pause,
        checkpoint=oneproj.Checkpoint(checkpoint, every=CHECKPOINT_EVERY),
        progress=False,
    )
    if solution.status is Status.FEASIBLE:
        columns = dict(solution.history)
        del columns["seconds"]
        kept = {"model": model.state_dict(), "history": columns}
        torch.save(kept | {"counts": vars(solution.counts)}, Path(answer))


def serve() -> None:
    """Fork a process for every line of input, so that each starts without imports."""
    say = sys.stdout
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                train(*line.split())
            except KeyboardInterrupt:  # before or after the updates
                os._exit(130)
            os._exit(0)
        say.write(f"{child}\n")
        say.flush()
        _, status = os.waitpid(child, 0)
        say.write(f"{os.waitstatus_to_exitcode(status)}\n")
        say.flush()


if __name__ == "__main__":
    # The first optimiser imports much of torch; children should not have to.
    oneproj.solve(build()[0], steps=2, on_failure="return", progress=False)
    serve()
