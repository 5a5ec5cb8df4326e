"""The KKT conditions of a point: feasibility, stationarity and complementarity.

Also the gradient mapping, which needs a projection, and the helpers with which
certificates evaluate other points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from oneproj.arguments import check_number
from oneproj.certificates.tolerances import TOLERANCES as TOL
from oneproj.errors import InvalidProblemError, NonFiniteError, ProjectionFailed
from oneproj.problem.float64 import check_in_float64, warn_if_signs_differ
from oneproj.problem.problem import Constrained, Problem
from oneproj.projection.base import AbstractProjector
from oneproj.projection.margins import MARGIN_POWER
from oneproj.rates.correction import has_rates, smooth
from oneproj.results import Measure, Projection
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import (
    Vector,
    assign,
    combine,
    difference,
    distance,
    dot,
    is_finite,
    norm,
    offset,
    rounding_unit,
    snapshot,
)
from oneproj.vectors.qp import Balance, Column, GrowingCone

BALL = "\0ball"
"""The owner of the safeguard ball's normal; no name begins like this."""


@contextmanager
def borrowed(parameters: Vector) -> Iterator[list[Tensor]]:
    """Allow a block to move the parameters; restore them bit for bit, also on errors.

    Yields the point that they held, as a copy in float64: a certificate computes in
    double precision whatever the model's dtype.

    Raises:
        NonFiniteError: The point itself is not finite.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> with borrowed([w]) as x:
        ...     assign([w], [torch.zeros(2)])
        >>> w.tolist(), x[0].dtype
        ([1.0, 1.0], torch.float64)
    """
    require_finite(parameters)
    bits = snapshot(parameters)
    try:
        yield doubled(bits)
    finally:
        assign(parameters, bits)


def require_finite(parameters: Vector) -> None:
    """Refuse a point with NaN or infinite entries.

    Example:
        >>> require_finite([torch.zeros(2)])
    """
    if not is_finite(parameters):
        quantity = "a parameter of the point to be certified"
        raise NonFiniteError(quantity)


def doubled(vector: Vector) -> list[Tensor]:
    """Return a copy in float64.

    Example:
        >>> doubled([torch.ones(1)])[0].dtype
        torch.float64
    """
    return [tensor.detach().to(torch.float64, copy=True) for tensor in vector]


def outward(point: Vector, center: Vector | None) -> tuple[float, list[Tensor]]:
    """Return the distance from the ball's center, and the unit vector away from it.

    Example:
        >>> outward([torch.tensor([0.0, 2.0])], None)
        (2.0, [tensor([0., 1.])])
    """
    offset = snapshot(point) if center is None else difference(point, center)
    length = norm(offset)
    if length > 0:
        torch._foreach_div_(offset, length)
    return length, offset


def like(vector: Vector, parameters: Vector) -> list[Tensor]:
    """Return the vector in the parameters' dtypes and on their devices.

    Example:
        >>> like([torch.ones(1, dtype=torch.float64)], [torch.zeros(1)])[0].dtype
        torch.float32
    """
    return [v.detach().to(p) for v, p in zip(vector, parameters, strict=True)]


def is_on_ball(problem: Problem, point: Vector) -> bool:
    """Return whether a point lies on the safeguard ball's surface, or outside.

    Within ``4 sqrt(rounding)`` of the radius: as near as an optimiser comes.

    Example:
        >>> import oneproj
        >>> w = torch.ones(1, requires_grad=True)
        >>> is_on_ball(oneproj.Problem(w, oneproj.function(w.sum), {}, radius=1.0), [w])
        True
    """
    if math.isinf(problem.radius):
        return False
    near = 4.0 * math.sqrt(rounding_unit(problem.parameters))
    return outward(point, problem.center)[0] >= problem.radius * (1.0 - near)


