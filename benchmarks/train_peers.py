"""Other libraries on the same problems: Cooper, humancompatible-train and mdmm.

Each makes its documented loop over the same minibatches, is kept in the problem's ball
like everyone else, and has our projection applied at the end. Each runs with the
settings of its own documentation, and with the best of a small grid: primal rates from
a thousandth to a tenth, and two values of the one knob that rules its constraints.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam

from benchmarks.train_outcome import Contestant, Outcome, Task
from benchmarks.train_trace import Trace
from oneproj.errors import InvalidProblemError, OneprojError
from oneproj.methods.base import Context
from oneproj.problem.terms import AbstractTerm
from oneproj.progress import install
from oneproj.results import Update
from oneproj.vectors.arithmetic import project_ball_

RATES = (1e-3, 1e-2, 1e-1)
"""Primal learning rates of the grid."""


class Sampler:
    """The terms of a problem, each on a fresh minibatch."""

    def __init__(self, context: Context) -> None:
        """Draw from the context's generator."""
        self._context = context

    def objective(self) -> Tensor:
        """A stochastic objective."""
        self._context.counts.objective_gradients += 1
        return self._sample(self._context.problem.objective)

    def constraints(self) -> Tensor:
        """All stochastic constraints ``c_j``; feasible means <= 0."""
        terms = self._context.problem.constraints.values()
        return torch.stack([self.constraint(term) for term in terms])

    def constraint(self, term: AbstractTerm) -> Tensor:
        """One of them."""
        self._context.counts.constraint_gradients += 1
        return self._sample(term)

    def _sample(self, term: AbstractTerm) -> Tensor:
        indices = term.draw(self._context.batch_size, self._context.sampling)
        return term.batch_value(indices)


Loop = Callable[[Context, Sampler, float, float], Callable[[], object]]
"""Given a primal rate and the knob, makes one update of a library."""


@dataclass(frozen=True)
class Peer:
    """A library: its loop, its documented settings and the knob of its grid."""

    name: str
    module: str
    loop: Loop
    lr: float
    knob: float
    knob_name: str
    knobs: tuple[float, ...]


def cooper_loop(
    context: Context, sampler: Sampler, lr: float, dual_lr: float
) -> Callable[[], object]:
    """Simultaneous descent and ascent on Cooper's Lagrangian, as its README has it."""
    cooper: Any = import_module("cooper")
    count = len(context.problem.constraints)

    class Program(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.caps = cooper.Constraint(
                constraint_type=cooper.ConstraintType.INEQUALITY,
                multiplier=cooper.multipliers.DenseMultiplier(num_constraints=count),
            )

        def compute_cmp_state(self) -> object:
            state = cooper.ConstraintState(violation=sampler.constraints())
            observed = {self.caps: state}
            loss = sampler.objective()
            return cooper.CMPState(loss=loss, observed_constraints=observed)

    program = Program()
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=program,
        primal_optimizers=Adam(context.problem.parameters, lr=lr),
        dual_optimizers=SGD(program.dual_parameters(), lr=dual_lr, maximize=True),
    )
    return partial(optimizer.roll, compute_cmp_state_kwargs={})


def humancompatible_loop(
    context: Context, sampler: Sampler, lr: float, dual_lr: float
) -> Callable[[], object]:
    """Adam with the library's ``ALM``, told that the constraints are inequalities."""
    library: Any = import_module("humancompatible.train.dual_optim")
    count = len(context.problem.constraints)
    adam = Adam(context.problem.parameters, lr=lr)
    dual = library.ALM(m=count, lr=dual_lr, is_ineq=True)

    def update() -> None:
        lagrangian = dual.forward_update(sampler.objective(), sampler.constraints())
        lagrangian.backward()
        adam.step()
        adam.zero_grad()

    return update


