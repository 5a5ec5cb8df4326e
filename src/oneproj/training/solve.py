"""``oneproj.solve``: iterate, select, project once, certify."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from oneproj.arguments import plain
from oneproj.certificates.certify import certify_run
from oneproj.certificates.feasibility import ball_excess
from oneproj.distributed import (
    Fact,
    agreeing,
    compares_ranks,
    setting_facts,
    staying_in_step,
)
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.methods import choose_method
from oneproj.methods.base import (
    AbstractMethod,
    AbstractUpdater,
    check_anchor_size,
    make_method,
)
from oneproj.methods.context import Setting, prepare
from oneproj.oracles import OracleLike
from oneproj.problem.autograd import borrowing_gradients, fresh_casts
from oneproj.problem.problem import Problem, check_problem, problem_facts
from oneproj.projection.project import (
    OnFailure,
    ProjectorLike,
    check_on_failure,
    raise_if_infeasible,
)
from oneproj.results import KEPT, Projection, Solution, Status
from oneproj.theory import Schedule
from oneproj.theory.schedules import check_schedule
from oneproj.training.callbacks import Callback, Callbacks
from oneproj.training.checkpoints import checkpoint_file
from oneproj.training.diagnostics import (
    explained,
    far_from_feasible,
    warn_in_hindsight,
    warn_of_kept,
)
from oneproj.training.loop import End, Loop, heed_end
from oneproj.training.run import History, Location, Run, Start, Stopwatch, resume_run
from oneproj.vectors.arithmetic import norm

CHECKPOINT_EVERY = 100
"""Updates between two checkpoints, unless the user says otherwise."""
CALL = "oneproj.solve"
"""What messages about the ranks of a process group call this."""


def solve(
    problem: Problem,
    *,
    method: str | AbstractMethod = "one-projection",
    steps: int | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
    projector: ProjectorLike = "auto",
    oracle: OracleLike = "auto",
    batch_size: int | None = None,
    anchor_size: int | None = None,
    progress: bool | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    seconds: float | None = None,
    checkpoint: Location | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    resume: Location | bool | None = None,
    on_failure: OnFailure = "raise",
    **options: Any,  # noqa: ANN401 - each method declares and checks its own
) -> Solution:
    """Solve a problem; its parameters hold the answer afterwards, in place.

    Their ``.grad`` is what it was before, however this call ends.

    Args:
        problem: What to minimise, under which constraints.
        method: ``"one-projection"``; its rivals ``"projected-sgd"``, ``"penalty-sgd"``,
            ``"lagrangian"`` and ``"switching-subgradient"``; ``"slsqp"`` for few
            parameters; or ``"auto"``, which takes SLSQP where the problem is small
            enough for it and no checkpoint is asked for, and says why in the
            solution's settings. Or an object with its options, such as
            ``oneproj.methods.ProjectedSGD(lr=0.1)``, or of a class of your own.
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
            anchored, and the solution's settings say which. Or a class of your own
            behind ``oneproj.oracles.AbstractOracle``. ``"slsqp"`` sees all data
            whatever the oracle and the batch size are.
        batch_size: Examples per minibatch, of the objective and each constraint; None
            for 64, but up to 256 where an update hardly takes longer for it: all data
            is in tensors of one or two dimensions, and parameters times examples are
            2.5 million at most. The solution's settings say how many. Constraints with
            up to twice as many examples, or what costs as little, are seen as a whole.
        anchor_size: Examples of a constraint that an anchor looks at; None for all or,
            where that is costly, for a sample that takes less time than the updates
            between two anchors. All data is then seen every few anchors, unless there
            is too much of it. Refused where no anchor is taken.
        progress: Show a bar; None shows it in a notebook or on a terminal.
        callbacks: One or more, each called with an ``Update`` after every update; one
            that returns True stops the run. ``update.at_center`` is True once per
            outer iteration, when it is complete. An exception in one ends the run and
            reaches you as it is; that a log of ``oneproj.logs`` cannot be written any
            more is only warned of.
        seconds: A time budget for the updates of this call: the one that passes it is
            the last. The projection and the certificate come on top.
        checkpoint: A file that holds the whole run, replaced in one step every
            ``checkpoint_every`` updates and when the updates end.
        checkpoint_every: Updates between two checkpoints, if there are any.
        resume: A checkpoint to go on from, to the same bits as without the stop. True
            is for the command that can be run again after a crash: it goes on from
            ``checkpoint`` if that file exists and starts otherwise. Without it, a file
            at ``checkpoint`` is not overwritten but refused. Other settings, another
            problem, or other values on a sample of the data are refused as well.
        on_failure: ``"raise"`` when the projection fails, or ``"return"`` the solution
            with its status.
        **options: Of the method: lr, prox_weight, inner_steps, strength, ...; an
            unknown one is answered with the list. The solution's settings have all.

    **A feasible start** is the answer if the run ends infeasible or with a higher
    objective: the parameters hold the start again, and so do the buffers of the
    problem's ``model``. The status is START, the certificate carries no theorem, and a
    warning says why, unless the two objectives differ by rounding only. In the same
    two cases a feasible anchor with a lower objective is the answer, if one was seen:
    the status is EARLIER. Anchors that see a sample of the data do not count.

    **Failure.** If no feasible point is reached, and none was kept, the
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
    again at the end. Ranks may name one file as their checkpoint: the first of them
    writes it. ``seconds`` is refused there: each rank has its own clock.

    Raises:
        InvalidProblemError: An argument does not fit; the message names it. Or the
            ranks of a process group differ.
        NonFiniteError: A value or gradient is NaN or inf; it names term and update.
            The parameters hold the start again if that is feasible.
        InfeasibleError: No feasible point was reached, and none was kept.
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
    alike = options | {
        "method": method,
        "steps": steps,
        "seed": seed,
        "schedule": repr(schedule),
        "projector": projector,
        "oracle": oracle,
        "batch_size": batch_size,
        "anchor_size": anchor_size,
        "on_failure": on_failure,
        # Of files only whether there is one: each rank may have its own.
        "checkpoint": checkpoint is not None,
        "resume": bool(resume),
    }
    with agreeing(CALL) as facts:
        check_problem(problem)
        check_on_failure(on_failure)
        check_schedule(schedule)
        facts.update(_facts(problem, alike, seconds))
    calls, seed = Callbacks(callbacks), plain(seed)
    loop = Loop(
        callback=calls,
        progress=progress,
        seconds=seconds,
        checkpoint=None if checkpoint is None else checkpoint_file(checkpoint),
        checkpoint_every=checkpoint_every,
    )
    setting = prepare(
        problem,
        steps=steps,
        seed=seed,
        schedule=schedule,
        projector=projector,
        oracle=oracle,
        batch_size=batch_size,
        anchor_size=anchor_size,
        saved=checkpoint is not None or bool(resume),
    )
    chosen = choose_method(method)
    mine = inspect.getfullargspec(solve).kwonlyargs
    made = make_method(chosen, options, schedule, beside=mine)
    own = made.options if schedule is None else None  # a schedule leaves no options
    check_anchor_size(made, anchor_size, oracle, scheduled=schedule is not None)
    compared = len(problem.constraints) if facts else 0  # each took a gradient
    setting.counts.constraint_gradients += compared
    setting.counts.constraint_passes += compared
    settings = {"method": made.name, "seed": seed, "options": own}
    finish = partial(_execute, resume=resume, on_failure=on_failure)
    return finish(setting, partial(made.begin, setting), settings, loop, calls)


