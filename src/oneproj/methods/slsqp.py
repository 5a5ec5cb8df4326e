"""A solver that owns its loop, answered one question at a time.

SciPy's solvers call a function whenever they like and return at the end. A method of
this library is asked for one update at a time. Between the two stands a thread that
runs the solver and nothing else: each question is handed over and answered in the
caller's thread, where Ctrl-C, exceptions and torch's modes are what they always are.

``"slsqp"``: SciPy's sequential quadratic programming, on all data, for few unknowns.

Each iteration minimises a quadratic model of the Lagrangian under the linearised
constraints, then searches along that step with an L1 merit function::

    d = argmin  grad f(x).d + d.B d / 2   s.t.  c_j(x) + grad c_j(x).d <= 0
    x <- x + alpha d;   B <- its BFGS update

on exact values and gradients, in float64, in units of the problem's own (``stages``).
The safeguard ball, if it is finite, is one more constraint. ``update()`` is one
iteration: one gradient of every term, and as many values as the line search takes; the
last one looks at where SciPy stopped. After that, further updates do nothing.

Guarantee: from a start near a solution that satisfies the second-order conditions it
converges superlinearly to a KKT point (Kraft, A software package for sequential
quadratic programming, 1988; Nocedal and Wright, Numerical Optimization, chapter 18).
It assumes smooth terms. B is dense: memory grows as n^2, the time of a step as n^3, so
more than ``MOST_PARAMETERS`` are refused. For few it is hard to beat.

What is asked of SciPy is ``c_j <= -margin``, a tolerance of the constraint's unit. It
stops at a violation below its tolerance, which is no larger, so that its answer meets
``c_j <= 0``; where rounding still leaves a hair, the projection at the end removes it.

There are no minibatches, so a model is in evaluation mode throughout: dropout is off,
and batch norm keeps the statistics that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from oneproj.arguments import check_number
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.methods.base import AbstractMethod, AbstractUpdater
from oneproj.methods.checks import move_start_into_ball
from oneproj.methods.context import Setting
from oneproj.methods.slsqp_driver import Ending, Reply, Seen, Stages, parameter_units
from oneproj.oracles import Estimate, OracleLike
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.margins import DEEPEST, MARGIN_POWER
from oneproj.results import Projection
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import (
    Array,
    assign,
    difference,
    dimension,
    flat,
    norm,
    project_ball_,
    rounding_unit,
    unflat,
)

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class _HungUp(Exception):  # noqa: N818 - it ends the solver's thread, it is no error
    """The caller wants no more questions."""


@dataclass(frozen=True)
class _End(Generic[Result]):
    """The solver has returned, or failed."""

    result: Result | None = None
    error: BaseException | None = None


def dialogue(
    solver: Callable[[Callable[[Question], Answer]], Result],
) -> Generator[Question, Answer, Result]:
    """Run ``solver(ask)``, yielding its questions; send the answers.

    Closing the generator, or losing it, ends the thread at its next question. An error
    inside the solver is raised here.

    Args:
        solver: Calls ``ask(question)`` for an answer as often as it needs, and returns.

    Example:
        >>> def adds_up(ask):
        ...     return ask("first") + ask("second")
        >>> talk = dialogue(adds_up)
        >>> next(talk), talk.send(1)
        ('first', 'second')
        >>> try:
        ...     talk.send(2)
        ... except StopIteration as end:
        ...     end.value
        3
    """
    questions: SimpleQueue[Question | _End[Result]] = SimpleQueue()
    answers: SimpleQueue[Answer | _HungUp] = SimpleQueue()

    def ask(question: Question) -> Answer:
        questions.put(question)
        answer = answers.get()
        if isinstance(answer, _HungUp):
            raise answer
        return answer

    def work() -> None:
        try:
            questions.put(_End(solver(ask)))
        except _HungUp:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            questions.put(_End(error=error))

    Thread(target=work, name="oneproj-solver", daemon=True).start()
    try:
        while not isinstance(question := questions.get(), _End):
            answers.put((yield question))
    finally:
        answers.put(_HungUp())
    if question.error is not None:
        raise question.error
    return question.result  # type: ignore[return-value]  # None only with an error


MOST_PARAMETERS = 5000
"""SciPy's work space is about 8.5 n^2 numbers: 1.7 GB at this size."""
BOTTOMLESS = 1e10
"""An objective seems to have no minimum that fell by so many times its size, or its
slope, at the first points."""
ABYSS = 1e20
"""Where it fell by so many, SciPy is turned back: squares of it must stay finite."""
LOOKS = 2
"""At so many points its size is taken: a start at a saddle, where value and slope are
zero or nearly so, says nothing about it."""