def feasibility(problem: Constrained) -> Measure:
    """Return the worst residual ``max_j c_j(x)`` on all data, to be compared with 0.

    Feasible means <= 0, without a tolerance. Without constraints the value is -inf.
    Where the model computes in less than float64, the details have the residuals in
    float64 as well, or the reason why they could not be computed; if a sign differs, a
    warning names the constraint. All theorems promise a feasible output.

    **Cost.** One pass over the data of every constraint, two below float64.

    Raises:
        NonFiniteError: A constraint's value is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w.sum()),
        ...     {"size": oneproj.function(lambda: w.norm()) <= 5.0})
        >>> measure = feasibility(problem)
        >>> measure.value, measure.holds, measure.details["worst constraint"]
        (0.0, True, 'size')
    """
    # The model's own dtype comes last: a function may keep tensors between calls.
    wide = check_in_float64(problem.parameters, problem.constraints)
    residuals = problem.residuals()
    warn_if_signs_differ(residuals, wide.residuals)
    worst = max(residuals, key=lambda name: residuals[name], default=None)
    return Measure(
        "feasibility",
        -math.inf if worst is None else residuals[worst],
        bound=0.0,
        source="all constraints on all data",
        details={
            "residuals": residuals,
            "worst constraint": worst,
            "distance outside the safeguard ball": ball_excess(problem),
            "residuals in float64": wide.residuals,
            "not checked in float64": wide.reasons,
            "constraint passes": len(residuals)
            + len(wide.residuals)
            + len(wide.reasons),
        },
    )


def surrogate_measure(problem: Problem) -> list[Measure]:
    """Return the worst residual with sigmoids in place of decisions, if there are any.

    It is what an update sees slopes of. No bound applies to it: feasibility is about
    the counts.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> surrogate_measure(oneproj.Problem(w, oneproj.function(w.sum), {}))
        []
    """
    found = {
        name: smooth(c).value()
        for name, c in problem.constraints.items()
        if has_rates(c)
    }
    if not found:
        return []
    source = "sigmoids in place of decisions; the counts are what has to hold"
    details = {"residuals": found, "constraint passes": 2 * len(found)}
    worst = max(found.values())
    return [Measure("surrogate of rates", worst, source=source, details=details)]


def ball_excess(problem: Constrained) -> float:
    """Return how far the point is outside the safeguard ball beyond rounding, else 0.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> ball_excess(oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0))
        1.0
    """
    if math.isinf(problem.radius):
        return 0.0
    excess = norm(offset(problem.parameters, problem.center)) - problem.radius
    noise = 4.0 * math.sqrt(rounding_unit(problem.parameters)) * problem.radius
    return excess if excess > noise else 0.0


def ball_measure(problem: Problem) -> list[Measure]:
    """Return a row for a point outside the safeguard ball, and no row for others.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {}, radius=4.0)
        >>> [measure.holds for measure in ball_measure(problem)]
        [False]
    """
    excess = ball_excess(problem)
    if excess == 0.0:
        return []
    source = "|x - center| - radius"
    return [Measure("safeguard ball", excess, bound=0.0, source=source)]


