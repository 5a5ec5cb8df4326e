"""``oneproj.solve``: iterate, select, project once, certify."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from oneproj.certificates.certify import certify
from oneproj.errors import InfeasibleError, InvalidProblemError, NonFiniteError
from oneproj.history import History
from oneproj.methods import METHODS
from oneproj.methods.base import AbstractMethod, Setting, read_options
from oneproj.oracles import ORACLES
from oneproj.problem import Problem
from oneproj.progress import progress_bar
from oneproj.projection.project import (
    OnFailure,
    ProjectorLike,
    choose_projector,
    raise_if_infeasible,
)
from oneproj.results import Counts, Projection, Solution, Status, Update
from oneproj.theory import Schedule

DEFAULT_STEPS = 500
EXACT_LIMIT = 8192
"""``oracle="auto"`` sees constraints exactly up to this many examples in all."""

Callback = Callable[[Update], bool | None]


def solve(
    problem: Problem,
    *,
    method: str = "one-projection",
    steps: int | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
    projector: ProjectorLike = "auto",
    oracle: str = "auto",
    batch_size: int = 64,
    progress: bool | None = None,
    callbacks: Iterable[Callback] = (),
    on_failure: OnFailure = "raise",
    **options: Any,  # noqa: ANN401 - each method declares and checks its own
) -> Solution:
    """Solve a problem; its parameters hold the answer afterwards, in place.

    Args:
        problem: What to minimise, under which constraints.
        method: ``"one-projection"`` or ``"projected-sgd"``.
        steps: Stochastic gradients to use, 500 unless a schedule says T * K.
        seed: Determines every random number of the run.
        schedule: From ``oneproj.theory``; executed to the letter.
        projector: ``"auto"``, a name, or an ``AbstractProjector`` of your own.
        oracle: ``"exact"`` sees the constraints on all data at every update,
            ``"minibatch"`` on a sample; ``"auto"`` is exact for small data.
        batch_size: Examples per minibatch, of the objective and each constraint.
        progress: Show a bar; None shows it when a terminal is watching.
        callbacks: Each is called with an ``Update`` after every update and may return
            True to stop.
        on_failure: ``"raise"`` when the projection fails, or ``"return"`` the solution
            with its status.
        **options: Of the method: lr, prox_weight, inner_steps, strength, ...

    Ctrl-C stops the updates and finishes with what there is: the selected iterate is
    projected and certified, and the status says that the run was stopped.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it.
        NonFiniteError: A value or gradient is NaN or inf; it names term and update.
        InfeasibleError: No feasible point was reached.

    Example:
        >>> import oneproj
        >>> w = torch.tensor([0.0, 0.0], requires_grad=True)
        >>> target = torch.tensor([3.0, 4.0])
        >>> problem = oneproj.Problem(
        ...     w,
        ...     objective=oneproj.function(lambda: (w - target).square().sum()),
        ...     constraints={"size": oneproj.sets.Ball(1.0).on(w)},
        ...     radius=10.0,
        ... )
        >>> solution = oneproj.solve(problem, steps=500, lr=0.01, strength=20.0)
        >>> solution.feasible, solution.counts.projections
        (True, 1)
        >>> [round(x, 2) for x in w.tolist()]       # the nearest point of the ball
        [0.6, 0.8]
    """
    setting = _prepare(problem, steps, seed, schedule, projector, oracle, batch_size)
    chosen = _choose_method(method)
    read = read_options(chosen, options)
    watch = _Stopwatch()
    running = chosen(setting, read)
    history = History(problem.constraints, setting.steps)
    try:
        stopped = _iterate(running, setting, history, tuple(callbacks), progress)
    except InfeasibleError:  # a method that projects as it goes could not
        if on_failure == "raise":
            raise
        stopped = True
    watch.lap("train")
    projection = running.finish()
    watch.lap("project")
    if on_failure == "raise":
        raise_if_infeasible(projection)
    certificate = certify(
        problem, schedule=schedule, projector=setting.projector, smooth=False
    )
    residuals = problem.residuals()
    watch.lap("certify")
    return Solution(
        status=_status(projection, stopped=stopped),
        objective=problem.objective.value(),
        residuals=residuals,
        certificate=certificate,
        counts=setting.counts,
        projection=projection,
        history=history.columns,
        seconds=watch.laps,
        settings=_describe(method, setting, seed, read),
    )


def _iterate(
    method: AbstractMethod,
    setting: Setting,
    history: History,
    callbacks: tuple[Callback, ...],
    progress: bool | None,  # noqa: FBT001 - passed on as it was given
) -> bool:
    """Make the updates; True if a callback or Ctrl-C ended them early."""
    k = 0
    try:
        with progress_bar("training", setting.steps, enabled=progress) as advance_to:
            for k in range(1, setting.steps + 1):
                sight = method.update()
                update = history.add(k, sight.objective, sight.residuals)
                advance_to(k)
                # A list, so that every callback runs even after one asked to stop.
                if any([callback(update) for callback in callbacks]):
                    return k < setting.steps
    except NonFiniteError as error:
        raise NonFiniteError(error.quantity, step=k) from error
    except KeyboardInterrupt:
        return True
    return False


def _prepare(
    problem: Problem,
    steps: int | None,
    seed: int,
    schedule: Schedule | None,
    projector: ProjectorLike,
    oracle: str,
    batch_size: int,
) -> Setting:
    if steps is not None and schedule is not None:
        message = (
            f"Give steps={steps} or a schedule, not both: the schedule makes "
            f"{schedule.gradient_calls} updates."
        )
        raise InvalidProblemError(message)
    if schedule is not None:
        steps = schedule.gradient_calls
    steps = DEFAULT_STEPS if steps is None else steps
    for name, value in (("steps", steps), ("batch_size", batch_size)):
        if value < 1:
            message = f"{name} must be at least 1, got {value}."
            raise InvalidProblemError(message)
    # Independent streams for sampling and selection, both fixed by the seed.
    sampling, selection = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return Setting(
        problem=problem,
        steps=steps,
        projector=choose_projector(projector, problem.constraints),
        oracle=_choose_oracle(oracle, problem, schedule),
        batch_size=batch_size,
        counts=Counts(),
        sampling=torch.Generator().manual_seed(int(sampling >> 1)),
        selection=torch.Generator().manual_seed(int(selection >> 1)),
        schedule=schedule,
    )


def _choose_oracle(oracle: str, problem: Problem, schedule: Schedule | None) -> str:
    if oracle in ORACLES:
        return oracle
    if oracle != "auto":
        known = ", ".join(("auto", *ORACLES))
        message = f"There is no oracle {oracle!r}. Known: {known}."
        raise InvalidProblemError(message)
    examples = sum(c.size or 0 for c in problem.constraints.values())
    exact = schedule is not None or examples <= EXACT_LIMIT
    return "exact" if exact else "minibatch"


def _choose_method(name: str) -> type[AbstractMethod]:
    if name in METHODS:
        return METHODS[name]
    message = f"There is no method {name!r}. Known: {', '.join(METHODS)}."
    raise InvalidProblemError(message)


def _status(projection: Projection, *, stopped: bool) -> Status:
    if not projection.status.ok:
        return Status.INFEASIBLE
    return Status.INTERRUPTED if stopped else Status.FEASIBLE


def _describe(
    method: str, setting: Setting, seed: int, options: Any  # noqa: ANN401 - a dataclass
) -> dict[str, Any]:
    return {
        "method": method,
        "steps": setting.steps,
        "seed": seed,
        "oracle": setting.oracle,
        "projector": setting.projector.name,
        "batch_size": setting.batch_size,
        "schedule": setting.schedule,
        "options": dataclasses.asdict(options),
    }


class _Stopwatch:
    """Seconds per phase, in the order in which the phases ended."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.laps[phase] = now - self._last
        self._last = now