@dataclass(frozen=True)
class SLSQP(AbstractMethod):
    """SciPy's SLSQP on exact gradients, and one projection; it has no learning rate.

    Args:
        tolerance: Of SciPy's stopping test (``ftol``), relative to the size of the
            gradients; parameters of low precision raise it.

    Example:
        >>> import oneproj
        >>> oneproj.methods.SLSQP().tolerance
        1e-10
    """

    name = "slsqp"

    tolerance: float = 1e-10

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Its updates use no minibatches of the constraints."""
        del oracle, scheduled
        return False

    def begin(self, setting: Setting) -> SLSQPUpdater:
        """Start a run."""
        return SLSQPUpdater(setting, self)


class SLSQPUpdater(AbstractUpdater):
    """Exact gradients, a quadratic program per update, one projection at the end."""

    WITHOUT_STATE = (
        "SLSQP is SciPy's loop, which keeps its quadratic model to itself; on problems "
        "of the size that it accepts, a run takes seconds."
    )

    def __init__(self, setting: Setting, options: SLSQP) -> None:
        """Refuse what is too large, and start SciPy."""
        self._setting = setting
        problem = self._problem = setting.problem
        check_size(dimension(problem.parameters))
        stop = "It is that of SciPy's stopping test; 1e-10 when left out."
        check_number("tolerance", options.tolerance, stop)
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        least = rounding_unit(problem.parameters) ** MARGIN_POWER
        self._x = flat(problem.parameters)
        self._estimate = Estimate(math.nan, {})
        self._first: list[tuple[float, float]] = []
        self._ending: Ending | None = None
        self._talk = dialogue(_stages(setting, max(options.tolerance, least)))
        self._question = next(self._talk)

    @property
    def done(self) -> bool:
        """Whether SciPy has nothing left to do."""
        return self._ending is not None

    @property
    def settled(self) -> bool:
        """Whether SciPy ended where it meant to; False also before it ended."""
        return self._ending is not None and self._ending.settled

    def update(self) -> Estimate:
        """Answer SciPy's questions until it asks for the gradients at a new iterate."""
        differentiated = False
        while not self.done:
            x, differentiate, held = self._question
            if differentiate:
                self._x = x if held is None else held
                if differentiated:
                    break
            assign(self._problem.parameters, unflat(x, self._problem.parameters))
            try:
                answer = self._gradients() if differentiate else self._values()
            except NonFiniteError as error:  # a trial point may be anywhere
                self._send(error)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                # It says that the numbers are too extreme, as NaN does.
                self._send(NonFiniteError("a term where SLSQP tried a point"))
            else:
                differentiated |= differentiate
                self._send(answer)
        return self._estimate

    def finish(self) -> Projection:
        """Take the last iterate, not a trial point, and project it."""
        self._talk.close()
        problem = self._problem
        assign(problem.parameters, unflat(self._x, problem.parameters))
        project_ball_(problem.parameters, problem.radius, problem.center)
        self._warn()
        return self._setting.project()

    def describe(self) -> dict[str, Any]:
        """The oracle, whatever was asked for, and how SciPy ended."""
        ended = self._ending.message if self._ending else "stopped before it converged"
        return {"oracle": "exact", "ended": ended}

    def _send(self, answer: Reply) -> None:
        try:
            self._question = self._talk.send(answer)
        except StopIteration as end:
            self._ending, self._x = end.value, end.value.x

    def _warn(self) -> None:
        """Say what the user should know of how it ended."""
        f = self._estimate.objective
        if f < self._below(BOTTOMLESS):
            message = (
                f"The objective seems to be unbounded below: SLSQP came to {f:.3g} and "
                "nothing held it, or only a bound that is very far away. Give the "
                "problem a radius=, or a constraint that bounds what it has to bound, "
                "if that is not what you meant."
            )
        elif self._ending is not None and not self.settled:
            message = (
                f"SLSQP stopped early: {self._ending.message}. The projection starts "
                "where it stopped. Kinks, rounding and linearised constraints that "
                "exclude each other do this; try another start, or "
                'method="one-projection".'
            )
        else:
            return
        warn(message)

    def _values(self) -> Seen:
        """The objective, and what is to be <= 0, where the parameters are."""
        problem, counts = self._problem, self._setting.counts
        counts.constraint_passes += len(problem.constraints)
        c = [constraint.value() for constraint in problem.constraints.values()]
        f = problem.objective.value()
        if f < self._below(ABYSS):
            problem.objective.check_finite(-math.inf)
        return Seen(f, np.append(c, self._ball()[0]))

    def _below(self, sizes: float) -> float:
        """The value that many sizes below the start's; -inf inside a finite ball."""
        if len(self._first) < LOOKS or math.isfinite(self._problem.radius):
            return -math.inf
        return self._first[0][0] - sizes * max(size for _, size in self._first)

    def _gradients(self) -> Seen:
        """The gradients of both, and a record of what was seen on the way."""
        problem, counts = self._problem, self._setting.counts
        f, v = problem.objective.value_and_gradient(problem.parameters)
        counts.objective_gradients += 1
        residuals, rows = {}, []
        for name, constraint in problem.constraints.items():
            found = constraint.value_and_gradient(problem.parameters)
            residuals[name], gradient = found
            rows.append(flat(gradient))
        counts.constraint_passes += len(rows)
        counts.constraint_gradients += len(rows)
        size = max(abs(f), norm(v))
        if size > 0 and len(self._first) < LOOKS:
            self._first.append((f, size))
        self._estimate = Estimate(f, residuals)
        return Seen(flat(v), np.vstack([*rows, self._ball()[1]]))

    def _ball(self) -> tuple[Array, Array]:
        """``(|x - center|^2 - R^2) / 2R <= 0``, its gradient; nothing if R is inf."""
        problem = self._problem
        R = problem.radius
        if math.isinf(R):
            return np.zeros(0), np.zeros((0, len(self._x)))
        center = problem.center or [torch.zeros_like(p) for p in problem.parameters]
        u = flat(difference(problem.parameters, center))
        return np.array([(u @ u / R - R) / 2]), u[np.newaxis] / R


