"""``"slsqp"``: SciPy's sequential quadratic programming on exact gradients.

Each iteration minimises a quadratic model of the Lagrangian under the linearised
constraints, then searches along that step with an L1 merit function::

    d = argmin  grad f(x).d + d.B d / 2   s.t.  c_j(x) + grad c_j(x).d <= 0
    x <- x + alpha d;   B <- its BFGS update

on all data, in float64. The safeguard ball, if it is finite, is one more constraint.
``update()`` is one iteration: one gradient of every term, and one value of every term
per trial point of the line search.

Guarantee: from a start near a solution that satisfies the second-order conditions it
converges superlinearly to a KKT point (Kraft, A software package for sequential
quadratic programming, 1988; Nocedal and Wright, Numerical Optimization, chapter 18).
It assumes smooth terms. B is dense: memory grows as n^2, the time of a step as n^3.

What is added to SciPy (ablations: ``benchmarks/NOTES.md``, section SLSQP):

- Scaling. SciPy compares changes of the objective, violations and steps with one
  tolerance, and begins with ``B = I``. So it is given ``f / |grad f|`` and
  ``c_j / |grad c_j|`` with the gradients of the point where it starts, as functions of
  ``x_k / scale_k`` (``_parameter_scales``).
- Margin. It is asked for ``c_j <= -margin``, which is at least its tolerance, so that
  its answer meets ``c_j <= 0``.
- Rejected trial points. The objective is reported as infinite where a term is not
  finite, and where a step is longer than ``max_step``: SciPy's line search then tries a
  tenth of the step.
- Restarts. SciPy starts again from where it stopped, with the scaling of that point and
  ``B = I``, until that gains nothing: scaling by the gradients of a far start is
  inaccurate, and line searches end at kinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize

from oneproj.arguments import check_number
from oneproj.errors import InvalidProblemError, NonFiniteError, warn
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.checks import move_start_into_ball
from oneproj.oracles import Estimate, OracleLike
from oneproj.problem.functions import function
from oneproj.problem.modes import evaluating
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.projection.margins import DEEPEST, MARGIN_POWER
from oneproj.results import Projection
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import (
    Array,
    assign,
    dimension,
    flat,
    norm,
    project_ball_,
    rounding_unit,
    unflat,
)


@dataclass(frozen=True)
class _Constants:
    """The numbers of this method."""

    most_parameters: int = 5000
    """Parameters that are accepted. SciPy's work space is about 8.5 n^2 numbers: 1.7 GB
    at this size."""
    max_step: float = 10.0
    """Longest step, in parameter scales, or relative to the largest parameter if that
    is more. Found by experiment: NOTES.md, section SLSQP."""
    restarts: int = 5
    """Restarts of SciPy in a run. Found by experiment: NOTES.md, section SLSQP."""
    unbounded_drop: float = 1e10
    """Fall of the objective, in units of its size at the first two iterates, after
    which it is called unbounded. A choice: no solved problem came near it."""
    first_iterates: int = 2
    """Iterates that show that size: the first may be a saddle."""
    scale_examples: int = 256
    """Examples, of all terms together, that determine the parameter scales. A choice:
    the size of a feature needs no more."""
    scale_change: float = 10.0
    """Largest change of one parameter's scale relative to another's, within one scale.
    Scales of features do not change at all; those of a network's layers do."""


CONSTANTS = _Constants()
CONVERGED, LIMIT_REACHED, NOT_FINITE = 0, 9, -1
"""Status codes of SciPy for success and for the iteration limit, and one of our own."""


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

    def begin(self, context: Context) -> SLSQPUpdater:
        """Start a run."""
        return SLSQPUpdater(context, self)


@dataclass(frozen=True)
class _Result:
    """Where SciPy stopped, what it says, and whether that is a solution."""

    x: Array
    message: str
    settled: bool


class _Point(NamedTuple):
    """A point with all values and gradients: the objective first, then constraints."""

    x: Array
    values: Array
    gradients: Array
    """One row per term."""


_Request: TypeAlias = tuple[Array, bool]
"""A point, and whether gradients of all terms are needed there, or values."""
_Reply: TypeAlias = Array | NonFiniteError
_Evaluate: TypeAlias = Callable[[_Request], _Reply]


