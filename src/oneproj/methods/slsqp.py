"""``"slsqp"``: SciPy's sequential quadratic programming, on all data, for few unknowns.

Each iteration minimises a quadratic model of the Lagrangian under the linearised
constraints, then searches along that step with an L1 merit function::

    d = argmin  grad f(x).d + d.B d / 2   s.t.  c_j(x) + grad c_j(x).d <= 0
    x <- x + alpha d;   B <- its BFGS update

on exact values and gradients, in float64. The safeguard ball, if it is finite, is one
more constraint. ``update()`` is one iteration: one gradient of every term, and as many
values as the line search takes. When SciPy has converged, further updates do nothing.

Guarantee: from a start near a solution that satisfies the second-order conditions it
converges superlinearly to a KKT point (Kraft, A software package for sequential
quadratic programming, 1988; Nocedal and Wright, Numerical Optimization, chapter 18).
It assumes smooth terms. B is dense: memory grows as n^2, the time of a step as n^3, so
more than ``MOST_PARAMETERS`` are refused. For few it is hard to beat.

What is asked of SciPy is ``c_j <= -margin``. It stops at a violation below its
tolerance, which is no larger, so that its answer meets ``c_j <= 0``; where rounding
still leaves a hair, the projection at the end removes it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from oneproj.arguments import check_number
from oneproj.certificates.flat import flat, unflat
from oneproj.errors import InvalidProblemError, OneprojWarning
from oneproj.methods.base import AbstractMethod
from oneproj.methods.dialogue import dialogue
from oneproj.methods.setting import Setting
from oneproj.methods.start import move_start_into_ball
from oneproj.oracles import Sight
from oneproj.parameters import assign, difference, project_ball_
from oneproj.projection.sets import SetConstraint
from oneproj.results import Projection
from oneproj.simplex_qp import Array
from oneproj.terms import AbstractTerm

MOST_PARAMETERS = 5000
"""SciPy's work space is about 8.5 n^2 numbers: 1.7 GB at this size."""
MARGIN_POWER = 0.75
"""The least tolerance is eps^0.75 of the parameters' precision, as for projectors."""
DEEPEST = 0.25
"""The share of a set's depth that a margin may take, as for projectors."""
LIMIT_REACHED = 9
"""SciPy's status for the iteration limit, which is the user's own."""


@dataclass(frozen=True)
class SLSQPOptions:
    """Settings of SLSQP; there is no learning rate."""

    tolerance: float = 1e-9
    """Of SciPy's stopping test (``ftol``); parameters of low precision raise it."""


class Question(NamedTuple):
    """What SciPy wants to know at a point: the values, or the gradients."""

    x: Array
    differentiate: bool


