"""``python -m benchmarks.overhead``: training under a constraint against a bare loop.

The problem: a causal transformer of about 10^7 parameters learns a corpus in which
every token follows the one before it, while its loss on a corpus of noise stays below a
cap. What is measured is time.

The yardstick is a loop that sees the same two minibatches at every update and does
nothing else: the sum of both losses, backward, a step of plain SGD. The bars: ``solve``
from start to projected answer takes at most 1.15 times as long with minibatches, 1.7
times with anchors. A loop with Adam, which is what ``solve`` steps with, is measured as
well: what it adds is no cost of the constraint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

from benchmarks.commands import exits_and_place, write_record
from benchmarks.measure import Spread, alternate, paired_ratio, surroundings
from oneproj.problem.functions import mean
from oneproj.problem.problem import Problem
from oneproj.progress import progress_bar
from oneproj.results import Solution
from oneproj.training.solve import solve
from oneproj.vectors.arithmetic import assign, dimension, snapshot
from oneproj_paper.cli.exits import console
from oneproj_paper.experiments.interrupts import abandoning

BARS = {"minibatch": 1.15, "anchored": 1.7}
"""The ratio that ``solve`` may reach with each oracle."""
YARDSTICK = "bare SGD"
LOOPS: dict[str, Callable[..., Optimizer]] = {YARDSTICK: SGD, "bare Adam": Adam}
"""Loops that see the same minibatches, by name."""
LR = 1e-3
"""Of the bare loops; ``solve`` has its own default, 0.001 at 10^7 parameters."""
TOKENS = 64
"""The size of the vocabulary."""
SPREAD = 0.02
"""Of the first weights: every token is about as likely as any other."""
CAP = math.log(TOKENS) + 0.1
"""On the loss of noise, which nothing can predict: who guesses without a doubt that
every token follows the one before it, as the objective has it, is above."""


@dataclass(frozen=True)
class Shape:
    """The sizes of the model and of its data."""

    width: int = 384
    heads: int = 6
    layers: int = 6
    length: int = 32
    """Tokens of a sequence."""
    sequences: int = 64
    """In each corpus."""
    batch_size: int = 8


LARGE = Shape()
"""10.7 million parameters."""


class Transformer(nn.Module):
    """A causal transformer that guesses the next token.

    Example:
        >>> model = Transformer(Shape(width=8, heads=2, layers=1, length=4))
        >>> model(torch.zeros(3, 4, dtype=torch.long)).shape
        torch.Size([3, 4, 64])
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, shape.width)
        self.place = nn.Embedding(shape.length, shape.width)
        layer = nn.TransformerEncoderLayer(
            shape.width,
            shape.heads,
            dim_feedforward=4 * shape.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.body = nn.TransformerEncoder(
            layer, shape.layers, enable_nested_tensor=False
        )
        self.guess = nn.Linear(shape.width, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the token that follows each."""
        length = tokens.shape[1]
        x = self.token(tokens) + self.place.weight[:length]
        ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores: Tensor = self.guess(self.body(x, mask=ahead))
        return scores

    @torch.no_grad()
    def fill(self, generator: torch.Generator) -> None:
        """Draw the weights; norms start as identities, biases at zero."""
        for name, p in self.named_parameters():
            if p.dim() > 1:
                p.normal_(std=SPREAD, generator=generator)
            else:
                p.fill_(float(name.endswith("weight")))


def transformer_problem(shape: Shape, seed: int) -> Problem:
    """Learn that counting goes on, with a cap on the loss where it does not.

    Example:
        >>> shape = Shape(width=8, heads=2, layers=1, length=4, sequences=6)
        >>> problem = transformer_problem(shape, seed=0)
        >>> problem.objective.size, list(problem.constraints)
        (6, ['noise'])
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):  # where torch's own initialisation draws nothing
        model = Transformer(shape)
    model.to_empty(device="cpu").fill(generator)

    def losses(tokens: Tensor) -> Tensor:
        scores = model(tokens[:, :-1])
        targets = tokens[:, 1:]
        return cross_entropy(scores.mT, targets, reduction="none").mean(1)

    size = (shape.sequences, shape.length + 1)
    first = torch.randint(TOKENS, size[:1], generator=generator)
    chains = (first[:, None] + torch.arange(size[1])) % TOKENS
    noise = torch.randint(TOKENS, size, generator=generator)
    return Problem(
        model.parameters(),
        objective=mean(losses, data=chains),
        constraints={"noise": mean(losses, data=noise) <= CAP},
    )


def run_bare(
    problem: Problem, make: Callable[..., Optimizer], updates: int, batch_size: int
) -> None:
    """The loop that people write: both minibatches, backward, step.

    Example:
        >>> shape = Shape(width=8, heads=2, layers=1, length=4, sequences=6)
        >>> run_bare(transformer_problem(shape, seed=0), SGD, 2, batch_size=2)
    """
    generator = torch.Generator().manual_seed(0)
    terms = [problem.objective, *problem.constraints.values()]
    optimizer = make(problem.parameters, lr=LR)
    for _ in range(updates):
        optimizer.zero_grad()
        values = [t.batch_value(t.draw(batch_size, generator)) for t in terms]
        torch.stack(values).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def overhead_record(
    shape: Shape = LARGE,
    *,
    updates: int = 200,
    repeats: int = 3,
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Time the bare loops and ``solve`` in turns; the record is plain JSON.

    Args:
        shape: Of the model and its data.
        updates: Of every run.
        repeats: Rounds, in which every run takes its turn; at least 2.
        seed: Of data and start.
        progress: As in ``oneproj.progress.progress_bar``.

    Example:
        >>> shape = Shape(width=8, heads=2, layers=1, length=4, sequences=6)
        >>> record = overhead_record(shape, updates=10, repeats=2)
        >>> [row["name"] for row in record["rows"]]
        ['bare SGD', 'bare Adam', 'minibatch', 'anchored']
    """
    around, problem = surroundings(), transformer_problem(shape, seed)
    runs = _Runs(problem, updates, shape.batch_size)
    tasks: dict[str, Callable[[], object]] = {
        **{name: partial(runs.bare, make) for name, make in LOOPS.items()},
        **{oracle: partial(runs.ours, oracle) for oracle in BARS},
    }
    with (
        abandoning(),  # or the rest of a run that Ctrl-C ended would be timed
        progress_bar("bench overhead", repeats, enabled=progress) as advance_to,
    ):
        rounds = count(1)
        seconds = alternate(
            tasks, repeats=repeats, advance=lambda: advance_to(next(rounds))
        )
    for oracle in BARS:  # without the certificate, which the bare loop has not either
        seconds[oracle] = [_took(s) for s in runs.solutions[oracle][-repeats:]]
    return {
        "settings": {**asdict(shape), "updates": updates, "repeats": repeats},
        "parameters": dimension(problem.parameters),
        "surroundings": around,
        "rows": [_row(name, seconds, runs.solutions.get(name)) for name in tasks],
    }


class _Runs:
    """Every contestant from the same start, on the same problem."""

    def __init__(self, problem: Problem, updates: int, batch_size: int) -> None:
        self._problem, self._updates, self._size = problem, updates, batch_size
        self._start = snapshot(problem.parameters)
        self.solutions: dict[str, list[Solution]] = {oracle: [] for oracle in BARS}

    def bare(self, make: Callable[..., Optimizer]) -> None:
        assign(self._problem.parameters, self._start)
        run_bare(self._problem, make, self._updates, self._size)

    def ours(self, oracle: str) -> None:
        assign(self._problem.parameters, self._start)
        solution = solve(
            self._problem,
            steps=self._updates,
            oracle=oracle,
            batch_size=self._size,
            progress=False,
            on_failure="return",
        )
        self.solutions[oracle].append(solution)


def _took(solution: Solution) -> float:
    return solution.seconds["train"] + solution.seconds["project"]


def _row(
    name: str,
    seconds: Mapping[str, Sequence[float]],
    solutions: Sequence[Solution] | None,
) -> dict[str, Any]:
    ratio, bar = paired_ratio(seconds[name], seconds[YARDSTICK]), BARS.get(name)
    row = {
        "name": name,
        "seconds": asdict(Spread.of(seconds[name])),
        "ratio": asdict(ratio),
        "bar": bar,
        "met": None if bar is None else ratio.median <= bar,
    }
    if solutions is None:
        return row
    last = solutions[-1]
    return row | {
        "project_share": last.seconds["project"] / _took(last),
        "counts": asdict(last.counts),
        "residual": max(last.residuals.values()),
        "objective": last.objective,
    }


def main(
    *,
    updates: Annotated[int, typer.Option(min=1, help="Of every run.")] = 200,
    repeats: Annotated[int, typer.Option(min=2, help="Alternating rounds.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of data and start.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the record, as JSON.")] = None,
) -> None:
    """Time a transformer of 10^7 parameters with a constraint against a bare loop.

    The bars are ratios of 1.15 with minibatches and 1.7 with anchors. The defaults take
    about half an hour on a free core. A bar that is missed is shown and is no failure.
    """
    terminal = console()
    with exits_and_place(out):
        from benchmarks.overhead_table import overhead_table

        shape = Shape(batch_size=batch_size)
        record = overhead_record(shape, updates=updates, repeats=repeats, seed=seed)
        terminal.print(overhead_table(record))
        write_record(record, out)


if __name__ == "__main__":
    typer.run(main)
