"""``oneproj.solve``: iterate, select, project once, certify."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from oneproj import distributed
from oneproj.arguments import plain
from oneproj.certificates.certify import certify_run
from oneproj.certificates.feasibility import ball_excess
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.methods import choose_method
from oneproj.methods.base import check_anchor_size, read_options
from oneproj.methods.context import prepare
from oneproj.problem.autograd import borrowing_gradients, fresh_casts
from oneproj.problem.problem import Problem, check_problem, problem_facts
from oneproj.projection.project import (
    OnFailure,
    ProjectorLike,
    check_on_failure,
    raise_if_infeasible,
)
from oneproj.results import Projection, Solution, Status
from oneproj.theory import Schedule
from oneproj.theory.schedules import check_schedule
from oneproj.training import diagnostics
from oneproj.training.callbacks import Callback, Callbacks
from oneproj.training.checkpoints import Checkpoint, Files, Location, read_checkpoint
from oneproj.training.loop import End, Loop, warn_of_end
from oneproj.training.run import History, Run
from oneproj.vectors.arithmetic import norm

CALL = "oneproj.solve"  # in messages about the ranks of a process group


@dataclass(frozen=True)
class Settings:
    """What ``solve`` was asked for, as far as it determines the updates and the answer.

    Checked, compared between ranks, described in ``Solution.settings``, and part of the
    outline in a checkpoint. The fields are arguments of ``solve``; ``saved`` says
    whether there is a checkpoint: of files each rank may have its own.
    """

    method: str
    steps: int | None
    seed: int
    schedule: Schedule | None
    projector: ProjectorLike
    oracle: str
    batch_size: int | None
    anchor_size: int | None
    on_failure: OnFailure
    saved: bool
    options: Mapping[str, Any]

    def facts(
        self, problem: Problem, seconds: float | None
    ) -> dict[str, distributed.Fact]:
        """What all ranks have to agree on; nothing where there is one rank.

        Raises:
            InvalidProblemError: An argument does not fit. Or there is a budget of time,
                which each rank would measure by a clock of its own.
        """
        check_problem(problem)
        check_on_failure(self.on_failure)
        check_schedule(self.schedule)
        if not distributed.compares_ranks():
            return {}
        if seconds is not None:
            message = (
                f"seconds={seconds} cannot be given in a process group with more than "
                "one rank: each rank has its own clock, and they would stop at "
                "different updates. Give steps instead."
            )
            raise InvalidProblemError(message)
        own = {**vars(self), "schedule": repr(self.schedule), **self.options}
        del own["options"]
        return distributed.setting_facts(own) | problem_facts(problem)

    def begin(self, problem: Problem) -> Run:
        """A run of the method before its first update.

        Raises:
            InvalidProblemError: An argument does not fit; the message names it.
        """
        own, seed = vars(self).copy(), plain(self.seed)
        for name in ("method", "on_failure", "options"):
            del own[name]
        context = prepare(problem, **own | {"seed": seed})
        chosen = choose_method(self.method)
        arguments = inspect.getfullargspec(solve).kwonlyargs
        options = read_options(chosen, self.options, self.schedule, beside=arguments)
        given = options if self.schedule is None else None  # a schedule leaves none
        check_anchor_size(chosen, self.anchor_size, self.oracle, given)
        described = {
            "method": self.method,
            "seed": seed,
            "options": given and asdict(given),
            **context.describe(),
        }
        history = History(problem.constraints, context.steps)
        return Run(context, chosen(context, options), history, described)


def solve(
    problem: Problem,
    *,
    method: str = "one-projection",
    steps: int | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
    projector: ProjectorLike = "auto",
    oracle: str = "auto",
    batch_size: int | None = None,
    anchor_size: int | None = None,
    progress: bool | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    seconds: float | None = None,
    checkpoint: Checkpoint | Location | None = None,
    checkpoint_every: int | None = None,
    resume: Location | bool | None = None,
    on_failure: OnFailure = "raise",
    **options: Any,  # noqa: ANN401 - each method declares and checks its own
) -> Solution:
    """Solve a problem; its parameters hold the answer afterwards, in place.

    Their ``.grad`` is restored, however this call ends.

    Args:
        problem: What to minimise, under which constraints.
        method: ``"one-projection"``; for comparison ``"projected-sgd"``,
            ``"penalty-sgd"``, ``"lagrangian"`` and ``"switching-subgradient"``;
            ``"slsqp"`` for few parameters; or ``"auto"``, which takes SLSQP where the
            problem is small enough for it and no checkpoint is asked for, and says why
            in the solution's settings.
        steps: Stochastic gradients to use, 500 unless a schedule says T * K.
        seed: Determines every random number that the run draws. Dropout and the like
            draw from torch's global generator: for the same bits, seed that as well.
        schedule: From ``oneproj.theory``; executed to the letter. Where the run or the
            certificate sees that an assumption of the theorem is false, the certificate
            withdraws the theorem and says which.
        projector: ``"closed-form"``, which takes sets only; ``"cuts"``, which takes
            any constraint; ``"auto"`` for the first of these that can; or an
            ``AbstractProjector`` of your own.
        oracle: ``"exact"`` sees the constraints on all data at every update,
            ``"minibatch"`` on a sample, ``"anchored"`` on a sample corrected by all
            data at the proximal centre; ``"auto"`` is exact for small data, else
            anchored, and the solution's settings say which. ``"slsqp"`` sees all data
            whatever the oracle and the batch size are.
        batch_size: Examples per minibatch, of the objective and each constraint; None
            for 64, but up to 256 where an update hardly takes longer for it: all data
            is in tensors of one or two dimensions, and parameters times examples are
            2.5 million at most. The solution's settings say how many. Constraints with
            up to twice as many examples, or what costs as little, are seen as a whole.
        anchor_size: Examples of a constraint that an anchor looks at; None for all or,
            where that is costly, for a sample of up to 0.4 times the examples that the
            updates between two anchors see. All data is then seen every few anchors,
            unless there is too much of it. Refused where no anchor is taken.
        progress: Show a bar; None shows it in a notebook or on a terminal.
        callbacks: One or more, each called with an ``Update`` after every update; one
            that returns True stops the run. ``update.at_center`` is True once per
            outer iteration, when it is complete. An exception in one ends the run and
            reaches you unchanged; that a log of ``oneproj.logs`` cannot be written any
            more is only warned of.
        seconds: A time budget for the updates of this call: the one that passes it is
            the last. The projection and the certificate come on top.
        checkpoint: A ``oneproj.Checkpoint``: the file that holds the whole run, how
            often it is replaced, and whether to go on from it, to the same bits as
            without the stop. The command that can be run again after a crash is
            ``solve(..., checkpoint=oneproj.Checkpoint(path))``. A path alone saves
            every 100 updates and refuses a file that exists. A file of other settings,
            of another problem, or with other values on a sample of the data is refused.
        checkpoint_every: Deprecated since 0.2.0: ``Checkpoint(every=...)``.
        resume: Deprecated since 0.2.0: ``Checkpoint(resume=...)``.
        on_failure: ``"raise"`` when the projection fails, or ``"return"`` the solution
            with its status.
        **options: Of the method: lr, prox_weight, inner_steps, strength, ...; an
            unknown one is answered with the list. The solution's settings have all.

    **A feasible start** is the answer if the run ends infeasible or with a higher
    objective: the parameters hold the start again, and so do the buffers of the
    problem's ``model``. The status is START, the certificate carries no theorem, and a
    warning says why, unless the two objectives differ by rounding only.

    **Failure.** If no feasible point is reached and the start is not one, the
    parameters hold the trained point, unprojected, since the point with the smallest
    residual can be absurdly far away. The error, or ``solution.projection``, says how
    small that residual was, and how far away; the rest of a returned solution is about
    the trained point. To go to the other one, call
    ``oneproj.project(..., on_failure="return")``.

    **Ctrl-C** stops the updates and finishes with what there is: the selected iterate
    is projected and certified, the status of the solution is INTERRUPTED, and a warning
    says so, because a loop of yours around this call goes on. To stop that as well,
    press it again within three seconds of the warning: that raises KeyboardInterrupt.
    So does Ctrl-C after the updates: in the projection, whose trained point is put
    back, or in the certificate. With a checkpoint the first Ctrl-C completes the update
    and saves the run, which can then be resumed as if nothing had happened; a second
    one does not wait.

    **Many processes.** In a process group of ``torch.distributed`` with more than one
    rank, every rank has to make this call with the same parameters, the same settings
    and all of the data: sharded data is not supported yet. The ranks are compared
    before the first update, for one more gradient of every term, and their parameters
    again at the end. ``seconds`` is refused there: each rank has its own clock.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it. Or the
            ranks of a process group differ.
        NonFiniteError: A value or gradient is NaN or inf; it names term and update.
            The parameters hold the start again if that is feasible.
        InfeasibleError: No feasible point was reached, and the start is none.
        CheckpointError: A checkpoint is missing, damaged, or that of another run, or
            cannot be written when the run begins. A disk that fills up later on is
            warned of, and the run goes on.

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
        >>> solution = oneproj.solve(problem, steps=500)
        >>> solution.feasible, solution.counts.projections
        (True, 1)
        >>> [round(x, 2) for x in w.tolist()]       # the nearest point of the ball
        [0.6, 0.8]
    """
    settings = Settings(
        method=method,
        steps=steps,
        seed=seed,
        schedule=schedule,
        projector=projector,
        oracle=oracle,
        batch_size=batch_size,
        anchor_size=anchor_size,
        on_failure=on_failure,
        saved=checkpoint is not None or bool(resume),
        options=options,
    )
    with distributed.agreeing(CALL) as facts:
        facts.update(settings.facts(problem, seconds))
    began, length = time.perf_counter(), norm(problem.parameters)
    files, calls = Files.of(checkpoint, checkpoint_every, resume), Callbacks(callbacks)
    loop = Loop(calls, files, progress=progress, seconds=seconds)
    lent = borrowing_gradients(problem.parameters)
    in_step = distributed.staying_in_step(CALL, problem.parameters)
    with fresh_casts(), lent, in_step as ending:
        run = settings.begin(problem)
        if facts:  # to compare the ranks took a gradient of each constraint
            run.setting.counts.constraint_gradients += len(problem.constraints)
            run.setting.counts.constraint_passes += len(problem.constraints)
        done = 0
        if files.source is None:
            run.start.keep_if_feasible(problem, run.setting.counts)
        else:
            done = run.load_state_dict(read_checkpoint(files.source))
        with calls.at_work(), _start_after_overflow(run):
            end, stopped = loop.run(run, done), time.monotonic()
        trained = run.history.seconds_before + time.perf_counter() - began
        with diagnostics.explained(problem, length):
            solution = _finish(run, end, on_failure, trained)
        update = int(max(run.history.columns["update"], default=0))
        ending["the last update"] = distributed.Fact(str(update), "end")
    if solution.status.ok:
        kept = solution.status is Status.START
        warn_of_end(end, stopped, update, run.setting.steps, kept)
    return solution


@contextmanager
def _start_after_overflow(run: Run) -> Iterator[None]:
    """Leave a feasible start behind where a value of the run is not finite."""
    try:
        yield
    except NonFiniteError as error:
        if run.start.objective is not None:
            run.start.exchange(run.setting.problem)
            error.add_note("The parameters hold the start again, which is feasible.")
        raise


def _finish(run: Run, end: End, on_failure: OnFailure, trained: float) -> Solution:
    """Select and project once, return to a better start, and certify."""
    context, problem = run.setting, run.setting.problem
    check_problem(problem)  # a callback may have frozen a parameter, or replaced it
    began = time.perf_counter()
    projection = _verified(run.method.finish(), problem)
    projected, remark = time.perf_counter(), ""
    residuals, status = projection.residuals, projection.status
    if not status.ok:
        context.undo()
    objective = problem.objective.value() if status.ok else math.inf
    kept = _return_to_start(run, projection, objective)
    if kept is not None:
        status, objective, residuals = Status.START, *kept
    elif status.ok:
        status = end.status
        if context.unprojected:
            before = context.unprojected
            remark = diagnostics.far_from_feasible(
                projection, problem.constraints, before
            )
    else:
        if on_failure == "raise":
            raise_if_infeasible(projection)
        objective, residuals = problem.objective.value(), problem.residuals()
    # The guarantee is that of a complete run. No gradient mapping: it takes another
    # projection, and there is one.
    executed = context.schedule if status is Status.FEASIBLE else None
    seen = run.method.seen
    certificate = certify_run(problem, seen, schedule=executed, smooth=False)
    planned = end is End.PLANNED
    diagnostics.warn_of_record(run, objective, certificate.multipliers, planned=planned)
    return Solution(
        status=status,
        objective=objective,
        residuals=residuals,
        certificate=certificate,
        counts=context.counts,
        projection=projection,
        history=run.history.columns,
        seconds={
            "train": trained,
            "project": projected - began,
            "certify": time.perf_counter() - projected,
        },
        settings={**run.settings, **run.method.describe()},
        remark=remark,
    )


def _return_to_start(
    run: Run, projection: Projection, objective: float
) -> tuple[float, dict[str, float]] | None:
    """Go back to a feasible start if the run ended worse.

    Args:
        run: That has ended.
        projection: That was made at its end.
        objective: After it, on all data; infinite if that point is infeasible.

    Returns:
        Objective and residuals of the start; None where the parameters stay.
    """
    problem, start = run.setting.problem, run.start
    if start.objective is None or objective <= start.objective:
        return None
    start.exchange(problem)
    residuals = problem.residuals()
    if any(residual > 0 for residual in residuals.values()):
        start.exchange(problem)  # a random constraint was met by chance
        return None
    diagnostics.warn_of_start(run, projection, objective)
    return start.objective, residuals


def _verified(projection: Projection, problem: Problem) -> Projection:
    """The projector's report, judged by the residuals and the ball, not by itself."""
    residuals = problem.residuals()
    feasible = all(residual <= 0 for residual in residuals.values())
    outside = ball_excess(problem)
    if feasible and outside > 0:
        message = (
            f"The answer lies {outside:.3g} outside the safeguard ball of radius "
            f"{problem.radius:.3g}: the nearest feasible point is not in it. Choose a "
            "ball that holds the feasible set, as the theorems assume."
        )
        warn(message)
    status = Status.FEASIBLE
    if not feasible:
        status = Status.INFEASIBLE if projection.status.ok else projection.status
    return replace(projection, status=status, residuals=residuals)