class SLSQPUpdater(AbstractUpdater):
    """Exact gradients, a quadratic program per update, one projection at the end."""

    WITHOUT_STATE = (
        "SLSQP is SciPy's loop, which keeps its quadratic model to itself; on problems "
        "of the size that it accepts, a run takes seconds."
    )

    def __init__(self, context: Context, options: SLSQP) -> None:
        """Refuse what is too large, and start SciPy."""
        self._context = context
        problem = self._problem = context.problem
        _check_size(dimension(problem.parameters))
        stop = "It is that of SciPy's stopping test; 1e-10 when left out."
        check_number("tolerance", options.tolerance, stop)
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        self._terms = [*problem.terms, *_ball(problem)]
        self._iterate = flat(problem.parameters)
        self._estimate = Estimate(math.nan, {})
        self._first: list[tuple[float, float]] = []
        self._result: _Result | None = None
        self._solver = _in_thread(_Driver(context, self._terms[1:], options.tolerance))
        self._request = next(self._solver)

    @property
    def done(self) -> bool:
        """Whether SciPy has nothing left to do."""
        return self._result is not None

    def update(self) -> Estimate:
        """Evaluate what SciPy asks for until it needs gradients at a new iterate."""
        differentiated = False
        while not self.done:
            x, differentiate = self._request
            if differentiate:
                self._iterate = x
                if differentiated:
                    break
            assign(self._problem.parameters, unflat(x, self._problem.parameters))
            try:
                reply: _Reply = self._gradients() if differentiate else self._values()
                differentiated |= differentiate
            except NonFiniteError as error:
                reply = error
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                reply = NonFiniteError("a term where SLSQP tried a point")
            if differentiate and self._is_unbounded():
                message = "The objective seems to be unbounded below"
                self._result = _Result(x, message, settled=True)
                break
            try:
                self._request = self._solver.send(reply)
            except StopIteration as end:
                self._result, self._iterate = end.value, end.value.x
        return self._estimate

    def finish(self) -> Projection:
        """Take the last iterate, not a trial point, and project it."""
        self._solver.close()
        problem = self._problem
        assign(problem.parameters, unflat(self._iterate, problem.parameters))
        project_ball_(problem.parameters, problem.radius, problem.center)
        self._warn()
        return self._context.project()

    def describe(self) -> dict[str, Any]:
        """The oracle, whatever was asked for, and how SciPy ended."""
        ended = self._result.message if self._result else "stopped before it converged"
        return {"oracle": "exact", "ended": ended}

    def _warn(self) -> None:
        """Warn of an unbounded objective, and of an early stop."""
        if self._is_unbounded():
            message = (
                "The objective seems to be unbounded below: SLSQP came to "
                f"{self._estimate.objective:.3g} and stopped. No constraint bounds it, "
                "or only one that is very far away. Give the problem a radius=, or a "
                "constraint that bounds the parameters."
            )
            warn(message)
        elif self._result is not None and not self._result.settled:
            message = (
                f"SLSQP stopped early: {self._result.message}. The projection starts "
                "where it stopped. Kinks, rounding and linearised constraints that "
                "exclude each other do this; try another start, or "
                'method="one-projection".'
            )
            warn(message)

    def _is_unbounded(self) -> bool:
        """Whether the objective fell by far more than its size; not inside a ball."""
        if len(self._first) < CONSTANTS.first_iterates or math.isfinite(
            self._problem.radius
        ):
            return False
        fall = self._first[0][0] - self._estimate.objective
        return fall > CONSTANTS.unbounded_drop * max(size for _, size in self._first)

    def _values(self) -> Array:
        self._context.counts.constraint_passes += len(self._problem.constraints)
        return np.array([term.value() for term in self._terms])

    def _gradients(self) -> Array:
        """The gradients of all terms; the values are recorded for the history."""
        problem, counts = self._problem, self._context.counts
        pairs = [term.value_and_gradient(problem.parameters) for term in self._terms]
        counts.objective_gradients += 1
        counts.constraint_passes += len(problem.constraints)
        counts.constraint_gradients += len(problem.constraints)
        (f, v), *constraints = pairs
        size = max(abs(f), norm(v))
        if (
            size > 0 and len(self._first) < CONSTANTS.first_iterates
        ):  # a start may be a saddle
            self._first.append((f, size))
        names = zip(problem.constraints, constraints, strict=False)  # without the ball
        self._estimate = Estimate(f, {name: value for name, (value, _) in names})
        return np.vstack([flat(gradient) for _, gradient in pairs])


