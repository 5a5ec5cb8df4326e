"""``oneproj.solve``: iterate, select, project once, certify."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from oneproj import distributed
from oneproj.arguments import check_flag, plain
from oneproj.certificates.certify import certify_run
from oneproj.certificates.kkt import ball_excess, feasibility
from oneproj.defaults import Defaults
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.methods import METHODS, Auto, diagnostics
from oneproj.methods.auto import recommend
from oneproj.methods.base import (
    AbstractMethod,
    AbstractUpdater,
    check_anchor_size,
    check_returned,
    make_method,
    prepare,
)
from oneproj.oracles import OracleLike
from oneproj.problem.autograd import borrowing_gradients, fresh_casts
from oneproj.problem.problem import Problem, check_problem, problem_facts
from oneproj.progress import progress_line
from oneproj.projection.project import (
    OnFailure,
    ProjectorLike,
    check_on_failure,
    raise_if_infeasible,
    reporting,
)
from oneproj.results import (
    KEPT,
    Certificate,
    Measure,
    Projection,
    Solution,
    Status,
)
from oneproj.theory import Schedule
from oneproj.theory.schedules import check_schedule
from oneproj.training.checkpoints import (
    Checkpoint,
    Files,
    Location,
    read_checkpoint,
    resumed_from,
)
from oneproj.training.loop import Callback, Callbacks, End, Loop, warn_of_end
from oneproj.training.run import History, Run, Start
from oneproj.vectors.arithmetic import norm

CERTIFIES = "It says whether to measure how near to a KKT point the answer is."
CALL = "oneproj.solve"  # in messages about the ranks of a process group


@dataclass(frozen=True)
class Settings:
    """What ``solve`` was asked for, as far as it determines the updates and the answer.

    Checked, compared between ranks, described in ``Solution.settings``, and part of the
    outline in a checkpoint. The fields are arguments of ``solve``; ``saved`` says
    whether there is a checkpoint: of files each rank may have its own.
    """

    method: str | AbstractMethod
    steps: int | None
    seed: int
    schedule: Schedule | None
    projector: ProjectorLike
    oracle: OracleLike
    batch_size: int | None
    anchor_size: int | None
    on_failure: OnFailure
    certify: bool
    defaults: Defaults
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
        check_flag("certify", self.certify, CERTIFIES)
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
        texts = {
            "schedule": repr(self.schedule),
            "method": repr(self.method),
            "oracle": getattr(self.oracle, "name", self.oracle),
            "defaults": repr(self.defaults),
        }
        arguments = {**vars(self), **texts, **self.options}
        del arguments["options"]
        return distributed.setting_facts(arguments) | problem_facts(problem)

    def begin(self, problem: Problem) -> Run:
        """A run of the method before its first update.

        Raises:
            InvalidProblemError: An argument does not fit; the message names it.
        """
        given, seed = vars(self).copy(), plain(self.seed)
        for name in ("method", "on_failure", "certify", "options"):
            del given[name]
        context = prepare(problem, **given | {"seed": seed})
        arguments = inspect.getfullargspec(solve).kwonlyargs
        chosen, scheduled = _choose_method(self.method), self.schedule is not None
        method = make_method(chosen, self.options, self.schedule, beside=arguments)
        check_anchor_size(method, self.anchor_size, self.oracle, scheduled=scheduled)
        why = {}
        if isinstance(method, Auto):
            method, why["why"] = recommend(context)
        described = {
            "method": method.name,
            "seed": seed,
            "options": None if scheduled else method.options,
            **why,
            **context.describe(),
        }
        history = History(problem.constraints, context.steps)
        updater = method.begin(context)
        advice = "It holds the state of one run; see oneproj.methods.AbstractUpdater."
        begin = f"begin() of the method {method.name!r}"
        check_returned(updater, AbstractUpdater, begin, advice)
        return Run(context, updater, history, described)


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
    certify: bool = True,
    progress: bool | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    seconds: float | None = None,
    checkpoint: Checkpoint | Location | None = None,
    checkpoint_every: int | None = None,
    resume: Location | bool | None = None,
    on_failure: OnFailure = "raise",
    defaults: Defaults | None = None,
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
            in the solution's settings. Or an object with its options, such as
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
            ``"minibatch"`` on a sample, ``"anchored"`` on a sample whose value all
            data at the proximal centre corrects; ``"auto"`` is exact for small data,
            minibatch for a model with dropout or batch norm in training mode, else
            anchored; the solution's settings say which. Or a class of your own behind
            ``oneproj.oracles.AbstractOracle``. ``"slsqp"`` sees all data whatever the
            oracle and the batch size are.
        batch_size: Examples per minibatch, of the objective and each constraint; None
            for 128, but up to 1,024 where an update hardly takes longer for it: all
            data is in tensors of one or two dimensions, and parameters times examples
            are 10 million at most. The solution's settings say how many. Constraints
            with up to twice as many examples are seen as a whole.
        anchor_size: Examples of a constraint that an anchor evaluates; None for all or,
            where that is costly, for a sample of up to 0.4 times the examples that the
            updates between two anchors see. All data is then seen every few anchors,
            unless there is too much of it. Refused where no anchor is taken.
        certify: Whether to measure how good the answer is: the KKT residual and its
            multipliers take a gradient of every term on all data, and a schedule's
            theorem more. Without, the certificate says that the answer is feasible, in
            float64 as well, and nothing else.
        progress: Show a bar, and what happens after training once that takes long; None
            does so in a notebook or on a terminal.
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
            of another problem, or with other values on a sample of the data is refused,
            and so is one that another process is writing (not on Windows, nor on disks
            without locks: two runs would overwrite each other's updates there).
        checkpoint_every: Deprecated since 0.2.0: ``Checkpoint(every=...)``.
        resume: Deprecated since 0.2.0: ``Checkpoint(resume=...)``.
        on_failure: ``"raise"`` when the projection fails, or ``"return"`` the solution
            with its status.
        defaults: Other numbers than the library's own where an argument is left out:
            ``dataclasses.replace(oneproj.Defaults(), longest_lr=0.01)``.
        **options: Of the method: lr, prox_weight, inner_steps, strength, ...; an
            unknown one is answered with the list. The solution's settings have all.

    **A feasible start** is the answer if the run ends infeasible or with a higher
    objective: the parameters hold the start again, and so do the buffers of the
    problem's ``model``. The status is START, the certificate carries no theorem, and a
    warning says why, unless the two objectives differ by rounding only. In the same
    two cases a feasible anchor with a lower objective is the answer, if one was seen:
    the status is EARLIER. Anchors that see a sample of the data do not count. With a
    schedule the answer is x_J projected, which the theorem is about, also where the
    start was better: then the status says so. Only if that projection fails is it the
    start.

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
        RankError: Another rank of the process group has ended.

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
        certify=certify,
        defaults=Defaults() if defaults is None else defaults,
        saved=checkpoint is not None or bool(resume),
        options=options,
    )
    with distributed.agreeing(CALL) as facts:
        facts.update(settings.facts(problem, seconds))
        files = Files.of(checkpoint, checkpoint_every, resume)
        calls = Callbacks(callbacks)
        loop = Loop(calls, files, progress=progress, seconds=seconds)
    began, length = time.perf_counter(), norm(problem.parameters)
    lent = borrowing_gradients(problem.parameters)
    in_step = distributed.staying_in_step(CALL, problem.parameters)
    with fresh_casts(), lent:
        with distributed.agreeing(CALL):
            run = settings.begin(problem)
            if facts:  # to compare the ranks took a gradient of each constraint
                run.context.counts.constraint_gradients += len(problem.constraints)
                run.context.counts.constraint_passes += len(problem.constraints)
            prepared = time.perf_counter()
            done = _judge_start(run, files)
        judged = time.perf_counter() - prepared
        loop.begin(run, done)
        with in_step as ending, resumed_from(files.source):
            with closing(calls), _start_after_overflow(run):
                end, stopped = loop.run(run, done), time.monotonic()
            trained = run.history.seconds_before + time.perf_counter() - began - judged
            laps = {"start": judged, "train": trained}
            with diagnostics.explained(problem, length):
                check_problem(problem)  # a callback may have frozen a parameter
                with progress_line("finishing", enabled=progress) as say:
                    projection = _projected(run, laps, say)
                    solution = _certified(run, end, projection, settings, laps, say=say)
            update = int(max(run.history.columns["update"], default=0))
            ending["the last update"] = distributed.Fact(str(update), "end")
    if solution.status.ok:
        kept = solution.status if solution.status in KEPT else None
        planned = run.context.steps
        warn_of_end(end, stopped, update, planned, kept=kept, saved=files.target)
    return solution


def _choose_method(
    method: str | AbstractMethod,
) -> type[AbstractMethod] | AbstractMethod:
    """The method of that name, or the object itself."""
    if isinstance(method, AbstractMethod):
        return method
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]
    if isinstance(method, type) and issubclass(method, AbstractMethod):
        message = (
            f"method is the class {method.__name__}, but must be an object of it, "
            f"which holds the options: method={method.__name__}()."
        )
        raise InvalidProblemError(message)
    message = (
        f"There is no method {method!r}. Known: {', '.join(METHODS)}; or pass an "
        "object of your own class of oneproj.methods.AbstractMethod."
    )
    raise InvalidProblemError(message)


def _judge_start(run: Run, files: Files) -> int:
    """Keep a feasible start, or go on from a file; returns the updates done so far."""
    if files.source is not None:
        return run.load_state_dict(read_checkpoint(files.source))
    run.start.keep_if_feasible(run.context.problem, run.context.counts)
    return 0


@contextmanager
def _start_after_overflow(run: Run) -> Iterator[None]:
    """Leave a feasible start behind where a value of the run is not finite."""
    try:
        yield
    except NonFiniteError as error:
        if run.start.objective is not None:
            run.start.exchange(run.context.problem)
            error.add_note("The parameters hold the start again, which is feasible.")
        raise


def _projected(
    run: Run, laps: dict[str, float], say: Callable[[str], None]
) -> Projection:
    """Project the point that the method selects, and add the time it took."""
    began = time.perf_counter()
    with reporting(lambda text: say(f"projecting, {text}")):
        projection = run.method.finish()
    laps["project"] = time.perf_counter() - began
    return projection


def _certified(
    run: Run,
    end: End,
    projection: Projection,
    settings: Settings,
    laps: Mapping[str, float],
    *,
    say: Callable[[str], None],
) -> Solution:
    """Return to a better point that was kept, if there is one, and certify."""
    context, problem = run.context, run.context.problem
    began, remark = time.perf_counter(), ""
    say("judging the answer on all data")
    projection, judged = _verified(projection, problem)
    residuals, status = projection.residuals, projection.status
    objective = math.nan if status.ok else math.inf
    if not status.ok:
        context.undo()
    elif not settings.certify or _has_kept(run):
        objective = problem.objective.value()
    kept = _return_to_kept(run, projection, objective)
    if kept is not None:
        judged = None
        status, objective, residuals = kept
        if status is Status.EARLIER and context.best_anchor.moved:
            remark = "thresholds were moved there, so that the bounds on rates hold"
    elif status.ok:
        status = end.status
        remark = diagnostics.remark_on_end(
            context, projection, objective, run.start.objective
        )
    else:
        if settings.on_failure == "raise":
            raise_if_infeasible(projection)
        judged, residuals = None, problem.residuals()
        objective = problem.objective.value()
    # The guarantee is that of a complete run. No gradient mapping: it takes another
    # projection, and there is one.
    executed = context.schedule if status is Status.FEASIBLE else None
    if settings.certify:
        say("measuring how good the answer is")
        certificate = certify_run(problem, run.method.seen, executed, judged)
    else:
        certificate = Certificate((judged or feasibility(problem),), {})
    if math.isnan(objective):  # which nothing was compared with
        objective = certificate["KKT residual"].details["objective"]
    diagnostics.warn_of_record(context, run.history.columns, planned=end is End.PLANNED)
    return Solution(
        status=status,
        objective=objective,
        residuals=residuals,
        certificate=certificate,
        counts=context.counts,
        projection=projection,
        history=run.history.columns,
        seconds={**laps, "certify": time.perf_counter() - began},
        settings={**run.settings, **run.method.describe()},
        remark=remark,
    )


def _has_kept(run: Run) -> bool:
    """Whether a point was kept that a feasible end of the run may be worse than."""
    best = run.context.best_anchor
    return run.start.objective is not None or (
        best.moved and best.objective is not None
    )


def _return_to_kept(
    run: Run, projection: Projection, objective: float
) -> tuple[Status, float, dict[str, float]] | None:
    """Go back to the best feasible point that was kept if the run ended worse.

    That is the start or an anchor. Only where the run ended infeasible, or worse than
    the start or than an anchor with moved thresholds, the anchor is judged on all data:
    that is a pass per constraint. The feasible end of a schedule stays, whatever its
    objective is: the theorem is about no other point.

    Args:
        run: That has ended.
        projection: That was made at its end.
        objective: After it, on all data; infinite if that point is infeasible, and NaN
            if it is feasible and nothing was kept.

    Returns:
        Status, objective and residuals of that point; None where the parameters stay.
    """
    context, start, best = run.context, run.start, run.context.best_anchor
    scheduled = context.schedule is not None
    if projection.status.ok and (scheduled or not _has_kept(run)):
        return None
    problem = context.problem
    least = math.inf if start.objective is None else start.objective
    if best.moved and best.objective is not None:  # which is that of all data
        least = min(least, best.objective)
    if objective <= least and objective < math.inf:
        return None
    anchor = Start(None, best.parameters, best.buffers)
    if best.objective is not None:
        anchor.judge(problem, context.counts)
    points = [(Status.START, start), (Status.EARLIER, anchor)]
    judged = [(p.objective, s, p) for s, p in points if p.objective is not None]
    for value, status, point in sorted(judged, key=lambda each: each[0]):
        if value >= objective:
            break
        point.exchange(problem)
        residuals = problem.residuals()
        if all(residual <= 0 for residual in residuals.values()):
            if status is Status.EARLIER and best.moved:
                return status, value, residuals  # no sign of steps that are too long
            diagnostics.warn_of_kept(
                context,
                {**run.settings, **run.method.describe()},
                projection,
                reached=objective,
                status=status,
                kept=value,
            )
            return status, value, residuals
        point.exchange(problem)  # a random constraint was met by chance
    return None


def _verified(
    projection: Projection, problem: Problem
) -> tuple[Projection, Measure | None]:
    """The projector's report, judged by the residuals and the ball, not by itself.

    With it the measure of feasibility; None for a projection that failed.
    """
    advice = "Return what context.project() returned."
    check_returned(projection, Projection, "finish() of the method", advice)
    judged = feasibility(problem) if projection.status.ok else None
    residuals = judged.details["residuals"] if judged else problem.residuals()
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
    return replace(projection, status=status, residuals=residuals), judged