def kkt_residual(problem: Problem, *, reach: float | None = None) -> Measure:
    """Return the KKT residual: ``|grad f + sum_j mu_j grad c_j + sum_i n_i| = |r|``.

    mu_j >= 0 belongs to a constraint that is a function, n_i to one that is a set: a
    normal of it at a point p_i near x. Whatever method found x, they minimise

        ``(t/2)|r|^2 + sum_j mu_j |c_j(x)| + sum_i <n_i, p_i - x>``

    with ``t = reach / |grad f|``. The sums are the **complementarity**. No threshold
    decides which constraints are active: one at a distance s from x that balances grad
    f alone gets the share ``1 - s / reach`` of it, from all of it at the boundary to
    nothing at the reach. This is the dual of one projected gradient step:
    ``x - t r`` is the point nearest to ``x - t grad f`` that satisfies the linearised
    constraints and lies in the sets, so r is their gradient mapping. Slack that is
    smaller than the margin of a projector, eps^0.75 of the point's length, costs
    nothing.

    **What is guaranteed.** If f, c_j and the sets are convex and x is feasible, then
    for every feasible z, whatever the multipliers,

        ``f(x) - f(z) <= |r| |x - z| + complementarity``,

    by adding up the gradient inequalities of f and c_j at x and ``<n_i, z - p_i> <=
    0``. Without convexity, points along which the residual, the complementarity and the
    violation go to 0 are approximate KKT points: where they converge, Mangasarian and
    Fromovitz's condition makes the limit a KKT point (Andreani, Haeser and Martinez, On
    sequential optimality conditions for smooth constrained optimization, Optimization
    60, 2011; with this complementarity: Andreani, Martinez and Svaiter, SIAM J. Optim.
    20, 2010). For a feasible x both are zero exactly if x is a KKT point.

    **The multiplier of a set** is ``|n_i|``: if every point within h of the set were
    allowed, the objective would fall by ``|n_i| h``, to first order. For a ball or a
    halfspace it is the multiplier of the distance. A set without interior counts as the
    exact set, not as the band around it.

    **Units.** The residual and its share of ``|grad f|`` depend on the units of the
    parameters. Where some partial derivatives are orders larger than others, as with
    features in the thousands beside others near one, a small share may belong to a
    point far from any solution. ``solve`` warns of such features.

    **Limits.** Where the objective or a constraint has a kink, one subgradient is used
    and the residual may stay large at a solution; the Moreau residual is the measure
    then. Where the safeguard ball holds the point, its multiplier has its own name in
    ``details`` and is not among the constraints' multipliers.

    **Cost.** One gradient of the objective and of every constraint that is a function,
    and a few projections onto each set.

    Args:
        problem: Evaluated at the point its parameters hold.
        reach: A distance > 0; None takes a hundredth of ``|x|``.

    Returns:
        A measure with the multipliers of all constraints, the complementarity, the
        residual relative to ``|grad f|`` and the objective in its details.

    Raises:
        InvalidProblemError: The reach is not > 0.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
        >>> target = torch.tensor([4.0, 5.0, 0.5], dtype=torch.float64)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: 0.5 * (w - target).square().sum()),
        ...     {"box": oneproj.sets.Box(0.0, 1.0).on(w)})
        >>> measure = kkt_residual(problem)  # an edge: grad f = (-3, -4, 0)
        >>> measure.value < 1e-12, round(measure.details["multipliers"]["box"], 9)
        (True, 5.0)
    """
    require_finite(problem.parameters)
    if reach is None:
        shortest = TOL.shortest_point * min(1.0, problem.radius)
        reach = TOL.kkt_reach * max(norm(problem.parameters), shortest)
    why = (
        "A constraint farther away than this gets no multiplier; None takes a "
        "hundredth of the point's length."
    )
    reach = check_number("reach", reach, why)
    program = _KktProgram(problem, reach)
    found = program.solve()
    multipliers = {n: program.multiplier(n, found) for n in problem.constraints}
    ball = program.multiplier(BALL, found)
    return Measure(
        "KKT residual",
        found.norm,
        source="|grad f + sum_j mu_j grad c_j|",
        details={
            "relative": found.norm / program.slope if program.slope > 0 else 0.0,
            "multipliers": multipliers,
            "complementarity": program.complementarity(found),
            "active": [name for name, mu in multipliers.items() if mu > 0],
            "reach": reach,
            "the safeguard ball is active": ball > 0,
            "ball multiplier": ball,
            "objective": program.objective,
            "objective gradients": 1,
            "constraint passes": len(multipliers),
            "constraint gradients": len(multipliers) - len(program.sets),
            "set projections": program.projections,
        },
    )


@dataclass(frozen=True)
class _Normal:
    """A normal with its owner and how far the point is from the plane it belongs to."""

    owner: str
    column: Column
    slack: float