def mdmm_loop(
    context: Context, sampler: Sampler, lr: float, damping: float
) -> Callable[[], object]:
    """``MaxConstraint`` with slacks and the optimiser that the library makes."""
    mdmm: Any = import_module("mdmm")
    caps = [
        mdmm.MaxConstraint(partial(sampler.constraint, term), 0.0, damping=damping)
        for term in context.problem.constraints.values()
    ]
    module = mdmm.MDMM(caps)
    optimizer = module.make_optimizer(context.problem.parameters, lr=lr)

    def update() -> None:
        found = module(sampler.objective())
        optimizer.zero_grad()
        found.value.backward()
        optimizer.step()

    return update


PEERS = (
    Peer("cooper", "cooper", cooper_loop, 1e-3, 1e-2, "dual lr", (1e-2, 1e-1)),
    Peer(
        name="humancompatible-train",
        module="humancompatible",
        loop=humancompatible_loop,
        lr=1e-3,
        knob=1e-2,
        knob_name="dual lr",
        knobs=(1e-2, 1e-1),
    ),
    Peer("mdmm", "mdmm", mdmm_loop, 2e-3, 1.0, "damping", (1.0, 10.0)),
)


def peer_contestants() -> list[Contestant]:
    """Each library with its documented settings, and with the best of its grid.

    Example:
        >>> [c.name for c in peer_contestants()][:2]
        ['cooper', 'cooper, grid']
    """
    return [c for peer in PEERS for c in (_documented(peer), _tuned(peer))]


def _documented(peer: Peer) -> Contestant:
    return Contestant(
        peer.name,
        f"its documentation: lr {peer.lr:g}, {peer.knob_name} {peer.knob:g}",
        partial(run_peer, peer=peer, lr=peer.lr, knob=peer.knob),
        refuses=lambda _: _absence(peer),
    )


def _tuned(peer: Peer) -> Contestant:
    rates, knobs = (", ".join(f"{x:g}" for x in xs) for xs in (RATES, peer.knobs))
    return Contestant(
        f"{peer.name}, grid",
        f"best of lr {rates} and {peer.knob_name} {knobs}",
        partial(run_grid, peer=peer),
        refuses=lambda _: _absence(peer),
    )


def _absence(peer: Peer) -> str | None:
    if find_spec(peer.module) is None:
        return f"{peer.name} is not installed: {install('test')}"
    return None


def run_peer(task: Task, *, peer: Peer, lr: float, knob: float) -> Outcome:
    """The library's loop, then our projection."""
    context = task.context()
    problem = context.problem
    update = peer.loop(context, Sampler(context), lr, knob)
    task.trace.start()
    began = time.perf_counter()
    k = 0
    for k in range(1, task.steps + 1):
        update()
        project_ball_(problem.parameters, problem.radius, problem.center)
        if task.trace(Update(k, task.steps, 0.0, {}, 0.0)):
            break
    before = max(problem.residuals().values())
    trained = time.perf_counter()
    context.project()
    ended = time.perf_counter()
    return Outcome(
        objective=problem.objective.value(),
        residual=max(problem.residuals().values()),
        residual_before=before,
        seconds=ended - began - task.trace.own,
        project_seconds=ended - trained,
        updates=k,
        complete=k == task.steps,
        **vars(context.counts),
    )


def run_grid(task: Task, *, peer: Peer) -> Outcome:
    """The best answer of the grid: feasible, then the smallest objective."""
    found: list[Outcome] = []
    total = 0.0
    for lr, knob in itertools.product(RATES, peer.knobs):
        task.experiment.reset()
        alone = replace(task, trace=Trace(task.problem))
        try:
            outcome = run_peer(alone, peer=peer, lr=lr, knob=knob)
        except OneprojError:  # it diverged; other points of the grid may not
            continue
        total += outcome.seconds
        note = f"lr {lr:g}, {peer.knob_name} {knob:g}"
        found.append(replace(outcome, note=note))
    best = _best(found, peer)
    return replace(best, note=f"{best.note}; the whole grid took {total:.3g} s")


def _best(found: Sequence[Outcome], peer: Peer) -> Outcome:
    if not found:
        message = f"Every point of the grid of {peer.name} ended in NaN or inf."
        raise InvalidProblemError(message)
    return min(found, key=lambda o: (not o.feasible, o.objective or 0.0))