def check_size(n: int) -> None:
    """Refuse more parameters than a dense model of them can have.

    Example:
        >>> check_size(18)
    """
    if n <= MOST_PARAMETERS:
        return
    message = (
        f"SLSQP cannot train {n} parameters: it keeps a dense n x n quadratic model "
        f"(about {8.5 * 8 * n**2 / 1e9:.3g} GB here) and each step takes time n^3. The "
        f'limit is {MOST_PARAMETERS}. Use method="one-projection".'
    )
    raise InvalidProblemError(message)


def _stages(setting: Setting, tolerance: float) -> Stages:
    """What SciPy is to do; the ball, where there is one, is the last constraint."""
    problem = setting.problem
    constraints = problem.constraints.values()
    ball = [True] * math.isfinite(problem.radius)
    margins = [_margin(c, tolerance) for c in constraints] + [tolerance] * len(ball)
    distances = [isinstance(c, SetConstraint) for c in constraints] + ball
    return Stages(
        flat(problem.parameters),
        np.array(margins),
        np.array(distances, dtype=bool),
        tolerance,
        rounding=rounding_unit(problem.parameters),
        steps=setting.steps,
        scales=parameter_units(problem, setting.counts),
    )


def _margin(constraint: AbstractTerm, tolerance: float) -> float:
    if isinstance(constraint, SetConstraint):
        return min(tolerance, DEEPEST * constraint.members.depth(constraint.tensor))
    return tolerance
