"""Minimise a strongly convex function over convex constraints, with a proof.

The engine behind the Moreau residual and the penalty residual:

    ``Q = argmin H(y)  subject to  c_j(y) <= 0,  |y - center| <= radius``

with H m-strongly convex, possibly nonsmooth, and c_j convex. It is evaluated only
inside the ball, where the assumptions speak of it.

**What is rigorous.** Let y be feasible and let the cuts prove, for every feasible u,
``H(u) >= H(y) - lift + <r, u - y> + (m/2)|u - y|^2`` (``minorants.Model``). Take u = Q
and add ``H(y) >= H(Q) + (m/2)|y - Q|^2``, which holds because Q minimises over a convex
set that contains y. Then ``m D^2 <= lift + |r| D`` for ``D = |y - Q|``, that is

    ``|y - Q| <= (|r| + sqrt(|r|^2 + 4 m lift)) / (2m)``.

No multiplier, Lipschitz constant or tolerance enters, only the claim that m, H and c_j
are as stated. It needs a feasible y. The model's minimiser may violate a constraint by
some e > 0; it is then pulled towards a point p with c(p) <= -s < 0 by the fraction
``e / (e + s)``, which is enough by convexity. Where to look next is a matter of speed,
not of truth: in few dimensions scipy's SQP suggests a first point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from oneproj.certificates.feasibility import doubled, outward
from oneproj.certificates.subproblem import (
    SQP_DIMENSION,
    Cut,
    Evaluation,
    Minorants,
    Model,
    suggest,
)
from oneproj.problem.problem import Problem
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    dimension,
    distance,
    norm,
    project_ball_,
    rounding_unit,
)

BALL, OBJECTIVE = "\0ball", "\0objective"
"""Labels of cuts that belong to no constraint; a name does not begin like this."""
MAX_ITERATIONS = 300
RELATIVE_TARGET = 1e-8
ABSOLUTE_TARGET = 1e-10
PATIENCE = 10
"""Model steps without any progress after which rounding has the last word."""
OVERSHOOT = 1e-3
"""How much farther than needed an infeasible point is pulled inside."""
PULLS = 5

Oracle = Callable[[list[Tensor]], Evaluation]
"""Evaluates at the point that it is given and that the parameters hold."""
Enough = Callable[[float, float], bool]
"""Whether an upper and a lower bound on min H suffice."""


@dataclass(frozen=True)
class Task:
    """What to minimise: the oracle, its strong convexity, the parameters, the ball."""

    oracle: Oracle
    strong_convexity: float
    parameters: Vector
    origin: list[Tensor]
    radius: float = math.inf
    center: list[Tensor] | None = None

    @classmethod
    def inside_ball(
        cls, problem: Problem, origin: list[Tensor], m: float, oracle: Oracle
    ) -> Task:
        """The task over the problem's parameters, in its ball, seen from an origin."""
        center = None if problem.center is None else doubled(problem.center)
        return cls(oracle, m, problem.parameters, origin, problem.radius, center)


@dataclass(frozen=True)
class Minimum:
    """A feasible point and how far from the minimiser it can be."""

    best: Evaluation
    error: float
    """``|best.point - Q|`` is at most this."""
    lower: float
    """A lower bound on min H."""
    weights: dict[str, float]
    """The weight of every label in the proof: convex weights and multipliers."""
    evaluations: int
    broken: str | None = None
    """The label of the function that is not as convex as claimed, if one showed."""


def minimise(
    task: Task,
    anchor: Vector,
    *,
    max_iterations: int = MAX_ITERATIONS,
    enough: Enough = lambda upper, lower: False,  # noqa: ARG005
    seed: bool = True,
) -> Minimum:
    """Minimise, starting at a feasible anchor; the parameters are left anywhere.

    Args:
        task: The problem; the caller restores its parameters.
        anchor: A point of the ball that satisfies the constraints, best strictly.
        max_iterations: Model steps; the error says honestly what they achieved.
        enough: Ends early once the bounds on min H suffice.
        seed: Whether to ask the SQP for a first point (in few dimensions).
    """
    search = _Search(task)
    search.look(anchor)
    search.look(task.origin)
    if seed and dimension(task.parameters) <= SQP_DIMENSION:
        ball = task.radius, task.center
        search.look(suggest(search.evaluate, search.best, ball, search.eps))
    result, waited = search.judge(), 0
    for _ in range(max_iterations):
        if waited >= PATIENCE or search.finished(result.error):
            break
        if enough(search.best.value, result.lower):
            break
        search.advance()
        now = search.judge()
        waited = 0 if now.error < result.error else waited + 1
        result = now if now.error < result.error else result
    return replace(result, evaluations=search.evaluations, broken=search.broken)