def _check_size(n: int) -> None:
    """Refuse more parameters than a dense model of them can have."""
    if n > CONSTANTS.most_parameters:
        message = (
            f"SLSQP cannot train {n} parameters: it keeps a dense n x n quadratic "
            f"model (about {8.5 * 8 * n**2 / 1e9:.3g} GB here) and each step takes "
            f"time n^3. The limit is {CONSTANTS.most_parameters}. Use "
            'method="one-projection".'
        )
        raise InvalidProblemError(message)


def _ball(problem: Problem) -> list[AbstractTerm]:
    """``|x - center|^2 / 2R <= R / 2``; nothing if R is infinite."""
    R = problem.radius
    if math.isinf(R):
        return []
    center = problem.center or [torch.zeros_like(p) for p in problem.parameters]

    def half_square() -> torch.Tensor:
        pairs = zip(problem.parameters, center, strict=True)
        squares = [((p - c).double() / R).square().sum() for p, c in pairs]
        return R / 2 * torch.stack(squares).sum()

    return [function(half_square, curvature="convex") <= R / 2]


# --- SciPy's loop, in a thread --------------------------------------------------------


class _Stopped(Exception):  # noqa: N818 - it ends the thread, it is no error
    """The run is over."""


def _in_thread(
    driver: Callable[[_Evaluate], _Result],
) -> Generator[_Request, _Reply, _Result]:
    """Run the driver in a thread; yield its requests, send the replies.

    SciPy owns its loop, and a method is asked for one update at a time. The thread runs
    SciPy and nothing else: terms are evaluated in the caller's thread, where Ctrl-C,
    exceptions and torch's modes work as usual. Closing the generator ends the thread.
    """
    requests: SimpleQueue[_Request | _Result | BaseException] = SimpleQueue()
    replies: SimpleQueue[_Reply | _Stopped] = SimpleQueue()

    def evaluate(request: _Request) -> _Reply:
        requests.put(request)
        reply = replies.get()
        if isinstance(reply, _Stopped):
            raise reply
        return reply

    def work() -> None:
        try:
            requests.put(driver(evaluate))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            requests.put(error)

    Thread(target=work, name="oneproj-solver", daemon=True).start()
    try:
        while isinstance(request := requests.get(), tuple):
            replies.put((yield request))
    finally:
        replies.put(_Stopped())
    if isinstance(request, BaseException):
        raise request
    return request