class _KktProgram:
    """``min (t/2)|r|^2 + complementarity`` over multipliers of functions and sets.

    It is the dual of a projection: ``d = -t r`` is the step nearest to ``-t grad f``
    that keeps ``c_j + <grad c_j, d> <= 0`` and leads into the sets. A set has a normal
    for every direction in which it can be left, so its normals become known one by one:
    each round projects x + d onto every set, and where x + d lies outside a set, the
    normal there joins the cone. For one set alone the first normal is exact.
    """

    def __init__(self, problem: Problem, reach: float) -> None:
        z, terms = problem.parameters, problem.constraints
        self._z, self._reach, self.projections = z, reach, 0
        self.sets = {n: c for n, c in terms.items() if isinstance(c, SetConstraint)}
        # A normal is the difference of near points: single precision would blur it.
        copied = doubled if self.sets else list
        self.objective, slope = problem.objective.value_and_gradient(z)
        gradient = copied(slope)
        self.slope = norm(gradient)
        self._time = reach / self.slope if self.slope > 0 else math.inf
        # Slack that the margin of a projector makes costs nothing.
        self._free: float = rounding_unit(z) ** MARGIN_POWER * norm(z)
        self._cone, self._normals = GrowingCone(gradient), list[_Normal]()
        for name in [name for name in terms if name not in self.sets]:
            value, normal = terms[name].value_and_gradient(z)
            self._add(_Normal(name, dict(enumerate(copied(normal))), -value))
        self._residuals = {name: c.value() for name, c in self.sets.items()}
        room = problem.radius - norm(offset(z, problem.center))
        holds = room >= 0 or ball_excess(problem) == 0  # it holds no point outside
        if holds and room < reach + self._free:
            normal = outward(z, problem.center)[1]
            self._add(_Normal(BALL, dict(enumerate(copied(normal))), room))

    def solve(self) -> Balance:
        """Solve, and ask the sets for normals until they have no new ones."""
        found = self._cone.solve()
        for _ in range(TOL.set_rounds if self.slope > 0 else 0):
            new = [self._ask(name, found) for name in self.sets]
            if not any(new):
                break
            found = self._cone.solve()
        return found

    def multiplier(self, owner: str, found: Balance) -> float:
        """Return the weight of a gradient, or the length of a set's normal."""
        weights, normals = self._share(owner, found)
        if len(weights) <= 1:  # the normals of sets have length 1
            return math.fsum(weights)
        return norm(combine(weights, normals))

    def complementarity(self, found: Balance) -> float:
        """Return the sum of multiplier times slack, that of the ball included."""
        pairs = zip(found.multipliers.tolist(), self._normals, strict=True)
        return math.fsum(mu * abs(normal.slack) for mu, normal in pairs)

    def _add(self, normal: _Normal) -> None:
        """Add a normal, unless it is too far away to matter."""
        size = norm(list(normal.column.values()))
        paid = max(normal.slack - self._free * size, 0.0)
        # t|r| is at most the reach: what is beyond it has multiplier 0.
        if self.slope > 0 and paid < self._reach * size:
            self._cone.add(normal.column, paid / self._time)
            self._normals.append(normal)

    def _share(
        self, owner: str, found: Balance
    ) -> tuple[list[float], list[list[Tensor]]]:
        """Return the positive multipliers of an owner, and their normals."""
        pairs = zip(found.multipliers.tolist(), self._normals, strict=False)
        own = [(mu, n.column) for mu, n in pairs if n.owner == owner and mu > 0]
        return [mu for mu, _ in own], [list(column.values()) for _, column in own]

    def _ask(self, name: str, found: Balance) -> bool:
        """Add the normals of a set that shorten the residual; False if none does."""
        place = next(i for i, p in enumerate(self._z) if p is self.sets[name].tensor)
        r = found.vector[place]
        weights, normals = self._share(name, found)
        if not self._try_normal(name, place, r, r):
            return False
        if weights:  # also the best normal of this set if all others stayed
            [own] = combine(weights, normals)
            self._try_normal(name, place, r - own, r)
        return True

    def _try_normal(self, name: str, place: int, pull: Tensor, r: Tensor) -> bool:
        """Add the normal where the set stops a step against the pull, if it is of use.

        The normals of a set at p are the ``n = y - p`` with ``p = P(y)``: the
        projection of y picks one. If the set is convex, ``<n, z - p> <= 0`` in it.
        """
        step, x = -self._time * pull, self._z[place].detach().double()
        if norm([step]) <= -self._residuals[name]:
            return False  # the step stays inside, whatever its direction
        p = self.sets[name].members.project(x + step)
        self.projections += 1
        n = x + step - p
        length = norm([n])
        if length == 0:
            return False
        n /= length
        slack = dot([n], [p - x])
        blocked = -self._time * dot([n], [r])
        least = TOL.negligible_normal * self._reach
        if blocked <= max(slack - self._free, 0.0) + least:
            return False
        self._add(_Normal(name, {place: n}, slack))
        return True


