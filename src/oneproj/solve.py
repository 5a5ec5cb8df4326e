"""``oneproj.solve``: iterate, select, project once, certify."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from oneproj.certificates.certify import certify
from oneproj.certificates.feasibility import ball_excess
from oneproj.errors import InfeasibleError, NonFiniteError, OneprojWarning
from oneproj.history import History, Stopwatch
from oneproj.methods import choose_method
from oneproj.methods.base import AbstractMethod, read_options
from oneproj.methods.setting import prepare
from oneproj.problem import Problem
from oneproj.progress import progress_bar
from oneproj.projection.project import (
    OnFailure,
    ProjectorLike,
    check_on_failure,
    raise_if_infeasible,
)
from oneproj.results import Projection, Solution, Status, Update
from oneproj.theory import Schedule

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
    anchor_size: int | None = None,
    progress: bool | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    on_failure: OnFailure = "raise",
    **options: Any,  # noqa: ANN401 - each method declares and checks its own
) -> Solution:
    """Solve a problem; its parameters hold the answer afterwards, in place.

    Args:
        problem: What to minimise, under which constraints.
        method: ``"one-projection"``; its rivals ``"projected-sgd"``, ``"penalty-sgd"``,
            ``"lagrangian"`` and ``"switching-subgradient"``; ``"slsqp"`` for few
            parameters; or ``"auto"``, which takes SLSQP where the problem is small
            enough for it, and says why in the solution's settings.
        steps: Stochastic gradients to use, 500 unless a schedule says T * K.
        seed: Determines every random number of the run.
        schedule: From ``oneproj.theory``; executed to the letter.
        projector: ``"auto"``, a name, or an ``AbstractProjector`` of your own.
        oracle: ``"exact"`` sees the constraints on all data at every update,
            ``"minibatch"`` on a sample, ``"anchored"`` on a sample corrected by all
            data at the proximal centre; ``"auto"`` is exact for small data, else
            anchored, and the solution's settings say which.
        batch_size: Examples per minibatch, of the objective and each constraint.
        anchor_size: Examples that an anchor looks at; None for all, or for as many as
            take no longer than the updates between two anchors.
        progress: Show a bar; None shows it when a terminal is watching.
        callbacks: One or more, each called with an ``Update`` after every update; one
            that returns True stops the run.
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
        >>> import torch, oneproj
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
    check_on_failure(on_failure)
    setting = prepare(
        problem,
        steps=steps,
        seed=seed,
        schedule=schedule,
        projector=projector,
        oracle=oracle,
        batch_size=batch_size,
        anchor_size=anchor_size,
    )
    chosen = choose_method(method)
    read = read_options(chosen, options, schedule)
    watch, history = Stopwatch(), History(problem.constraints, setting.steps)
    running = chosen(setting, read)
    stopped = _iterate(running, history, callbacks, on_failure, progress=progress)
    watch.lap("train")
    projection = _verified(running.finish(), problem)
    watch.lap("project")
    if on_failure == "raise":
        raise_if_infeasible(projection)
    # The guarantee is that of a whole run. Not the gradient mapping: it takes another
    # projection, and there is one.
    executed = None if stopped else schedule
    certificate = certify(problem, schedule=executed, smooth=False)
    watch.lap("certify")
    return Solution(
        status=_status(projection, stopped=stopped),
        objective=problem.objective.value(),
        residuals=projection.residuals,
        certificate=certificate,
        counts=setting.counts,
        projection=projection,
        history=history.columns,
        seconds=watch.laps,
        settings={"method": method, "seed": seed, "options": _options(read, schedule)}
        | setting.describe()
        | running.describe(),
    )


def _iterate(
    method: AbstractMethod,
    history: History,
    callbacks: Iterable[Callback] | Callback,
    on_failure: OnFailure,
    *,
    progress: bool | None,
) -> bool:
    """Make the updates; True if a callback, Ctrl-C or a failure ended them early."""
    steps, k = history.steps, 0
    calls = (callbacks,) if callable(callbacks) else tuple(callbacks)
    try:
        with progress_bar("training", steps, enabled=progress) as advance_to:
            for k in range(1, steps + 1):
                sight = method.update()
                update = history.add(k, sight.objective, sight.residuals)
                advance_to(k)
                wishes = [callback(update) for callback in calls]
                if any(wishes):
                    return k < steps and not method.done
                if method.done:
                    return False
    except NonFiniteError as error:
        raise NonFiniteError(error.quantity, step=k) from error
    except InfeasibleError:  # a method that projects as it goes could not
        if on_failure == "raise":
            raise
        return True
    except KeyboardInterrupt:
        return True
    finally:
        history.close()
    return False


def _verified(projection: Projection, problem: Problem) -> Projection:
    """The projector's report, judged by the residuals and the ball, not by itself."""
    residuals = problem.residuals()
    outside = ball_excess(problem)
    if outside > 0:
        message = (
            f"The answer lies {outside:.3g} outside the safeguard ball of radius "
            f"{problem.radius:.3g}: the nearest feasible point is not in it. Choose a "
            "ball that holds the feasible set, as the theorems assume."
        )
        warnings.warn(message, OneprojWarning, stacklevel=3)
    status = Status.FEASIBLE
    if any(residual > 0 for residual in residuals.values()):
        status = Status.INFEASIBLE if projection.status.ok else projection.status
    return dataclasses.replace(projection, status=status, residuals=residuals)


def _options(read: Any, schedule: Schedule | None) -> dict[str, Any] | None:  # noqa: ANN401 - a dataclass
    """The options in force; a schedule leaves none."""
    return dataclasses.asdict(read) if schedule is None else None


def _status(projection: Projection, *, stopped: bool) -> Status:
    if not projection.status.ok:
        return projection.status
    return Status.INTERRUPTED if stopped else Status.FEASIBLE