class _Driver:
    """Minimises f subject to ``c <= -margin`` by calls of SciPy, in the thread."""

    _evaluate: _Evaluate

    def __init__(
        self, context: Context, constraints: list[AbstractTerm], tolerance: float
    ) -> None:
        parameters = context.problem.parameters
        self._rounding = rounding_unit(parameters)
        self._tolerance = max(tolerance, self._rounding**MARGIN_POWER)
        self._steps = context.steps
        self._scales = _parameter_scales(context)
        sets = {k: c for k, c in enumerate(constraints) if isinstance(c, SetConstraint)}
        depths = [c.members.depth(c.tensor) for c in sets.values()]
        self._margins = np.full(len(constraints), self._tolerance)
        self._margins[[*sets]] = np.minimum(self._tolerance, DEEPEST * np.array(depths))
        self._is_distance = np.zeros(1 + len(constraints), dtype=bool)
        self._is_distance[[1 + k for k in sets]] = True
        self._is_distance[1 + len(context.problem.constraints) :] = True  # the ball
        none = np.zeros(0)
        self._last = self._trial = _Point(flat(parameters), none, none)
        self._without_gradient = b""
        self._error: NonFiniteError | None = None

    def __call__(self, evaluate: _Evaluate) -> _Result:
        """Call SciPy until a restart gains nothing.

        Raises:
            NonFiniteError: A term is not finite at the start, or everywhere around it.
        """
        self._evaluate = evaluate
        start = here = self._evaluate_all(self._last.x)
        message, converged, better = "", False, True
        for k in range(1 + CONSTANTS.restarts):
            end, status, new_message = self._minimize(here)
            better = self._is_better(end, here, math.sqrt(self._tolerance))
            if better or k == 0:
                here, message = end, new_message
                converged = status in (CONVERGED, LIMIT_REACHED)
            elif status != NOT_FINITE:
                here = end if self._is_better(end, here, 0.0) else here
                break
            if status == LIMIT_REACHED:
                break
        if here is start and status == NOT_FINITE and self._error is not None:
            raise self._error
        stationary = converged or (here is not start and not better)
        feasible = self._violation(here, here) <= self._tolerance**0.4
        return _Result(here.x, message, stationary and feasible)

    def _minimize(self, here: _Point) -> tuple[_Point, int, str]:
        """Call SciPy once, with the scaling of the point where it starts."""
        self._last, units = here, self._units(here)

        def point(u: Array) -> Array:
            return here.x + self._scales * u

        def values(u: Array) -> Array:
            return self._values_at(point(u)) / units

        def gradients(u: Array) -> Array:
            rows = self._point_at(point(u)).gradients
            return rows * self._scales / units[:, np.newaxis]

        try:
            found = minimize(
                lambda u: values(u)[0],
                np.zeros_like(here.x),
                jac=lambda u: gradients(u)[0],
                constraints={
                    "type": "ineq",
                    "fun": lambda u: -values(u)[1:] - self._margins,
                    "jac": lambda u: -gradients(u)[1:],
                },
                method="SLSQP",
                options={"ftol": self._tolerance, "maxiter": self._steps},
            )
            end = self._point_at(point(found.x))
        except NonFiniteError:
            self._evaluate_all(self._last.x)  # raises if a term broke for good
            return self._last, NOT_FINITE, "The next point has no finite values"
        return end, found.status, found.message

    def _evaluate_all(self, x: Array) -> _Point:
        values = self._ask(x, differentiate=False)
        return _Point(x, values, self._ask(x, differentiate=True))

    def _ask(self, x: Array, *, differentiate: bool) -> Array:
        reply = self._evaluate((x.copy(), differentiate))
        if isinstance(reply, NonFiniteError):
            self._error = reply
            raise reply
        return reply

    def _values_at(self, x: Array) -> Array:
        """The values at a trial point; an infinite objective if it is rejected."""
        for known in (self._last, self._trial):
            if np.array_equal(x, known.x):
                return known.values
        values = np.append(math.inf, self._last.values[1:])
        longest = CONSTANTS.max_step * max(1.0, self._length(self._last.x))
        is_near = self._length(x - self._last.x) <= longest
        if is_near and x.tobytes() != self._without_gradient:
            with suppress(NonFiniteError):
                values = self._ask(x, differentiate=False)
        self._trial = _Point(x.copy(), values, np.zeros(0))
        return values

    def _point_at(self, x: Array) -> _Point:
        """The values and gradients at a point, which becomes the last iterate.

        Raises:
            NonFiniteError: The point was rejected, or has no finite gradient.
        """
        if not np.array_equal(x, self._last.x):
            values = self._values_at(x)
            if math.isinf(values[0]):
                raise self._error or NonFiniteError("the step of SLSQP")
            try:
                gradients = self._ask(x, differentiate=True)
            except NonFiniteError:
                self._without_gradient = x.tobytes()
                self._trial = self._last
                raise
            self._last = _Point(x.copy(), values, gradients)
        return self._last

    def _length(self, step: Array) -> float:
        return float(np.max(np.abs(step / self._scales), initial=0.0))

    def _units(self, point: _Point) -> Array:
        """Gradient norms, but no less than the rounding of the values can resolve."""
        least = self._rounding / self._tolerance * np.abs(point.values)
        norms = np.linalg.norm(point.gradients * self._scales, axis=1)
        units = np.maximum(norms, least)
        return np.where(self._is_distance | (units == 0), 1.0, units)

    def _violation(self, point: _Point, origin: _Point) -> float:
        """The largest violation at a point, in the units of another."""
        return float(np.max((point.values / self._units(origin))[1:], initial=0.0))

    def _is_better(self, new: _Point, old: _Point, least_gain: float) -> bool:
        """Whether new is less infeasible, or as feasible and lower by that gain."""
        before, after = self._violation(old, old), self._violation(new, old)
        if before > math.sqrt(self._tolerance):
            return after < before / 2
        gain = float(old.values[0] - new.values[0]) / float(self._units(old)[0])
        return gain > least_gain and after <= max(before, self._tolerance, least_gain)