class SLSQP(AbstractMethod):
    """Exact gradients, a quadratic program per update, one projection at the end."""

    name = "slsqp"
    Options = SLSQPOptions
    WITHOUT_STATE = (
        "SciPy's loop keeps its quadratic model to itself; on problems of the size "
        "that it accepts, a run takes seconds."
    )

    def __init__(self, setting: Setting, options: SLSQPOptions) -> None:
        """Refuse what is too large, and start SciPy."""
        self._setting = setting
        problem = self._problem = setting.problem
        check_size(sum(p.numel() for p in problem.parameters))
        stop = "It is that of SciPy's stopping test; 1e-9 when left out."
        check_number("tolerance", options.tolerance, stop)
        move_start_into_ball(problem.parameters, problem.radius, problem.center)
        eps = max(torch.finfo(p.dtype).eps for p in problem.parameters)
        self._tolerance = max(options.tolerance, eps**MARGIN_POWER)
        constraints = problem.constraints.values()
        self._margins = [_margin(c, self._tolerance) for c in constraints]
        self._x = flat(problem.parameters)
        self._sight = Sight(math.nan, {})
        self._result: Any = None
        bounded = bool(problem.constraints) or math.isfinite(problem.radius)
        self._talk = dialogue(
            _solver(
                self._x,
                bounded=bounded,
                tolerance=self._tolerance,
                steps=setting.steps,
            )
        )
        self._question = next(self._talk)

    @property
    def done(self) -> bool:
        """Whether SciPy has returned."""
        return self._result is not None

    def update(self) -> Sight:
        """Answer SciPy until it has a new iterate: it wants gradients a second time."""
        differentiated = False
        while not self.done:
            x, differentiate = self._question
            if differentiate:
                self._x = x
                if differentiated:
                    break
                differentiated = True
            assign(self._problem.parameters, unflat(x, self._problem.parameters))
            self._send(self._gradients() if differentiate else self._values())
        return self._sight

    def finish(self) -> Projection:
        """Take the last iterate, not a trial point, and project it."""
        self._talk.close()
        problem = self._problem
        assign(problem.parameters, unflat(self._x, problem.parameters))
        project_ball_(problem.parameters, problem.radius, problem.center)
        return self._setting.project()

    def describe(self) -> dict[str, Any]:
        """The oracle, whatever was asked for, and how SciPy ended."""
        ended = self._result.message if self.done else "stopped before it converged"
        return {"oracle": "exact", "ended": ended}

    def _send(self, answer: tuple[Any, Array]) -> None:
        try:
            self._question = self._talk.send(answer)
        except StopIteration as end:
            self._result, self._x = end.value, end.value.x
            if not (end.value.success or end.value.status == LIMIT_REACHED):
                message = (
                    f"SLSQP stopped early: {end.value.message}. The projection starts "
                    "where it stopped. Kinks, rounding and linearised constraints that "
                    "exclude each other do this; try another start, or "
                    'method="one-projection".'
                )
                warnings.warn(message, OneprojWarning, stacklevel=5)

    def _values(self) -> tuple[float, Array]:
        """The objective, and what SciPy wants to be >= 0, where the parameters are."""
        problem, counts = self._problem, self._setting.counts
        c = [constraint.value() for constraint in problem.constraints.values()]
        counts.constraint_passes += len(c)
        room = -(np.array(c) + self._margins)
        return problem.objective.value(), np.append(room, self._ball()[0])

    def _gradients(self) -> tuple[Array, Array]:
        """The gradients of both, and a record of what was seen on the way."""
        problem, counts = self._problem, self._setting.counts
        f, v = problem.objective.value_and_gradient(problem.parameters)
        counts.objective_gradients += 1
        residuals, rows = {}, []
        for name, constraint in problem.constraints.items():
            found = constraint.value_and_gradient(problem.parameters)
            residuals[name], gradient = found
            rows.append(-flat(gradient))
        counts.constraint_passes += len(rows)
        counts.constraint_gradients += len(rows)
        self._sight = Sight(f, residuals)
        return flat(v), np.array([*rows, *self._ball()[1]])

    def _ball(self) -> tuple[Array, Array]:
        """``(R^2 - |x - center|^2) / 2R >= 0``, its gradient; nothing if R is inf."""
        problem = self._problem
        R = problem.radius
        if math.isinf(R):
            return np.zeros(0), np.zeros((0, len(self._x)))
        center = problem.center or [torch.zeros_like(p) for p in problem.parameters]
        u = flat(difference(problem.parameters, center))
        room = (R - u @ u / R) / 2 - self._tolerance
        return np.array([room]), -u[np.newaxis] / R


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


def _margin(constraint: AbstractTerm, tolerance: float) -> float:
    if isinstance(constraint, SetConstraint):
        return min(tolerance, DEEPEST * constraint.members.depth(constraint.tensor))
    return tolerance


def _solver(
    x: Array, *, bounded: bool, tolerance: float, steps: int
) -> Callable[[Callable[[Question], tuple[Any, Array]]], Any]:
    """SciPy's call, with every value and gradient asked for once per point."""

    def solver(ask: Callable[[Question], tuple[Any, Array]]) -> Any:  # noqa: ANN401 - scipy's
        seen: dict[bool, tuple[bytes, tuple[Any, Array]]] = {}

        def know(x: Array, *, differentiate: bool) -> tuple[Any, Array]:
            key = x.tobytes()
            if differentiate not in seen or seen[differentiate][0] != key:
                answer = ask(Question(x.copy(), differentiate))
                seen[differentiate] = key, answer
            return seen[differentiate][1]

        room = {
            "type": "ineq",
            "fun": lambda x: know(x, differentiate=False)[1],
            "jac": lambda x: know(x, differentiate=True)[1],
        }
        return minimize(
            lambda x: know(x, differentiate=False)[0],
            x,
            jac=lambda x: know(x, differentiate=True)[0],
            constraints=room if bounded else (),
            method="SLSQP",
            options={"ftol": tolerance, "maxiter": steps},
        )

    return solver