def _execute(
    setting: Setting,
    make_method: Callable[[], AbstractUpdater],
    settings: Mapping[str, Any],
    loop: Loop,
    calls: Callbacks,
    *,
    resume: Location | bool | None,
    on_failure: OnFailure,
) -> Solution:
    """Iterate, project once, certify; the ranks of a process group stay in step."""
    problem = setting.problem
    watch, history = Stopwatch(), History(problem.constraints, setting.steps)
    lent, start = borrowing_gradients(problem.parameters), norm(problem.parameters)
    described = {**settings, **setting.describe()}
    in_step = staying_in_step(CALL, problem.parameters)
    with fresh_casts(), lent:
        with agreeing(CALL):
            run = Run(setting, make_method(), history, described)
            watch.lap("train")
            done = resume_run(run, loop.checkpoint, resume=resume)
        watch.lap("start")
        loop.begin(run, done)
        with in_step as ending:
            with calls.at_work(), _start_after_overflow(run):
                end, stopped = loop.run(run, done), time.monotonic()
            with explained(problem, start):
                solution = _complete(run, setting, end, watch, on_failure)
            update = int(max(history.columns["update"], default=0))
            ending["the last update"] = Fact(str(update), "end")
    if solution.status.ok:
        kept = solution.status if solution.status in KEPT else None
        heed_end(end, stopped, update, setting.steps, kept=kept)
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