# --- scales of the parameters ---------------------------------------------------------


def _parameter_scales(context: Context) -> Array:
    """How far each parameter moves to change the examples by about their size.

    The weight of a feature in the thousands needs a scale a thousand times smaller than
    that of a ratio. With ``f_i`` and ``h_i`` the value and gradient of example i:

        ``scale_k = t / s_k``,   ``s_k^2 = mean_i h_ik^2 / (mean_i |f_i|)^2``,

    summed over the terms. t is the step along the gradient, in scales ``1 / s_k``, to
    the minimum of f if its curvature is ``mean_i h_i h_i' / mean_i |f_i|`` (least
    squares; nearly so for log-likelihoods). Then the path of SLSQP does not depend on
    the units of features and targets.

    All scales are 1 where no term has examples, and where the ratios of
    ``s_k`` change by more than ``scale_change`` after a move by one scale in each
    parameter. They do in a network, whose layers have gradients as small as the weights
    of the next layer.
    """
    parameters = context.problem.parameters
    start = flat(parameters)
    h, s = _relative_gradients(context)
    with np.errstate(all="ignore"):
        known = s > 0
        usual = math.exp(np.log(s[known]).mean()) if known.any() else math.nan
        scales: Array = 1.0 / np.where(known, s, usual)
        along = h * scales @ (g := (h * scales).mean(0))
        t = float(np.linalg.norm(g) ** 3 / np.square(along).mean())
        scales *= t if 0 < t < math.inf else usual
    if not np.isfinite(scales).all():
        return np.ones_like(start)
    try:
        assign(parameters, unflat(start + scales, parameters))
        change = _relative_gradients(context)[1][known] / s[known]
    finally:
        assign(parameters, unflat(start, parameters))
    is_steady = change.max() <= CONSTANTS.scale_change * change.min()
    return scales if is_steady else np.ones_like(start)


def _relative_gradients(context: Context) -> tuple[Array, Array]:
    """``h_i / mean_i |f_i|`` of the objective, and all ``s_k``."""
    terms = [context.problem.objective, *context.problem.constraints.values()]
    most = math.ceil(CONSTANTS.scale_examples / len(terms))
    rows = [_example_gradients(context, term, most) for term in terms]
    return rows[0], np.sqrt(sum(np.square(h).mean(0) for h in rows))


@torch.enable_grad()
def _example_gradients(context: Context, term: AbstractTerm, most: int) -> Array:
    """One row per example of a term; zeros if they cannot be had."""
    parameters, size = list(context.problem.parameters), term.size
    none = np.zeros((1, dimension(parameters)))
    if size is None:
        return none
    context.counts.objective_gradients += term is context.problem.objective
    context.counts.constraint_gradients += term is not context.problem.objective
    stride = math.ceil(size / most)
    try:
        with evaluating(context.problem.model):
            f = term.examples(torch.arange(0, size, stride, device="cpu"))
            rows = torch.autograd.grad(
                f,
                parameters,
                torch.eye(len(f), dtype=f.dtype, device=f.device),
                is_grads_batched=True,
                allow_unused=True,
            )
    except (RuntimeError, ValueError):
        return none  # some graphs cannot be differentiated example by example
    with np.errstate(all="ignore"):
        columns = [
            np.zeros((len(f), p.numel()))
            if row is None
            else flat([row]).reshape(len(f), -1)
            for row, p in zip(rows, parameters, strict=True)
        ]
        h: Array = np.hstack(columns) / np.abs(flat([f])).mean()
    return h if np.isfinite(h).all() else none