class _Search:
    """The evaluations so far: their cuts, the best point, the most interior one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.eps = rounding_unit(task.parameters)
        self.minorants = Minorants(task.origin, task.strong_convexity, self.eps)
        self.evaluations = 0
        self.best: Evaluation
        self.latest: Evaluation
        self.judged: Evaluation
        self.deepest: Evaluation
        self.model: Model
        self.error = math.inf
        self.broken: str | None = None

    def evaluate(self, point: Vector) -> Evaluation:
        """Move the point into the ball, write it to the parameters, and look."""
        task, y = self.task, doubled(point)
        if outward(y, task.center)[0] > task.radius:
            # A hair inside, so that rounding to the parameters' dtype stays inside.
            project_ball_(y, task.radius * (1 - 4 * self.eps), task.center)
        assign(task.parameters, y)
        self.evaluations += 1
        return task.oracle(doubled(task.parameters))

    def look(self, point: Vector) -> None:
        """Evaluate, keep the cuts, and pull the point inside if it is infeasible."""
        seen = self._record(self.evaluate(point))
        for k in range(PULLS):
            if seen.worst <= 0:
                return
            depth = seen.worst - self.deepest.worst
            fraction = min(1.0, (1 + OVERSHOOT * 8**k) * seen.worst / depth)
            pair = [seen.point, self.deepest.point]
            pulled = self._record(
                self.evaluate(combine([1 - fraction, fraction], pair))
            )
            if pulled.worst <= 0:
                return

    def _record(self, seen: Evaluation) -> Evaluation:
        if not self.evaluations > 1:
            self.best = self.deepest = self.latest = self.judged = seen
        if seen.worst <= 0:
            self.latest = seen
            self.best = seen if seen.value < self.best.value else self.best
        if seen.worst < self.deepest.worst:
            self.deepest = seen
        for piece in seen.pieces:
            self.minorants.add_piece(piece, seen)
        # A cut that is slack all over the ball in which the minimiser lies is no use.
        near = self.error + distance(seen.point, self.judged.point)
        for cut in seen.constraints:
            if math.isinf(near) or cut.value + near * norm(cut.gradient) >= 0:
                self.minorants.add_constraint(cut, seen)
        return seen

    def advance(self) -> None:
        """Look at the minimiser of the model, with a cut of the ball if it is out."""
        y, task = self.model.point, self.task
        length, normal = outward(y, task.center)
        if length > task.radius:
            cut = Cut(length - task.radius, normal, BALL, length + norm(y))
            self.minorants.add_constraint(cut, Evaluation(y, ()))
        self.look(y)

    def judge(self) -> Minimum:
        """Bound the distance to the minimiser from the best feasible point."""
        result = self._judge(self.best)
        # Of points whose values agree to rounding the smallest is a matter of luck.
        tie = 8 * self.eps * abs(self.best.value)
        if self.latest is not self.best and self.latest.value - self.best.value <= tie:
            other = self._judge(self.latest)
            result = other if other.error < result.error else result
        return result

    def _judge(self, reference: Evaluation) -> Minimum:
        model, m = self.minorants.solve(reference), self.task.strong_convexity
        r, lift = model.residual, model.lift
        error = (r + math.sqrt(r * r + 4.0 * m * lift)) / (2.0 * m)
        self.broken = self.broken or model.broken
        if reference is self.best or error < self.error:
            self.model, self.error, self.judged = model, error, reference
        return Minimum(
            best=reference,
            error=error,
            lower=reference.value - lift - r * r / (2.0 * m),
            weights=model.weights,
            evaluations=self.evaluations,
        )

    def finished(self, error: float) -> bool:
        """Whether the target is met, or rounding leaves nothing to gain."""
        task, m = self.task, self.task.strong_convexity
        scale = task.radius if math.isfinite(task.radius) else 1.0 + norm(task.origin)
        target = RELATIVE_TARGET * distance(self.best.point, task.origin)
        floor = 2.0 * math.sqrt(self.model.noise / m)
        return error <= max(target + ABSOLUTE_TARGET * scale, floor)