def _facts(
    problem: Problem, settings: Mapping[str, object], seconds: float | None
) -> dict[str, Fact]:
    """What all ranks have to agree on; nothing where there is one rank.

    Raises:
        InvalidProblemError: There is a budget of time, which each rank would measure by
            a clock of its own.
    """
    if not compares_ranks():
        return {}
    if seconds is not None:
        message = (
            f"seconds={seconds} cannot be given in a process group with more than one "
            "rank: each rank has its own clock, and they would stop at different "
            "updates. Give steps instead."
        )
        raise InvalidProblemError(message)
    return setting_facts(settings) | problem_facts(problem)


def _complete(
    run: Run,
    setting: Setting,
    end: End,
    watch: Stopwatch,
    on_failure: OnFailure,
) -> Solution:
    """Project what the updates left, judge it, and put the solution together."""
    watch.lap("train", before=watch.laps["train"] + run.history.seconds_before)
    problem = setting.problem
    check_problem(problem)  # a callback may have frozen a parameter, or replaced it
    projection = _verified(run.method.finish(), problem)
    residuals, status = projection.residuals, projection.status
    watch.lap("project")
    if not status.ok:
        setting.undo()
    remark, trained = "", setting.unprojected
    objective = problem.objective.value() if status.ok else math.inf
    kept = _return_to_kept(run, projection, objective)
    if kept is not None:
        status, objective, residuals = kept
    elif status.ok:
        status = end.status
        if trained:
            remark = far_from_feasible(projection, problem.constraints, trained)
    else:
        if on_failure == "raise":
            raise_if_infeasible(projection)
        objective, residuals = problem.objective.value(), problem.residuals()
    # The guarantee is that of a whole run. Not the gradient mapping: it takes another
    # projection, and there is one.
    planned = end is End.PLANNED
    executed = setting.schedule if status is Status.FEASIBLE else None
    seen = run.method.seen
    certificate = certify_run(problem, seen, schedule=executed, smooth=False)
    warn_in_hindsight(run, objective, certificate.multipliers, planned=planned)
    watch.lap("certify")
    return Solution(
        status=status,
        objective=objective,
        residuals=residuals,
        certificate=certificate,
        counts=setting.counts,
        projection=projection,
        history=run.history.columns,
        seconds=watch.laps,
        settings={**run.settings, **run.method.describe()},
        remark=remark,
    )


def _return_to_kept(
    run: Run, projection: Projection, objective: float
) -> tuple[Status, float, dict[str, float]] | None:
    """Go back to the best feasible point that was kept if the run ended worse.

    That is the start or an anchor. Only where the run ended infeasible, or worse than
    the start, the anchor is judged on all data: that is a pass per constraint.

    Args:
        run: That has ended.
        projection: That was made at its end.
        objective: After it, on all data; infinite if that point is infeasible.

    Returns:
        Status, objective and residuals of that point; None where the parameters stay.
    """
    setting, start, best = run.setting, run.start, run.setting.best_anchor
    problem = setting.problem
    least = math.inf if start.objective is None else start.objective
    if objective <= least and objective < math.inf:
        return None
    anchor = Start(None, best.parameters, best.buffers)
    if best.objective is not None:
        anchor.judge(problem, setting.counts)
    points = [(Status.START, start), (Status.EARLIER, anchor)]
    judged = [(p.objective, s, p) for s, p in points if p.objective is not None]
    for value, status, point in sorted(judged, key=lambda each: each[0]):
        if value >= objective:
            break
        point.exchange(problem)
        residuals = problem.residuals()
        if all(residual <= 0 for residual in residuals.values()):
            warn_of_kept(run, projection, objective, status, value)
            return status, value, residuals
        point.exchange(problem)  # a random constraint was met by chance
    return None


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