def complementarity(kkt: Measure) -> Measure:
    """Return the complementarity ``sum_j mu_j |c_j(x)|`` of a KKT measure as a row.

    For a set it is ``<n, p - x>``, its multiplier times the slack along its normal.

    Example:
        >>> kkt = Measure("KKT residual", 0.0, details={"complementarity": 2.0})
        >>> complementarity(kkt).value
        2.0
    """
    value = float(kkt.details["complementarity"])
    return Measure("complementarity", value, source="sum_j mu_j |c_j|")


def gradient_mapping(
    problem: Problem, projector: AbstractProjector, *, weak_convexity: float
) -> Measure:
    """Return the norm of the projected-gradient mapping where the parameters are.

    ``G_ell(x) = ell |x - P_C(x - grad f(x) / ell)|``, eq. gradient-mapping, for a
    differentiable objective and a convex feasible set C inside the safeguard ball. At a
    feasible x it is zero exactly where ``0 in grad f(x) + N_C(x)``. Theorem
    thm:convex-smooth bounds it by epsilon at the output of a run. It costs a gradient
    of the objective and one projection.

    **Guarantee.** For convex constraints a projection y with multipliers mu satisfies
    ``|y - P_C| <= (|r| + sqrt(|r|^2 + 4 s)) / 2``, where r is the imbalance that it
    reports and ``s = sum_j mu_j |c_j(y)|``; ``Measure.error`` is ell times this, plus
    the rounding of the gradient and of the displaced point, which a projection onto a
    convex set does not amplify.

    Args:
        problem: Its parameters are moved and restored bit for bit, also on errors.
        projector: Makes the projection; it is counted in ``details``.
        weak_convexity: ell, here also a Lipschitz constant of the gradient of f.

    Raises:
        ProjectionFailed: The projector did not reach the feasible set.
        InvalidProblemError: The projector does not accept the constraints.
        NonFiniteError: A value or gradient is NaN or infinite; it is named.

    Example:
        >>> import oneproj, torch
        >>> from oneproj.projection.closed_form import ClosedForm
        >>> w = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> problem = oneproj.Problem(
        ...     w, oneproj.function(lambda: w[1]),
        ...     {"size": oneproj.sets.Ball(1.0).on(w)}, radius=1.0)
        >>> measure = gradient_mapping(problem, ClosedForm(), weak_convexity=1.0)
        >>> round(measure.value**2, 9)            # |(1, 0) - (1, -1)/sqrt(2)|^2
        0.585786438
    """
    ell = check_number("weak_convexity", weak_convexity, "It divides the step.")
    reason = projector.accepts(problem.constraints)
    if reason is not None:
        message = f"The projector {projector.name!r} cannot be used here: {reason}."
        raise InvalidProblemError(message)
    z = problem.parameters
    with borrowed(z) as x:
        _, gradient = problem.objective.value_and_gradient(z)
        displaced = combine([1.0, -1.0 / ell], [x, doubled(gradient)])
        assign(z, displaced)
        rounding = ell * distance(doubled(z), displaced)
        rounding += rounding_unit(z) * norm(gradient)
        projection = projector.project(z, problem.constraints)
        if not projection.status.ok:
            message = (
                f"The gradient mapping needs a projection that failed: "
                f"{projection.status.value} ({dict(projection.residuals)})."
            )
            raise ProjectionFailed(message)
        y = doubled(z)
    outside = outward(y, problem.center)[0] - problem.radius
    return Measure(
        "gradient mapping",
        ell * distance(x, y),
        source="eq. gradient-mapping",
        error=rounding + ell * _projection_error(projection),
        details={
            "distance outside the safeguard ball": max(0.0, outside),
            "objective gradients": 1,
            "constraint gradients": projection.gradients,
            "projections": 1,
        },
    )


def _projection_error(projection: Projection) -> float:
    r = projection.kkt_residual * projection.distance
    s = math.fsum(
        mu * abs(projection.residuals[name])
        for name, mu in projection.multipliers.items()
    )
    return 0.5 * (r + math.sqrt(r * r + 4.0 * s))
