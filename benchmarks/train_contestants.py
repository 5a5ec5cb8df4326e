"""The library's own contestants: one projection, its rivals, and a bare loop.

All get the same problem, data, start, seed and projector, through ``oneproj.solve``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch.optim import SGD

from benchmarks.train_outcome import PROJECTOR, Contestant, Outcome, Task
from benchmarks.train_trace import Trace
from oneproj.methods.slsqp import CONSTANTS
from oneproj.methods.step_size import default_lr
from oneproj.projection.cuts import Cuts
from oneproj.projection.project import ProjectorLike
from oneproj.results import Solution
from oneproj.training.solve import solve
from oneproj_paper.experiments.specs import paper_options
from oneproj_paper.projectors.augmented_lagrangian import AugmentedLagrangian
from oneproj_paper.tasks import Experiment, count_parameters

MINE = "one-projection"
MINE_PAPER = "one-projection, paper"
RIVAL = "projected-sgd, paper lr"
RIVAL_CARED_FOR = "projected-sgd, our step"
REFERENCE = "slsqp"
BARE = "bare SGD loop"
EXTRAPOLATED = "projected-sgd, augmented Lagrangian"
TIGHT = "projected-sgd, to a KKT residual of 1e-6"
STEPS = 500
"""Updates of every contestant, unless the paper has another number for its own."""
EXTRAPOLATED_FROM = 20
ROUNDS = 3
"""In which the bare loop and one projection take turns."""
BARE_LR = 1e-2
"""Small enough for every problem; the bare loop is there for its time only."""

Options = Callable[[Task], dict[str, Any]]


def library_contestants() -> list[Contestant]:
    """Everything that this library brings, the one to beat first.

    Example:
        >>> [c.name for c in library_contestants()][:3]
        ['one-projection', 'bare SGD loop', 'one-projection, paper']
    """
    return [
        Contestant(MINE, "solve(problem, steps)", _solving(_nothing)),
        # Right after the one that it is held against, so that both see one machine.
        Contestant(BARE, "the same minibatches, no anchor, no projection", run_bare),
        Contestant(MINE_PAPER, "settings of the paper", _solving(_paper_options)),
        Contestant(RIVAL, "lr and batch of the paper", _solving(_rival_options)),
        Contestant(
            RIVAL_CARED_FOR,
            "adam, default lr, cosine",
            _solving(_cared_for_options),
        ),
        *(_plain(name) for name in ("penalty-sgd", "lagrangian")),
        _plain("switching-subgradient"),
        *(_with_adam(name) for name in ("penalty-sgd", "lagrangian")),
        _with_adam("switching-subgradient"),
        Contestant(REFERENCE, "all data, SciPy", _solving(_given("slsqp")), _too_large),
    ]


def extrapolated_contestants() -> list[Contestant]:
    """Projected SGD with slower projectors: their time, from a few updates.

    One has the paper's projector, the other ours without its early stop: on networks
    without kinks it is as exact there as on linear problems.

    Example:
        >>> [c.about for c in extrapolated_contestants()][0]
        'time extrapolated from 20 updates'
    """
    slower: dict[str, ProjectorLike] = {
        EXTRAPOLATED: AugmentedLagrangian(),
        TIGHT: Cuts(min_gain=0.0),
    }
    return [
        Contestant(
            name,
            f"time extrapolated from {EXTRAPOLATED_FROM} updates",
            partial(_extrapolate, projector=projector),
            refuses=lambda e: None if e.settings.hidden else "networks only",
            only_seed=True,
        )
        for name, projector in slower.items()
    ]


def run_bare(task: Task) -> Outcome:
    """A loop that sees the same minibatches and does nothing else, for its time.

    Every update of it

    1. sets the gradients to None,
    2. draws ``batch_size`` examples of the objective and of each constraint, with the
       library's own ``draw``: independent draws, from the run's generator,
    3. evaluates all terms, each on its own minibatch, with the library's own
       ``batch_value``: what ``solve`` pays for data and models, it pays as well,
    4. adds them up and goes back through the sum once,
    5. makes a step of plain ``torch.optim.SGD``.

    It reads no value, checks nothing for NaN, has no anchor, no ball, no penalty, no
    average, no schedule, no record, no projection, and its step is SGD's where
    ``solve`` makes Adam's. Its time is that of the updates alone; that of ``solve`` is
    training with all anchors, and the projection, without the certificate.

    It takes turns with one projection, since the ratio of the two is what counts.
    """
    alone = replace(task, trace=Trace(task.problem))
    times, ratios = [], []
    for _ in range(ROUNDS):
        task.experiment.reset()
        times.append(_time_bare(alone))
        task.experiment.reset()
        ratios.append(_solve(alone, options=_nothing).seconds / times[-1])
    count = task.steps * len(task.problem.constraints)
    return Outcome(
        objective=None,
        residual=None,
        residual_before=None,
        seconds=statistics.median(times),
        project_seconds=0.0,
        updates=task.steps,
        complete=True,
        objective_gradients=task.steps,
        constraint_gradients=count,
        constraint_passes=0,
        projections=0,
        note="no answer: it is there for its time",
        overhead=statistics.median(ratios),
    )


def _time_bare(task: Task) -> float:
    context = task.context()
    parameters = context.problem.parameters
    terms = [context.problem.objective, *context.problem.constraints.values()]
    sgd = SGD(parameters, lr=BARE_LR)
    began = time.perf_counter()
    for _ in range(task.steps):
        sgd.zero_grad()
        batches = [t.draw(context.batch_size, context.sampling) for t in terms]
        values = [t.batch_value(b) for t, b in zip(terms, batches, strict=True)]
        sum(values[1:], values[0]).backward(inputs=parameters)  # type: ignore[no-untyped-call]
        sgd.step()
    return time.perf_counter() - began


def _solving(options: Options) -> Callable[[Task], Outcome]:
    return partial(_solve, options=options)


def _solve(task: Task, *, options: Options) -> Outcome:
    shared: dict[str, Any] = {"steps": task.steps, "projector": PROJECTOR}
    given = shared | options(task)
    task.trace.start()
    solution = solve(
        task.problem,
        seed=task.seed,
        progress=False,
        callbacks=task.trace,
        on_failure="return",
        **given,
    )
    return _outcome(solution, task, planned=given["steps"])


def _outcome(solution: Solution, task: Task, *, planned: int) -> Outcome:
    updates = int(max(solution.history["update"], default=0))
    ended = solution.settings.get("ended")
    complete = not task.trace.stopped and (updates == planned or ended is not None)
    note = "" if complete else f"ended after {updates} of {planned} updates"
    took, before = solution.seconds, solution.projection.residuals_before
    return Outcome(
        objective=solution.objective,
        residual=max(solution.residuals.values()),
        residual_before=max(before[name] for name in task.problem.constraints),
        seconds=took["train"] + took["project"] - task.trace.own,
        project_seconds=took["project"],
        updates=updates,
        complete=complete,
        note=note if ended is None else str(ended),
        **vars(solution.counts),
    )


def _nothing(task: Task) -> dict[str, Any]:
    del task
    return {}


def _paper_options(task: Task) -> dict[str, Any]:
    """The paper's settings; its number of updates, scaled as the others' is."""
    settings = task.experiment.settings
    own = settings.methods["one-projection"]
    T = max(1, own.updates * task.steps // (STEPS * settings.inner_steps))
    options = paper_options(settings, "one-projection")
    return options | {"steps": T * settings.inner_steps}


def _rival_options(task: Task) -> dict[str, Any]:
    options = paper_options(task.experiment.settings, "projected-sgd")
    return options | {"method": "projected-sgd"}


def _cared_for_options(task: Task) -> dict[str, Any]:
    """One projection's own base step and schedule, for Projected SGD."""
    own = {"base": "adam", "lr": default_lr(task.problem), "decay": "cosine"}
    return {"method": "projected-sgd"} | own


def _given(method: str, **options: Any) -> Options:  # noqa: ANN401 - of any method
    return lambda _: {"method": method} | options


def _plain(method: str) -> Contestant:
    return Contestant(method, "its defaults", _solving(_given(method)))


def _with_adam(method: str) -> Contestant:
    return Contestant(
        f"{method}, adam", "base adam", _solving(_given(method, base="adam"))
    )


def _too_large(experiment: Experiment) -> str | None:
    size = count_parameters(experiment.model)
    if size <= CONSTANTS.most_parameters:
        return None
    return f"{size:,} parameters are more than {CONSTANTS.most_parameters:,}"


def _extrapolate(task: Task, *, projector: ProjectorLike) -> Outcome:
    few = min(EXTRAPOLATED_FROM, task.steps)
    slower = {"steps": few, "projector": projector}
    found = _solve(task, options=lambda task: _rival_options(task) | slower)
    return replace(
        found,
        objective=None,
        seconds=found.seconds * task.steps / max(1, found.updates),
        note=f"extrapolated from {found.updates} updates",
    )
