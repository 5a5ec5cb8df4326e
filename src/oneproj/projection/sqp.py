"""The local search: sequential quadratic programming in the span of the gradients.

For ``min (1/2)|d|^2, c_j(x_0 + d) <= 0``. A step p from the displacement d minimises

    ``(1/2)|d + p|^2 + (1/2) p'Bp + rho max(0, max_j c_j + e_j + <grad c_j, p>)``

where B estimates the curvature ``sum_j mu_j hess c_j`` (``curvature.py``) and the aim
``e_j >= 0`` is how far the last linearisation was off. Closed-form sets are hard: the
step's end is separated from them by half-spaces until it lies in them, which takes
nearest points and no gradients, and every point that is evaluated is a member. A step
is taken if it lowers the merit ``(1/2)|d|^2 + rho max(0, max_j c_j + e_j)``; a full
step that does not is corrected to second order, then shortened.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from oneproj.errors import NonFiniteError
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.local_model import (
    INDEPENDENT,
    MOVES,
    TINY,
    Iterate,
    LocalWarmStart,
    Model,
    QuasiNewton,
    Step,
    Subspace,
    are_monotone,
    excess,
    random_direction,
)
from oneproj.projection.tolerances import TOLERANCES
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    combine,
    dimension,
)


class Sqp:
    """One local search.

    Args:
        evaluator: Of the constraints; knows the best point, before and after.
        region: Closed-form convex sets that every visited point lies in.
        min_gain: Share of the squared distance that is worth a gradient.
        tolerance: Relative KKT residual that ends the search.
        room: Vectors of the basis, at most.
        carried: From a search for the same constraints, from a point nearby or on a
            sample. The coarser stop for wrong models then applies: what counts is the
            next start, or that gradients are costly.

    Example:
        >>> import oneproj, torch
        >>> w = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
        >>> disc = {"disc": oneproj.function(lambda: w.square().sum()) <= 1.0}
        >>> evaluator = Evaluator([w], disc, differentiate_all=True)
        >>> search = Sqp(
        ...     evaluator, Region([w], {}), min_gain=1e-4, tolerance=1e-6, room=10
        ... )
        >>> search.run(100); round(evaluator.moved(), 6), evaluator.best.worst <= 0
        (1.0, True)
    """

    def __init__(
        self,
        evaluator: Evaluator,
        region: Region,
        *,
        min_gain: float,
        tolerance: float,
        room: int,
        carried: LocalWarmStart | None = None,
    ) -> None:
        """Start where the parameters are, or at the nearest point of the sets."""
        self._evaluator, self._region = evaluator, region
        self._visited: list[Iterate] = []
        """Points in the present basis, for the test of convexity."""
        self._refuted = False
        self._min_gain, self._tolerance = min_gain, tolerance
        self.names = [n for n in evaluator.constraints if n not in region.places]
        m = len(self.names)
        self._warm = carried is not None
        self.mu: Array = np.zeros(m)
        self._errors: Array = np.zeros(m)
        """By how much the last linearisation was too low, per squared length."""
        self._basis = Subspace(evaluator.space, room)
        self._curvature = QuasiNewton(MOVES)
        if carried is not None:
            self.mu, self._errors = carried.mu, carried.errors
            if carried.basis.free >= 2 * m + 2:
                self._basis, self._curvature = carried.basis, carried.curvature
        self._halfspaces: list[tuple[Array, float]] = []
        """Normals a and offsets b with ``a'd <= b`` on the sets."""
        self._penalty = self._min_penalty = 0.0
        self._step_share, self._trusted = 1.0, True
        self._tries, self._taken_share = 0, 1.0
        """Of the last line search: its trials, and the share of the step."""
        least = math.sqrt(dimension(evaluator.parameters))
        self._size = max(evaluator.space.size_of_origin(), least)
        self.best = self._iterate_at(np.zeros(self._basis.room), evaluator.first)
        self.current: Iterate = self.best
        self._restart_at(self.best)
        if region.places:
            self._restart_at(self._first_member())
        self.stationary = False  # whether it ended at one of the violation
        self.converged = False  # whether it ended because little is to be gained

    def resume(self) -> None:
        """Go on from the evaluator's best point, wherever that was found."""
        evaluator = self._evaluator
        if self.best.evaluation is not evaluator.best:
            self.best = self._with_room(self.best)
            moved = evaluator.space.displacement(evaluator.best_point)
            evaluation = evaluator.best
            if not all(name in evaluation.gradients for name in self.names):
                evaluation = evaluator.move_to(evaluator.best_point)
            self.best = self._iterate_at(self._basis.coordinates(moved), evaluation)
        self._restart_at(self.best)

    def may_be_convex(self) -> bool:
        """Whether no two visited points contradict that the functions are convex."""
        if self._region.places:
            return False  # cuts know functions only
        noise = self._evaluator.share
        self._refuted = self._refuted or not are_monotone(self._visited, noise)
        return not self._refuted

    def carry(self) -> LocalWarmStart:
        """What helps a search from a point nearby."""
        return LocalWarmStart(self.mu, self._errors, self._basis, self._curvature)

    # --- points

    def _iterate_at(self, d: Array, evaluation: Evaluation) -> Iterate:
        J = np.array(
            [self._basis.coordinates(evaluation.gradients[n]) for n in self.names]
        )
        margins = self._evaluator.margins
        c = np.array([evaluation.values[n] + margins[n] for n in self.names])
        return Iterate(d, c, J.reshape(len(c), -1), evaluation, 0.5 * float(d.dot(d)))

    def _visit(self, d: Array) -> Iterate | None:
        """Evaluate at a displacement; None where a constraint has no finite value."""
        evaluator, move = self._evaluator, self._basis.move(d)
        if not self._region.places:
            try:
                evaluation = evaluator.move(move)
                iterate = self._iterate_at(d, evaluation)
            except NonFiniteError:
                return None
            return self._remember(iterate)
        return self._visit_member(evaluator.point_after(move))

    def _visit_member(self, point: Vector) -> Iterate | None:
        """Evaluate at the nearest point of the sets."""
        evaluator = self._evaluator
        try:
            inside = self._region.member(point, like=evaluator.origin)
            evaluation = evaluator.move_to(inside)
            d = self._basis.coordinates(evaluator.space.displacement(inside))
            iterate = self._iterate_at(d, evaluation)
        except NonFiniteError:
            return None
        return self._remember(iterate)

    def _remember(self, iterate: Iterate) -> Iterate:
        """The iterate, now the best if it is; gradients elsewhere are in the basis."""
        self._visited.append(iterate)
        worse = iterate
        if self._evaluator.best is iterate.evaluation:
            worse, self.best = self.best, iterate
        if worse.evaluation is not self._evaluator.first:
            worse.evaluation.gradients.clear()
        return iterate

    def _first_member(self) -> Iterate:
        """The sets' point nearest to the start, or one where functions have values."""
        origin = self._evaluator.origin
        direction = random_direction(origin, self._size)
        for share in (0.0, *TOLERANCES.nudges):
            iterate = self._visit_member(combine([1.0, share], [origin, direction]))
            if iterate is not None:
                return iterate
        quantity = "a constraint at points of the closed-form sets"
        raise NonFiniteError(quantity)

    def _separate(self, d: Array) -> bool:
        """Add half-spaces that contain the sets and not a displacement."""
        evaluator = self._evaluator
        point = evaluator.point_after(self._basis.move(d))
        added = False
        for normal, part, i in self._region.normals(point):
            vector = [x.new_zeros(x.shape) for x in point]
            vector[i] = normal
            a = self._basis.coordinates(vector)
            offset = float((normal * (part - evaluator.origin[i].double())).sum())
            if float(a.dot(d)) - offset > INDEPENDENT * self._size:
                self._halfspaces.append((a, offset))
                added = True
        return added

    # --- models

    def _model(self, iterate: Iterate, mu: Array) -> Model:
        normals = [a for a, _ in self._halfspaces]
        rows = np.vstack([iterate.J, *normals, iterate.d])
        return Model(rows, self._curvature.solve(rows, mu), self._offsets(iterate))

    def _offsets(self, iterate: Iterate) -> Array:
        return np.array([b - float(a.dot(iterate.d)) for a, b in self._halfspaces])

    def _step(
        self, iterate: Iterate, mu: Array, c: Array, rho: float, damping: float = 0.0
    ) -> tuple[Step, Model]:
        for _ in range(TOLERANCES.separations):
            model = self._model(iterate, mu)
            step = model.step(c, rho, damping)
            if not (self._region.places and self._separate(iterate.d + step.p)):
                break
        if len(self._halfspaces) > TOLERANCES.halfspaces:
            used = zip(self._halfspaces, step.nu, strict=False)
            self._halfspaces = [half for half, nu in used if nu > 0]
        return step, model

    def run(self, budget: int, *, last: bool = True) -> None:
        """Search until an end is reached or about ``budget`` gradients are used.

        Args:
            budget: Gradients in all.
            last: Restore feasibility where they are used up without it.
        """
        evaluator = self._evaluator
        if not self.current.has_gradient():
            self._leave_plateau()
        for _ in range(TOLERANCES.local_rounds):
            self.stationary = False
            self.converged = self._descend(budget)
            used_up = evaluator.evaluations >= budget
            if self.converged or (used_up and not last and not self.stationary):
                return
            if evaluator.best.worst <= 0:
                if self.current is self.best or used_up:
                    return
                self._return_to_best()
            elif not (
                self._restore(self.best, 2 * budget) or (last and self._try_zero())
            ):
                return

    def _descend(self, budget: int) -> bool:
        """Step by step; whether that settled."""
        evaluator, slow = self._evaluator, 0
        while evaluator.evaluations < budget and slow < TOLERANCES.patience:
            iterate = self.current = self._with_room(self.current)
            step, model, aim = self._solve_model(iterate)
            if self._has_converged(iterate, step):
                return True
            gained = self._take_step(iterate, step, model, aim)
            slow = 0 if gained > self._min_gain else slow + 1
        return False

    def _try_zero(self) -> bool:
        """Make all parameters zero, or nearly: a bound on a size is met there."""
        if self._evaluator.is_within_margins(self._evaluator.best):
            return False  # by rounding only
        for share in TOLERANCES.shrinks:
            self._evaluator.keep_best()
            moved = combine([share - 1.0], [self._evaluator.origin])
            try:
                iterate = self._visit(self._basis.coordinates(moved))
            except NonFiniteError:
                continue
            if iterate is not None and iterate.evaluation.worst <= 0:
                self._start_anew_at(iterate)
                return True
        return False

    def _restore(self, iterate: Iterate, budget: int) -> bool:
        """Lower the sum of squared violations until none is left; whether that is so.

        By Levenberg-Marquardt steps in the metric of the curvature. Constraints that
        pull apart, where the worst residual has a local minimum, mostly have none in
        the sum of squares. Each step is aimed inside by more than the last.
        """
        evaluator, waited = self._evaluator, 0
        extra, damping, mu = 0.0, TOLERANCES.damping, self.mu
        while evaluator.evaluations < budget and waited < TOLERANCES.restorations:
            iterate = self._with_room(iterate)
            if iterate.evaluation.worst <= 0:
                self._restart_at(iterate)
                self._step_share = 1.0
                return True
            aimed = iterate.c + np.where(iterate.c > 0, extra, 0.0)
            here = iterate._replace(d=np.zeros_like(iterate.d))
            step, _ = self._step(here, mu, aimed, math.inf, damping)
            trial = self._visit(iterate.d + self._limit_length(iterate, step.p))
            if trial is not None:
                self._update_curvature(iterate, trial)
            before = iterate.violation()
            if trial is None or trial.violation() >= before:
                if self._is_stationary(iterate):
                    self.stationary = True
                    return False
                damping *= TOLERANCES.damping_step
                waited += 1
                continue
            mu = step.mu
            slow = trial.violation() > TOLERANCES.slow * before
            waited = waited + 1 if slow else 0
            worst = max(trial.evaluation.worst, 0.0)
            extra = 2.0 * extra + worst if slow else worst
            iterate, damping = trial, damping / TOLERANCES.damping_step
        return False

    def _is_stationary(self, iterate: Iterate) -> bool:
        """Whether no step as long as the parameters lowers the violation by much."""
        pull = np.maximum(iterate.c, 0.0).dot(iterate.J)
        gain = self._max_length(iterate) * math.sqrt(float(pull.dot(pull)))
        return gain <= TOLERANCES.stationary * iterate.violation()

    def _solve_model(self, iterate: Iterate) -> tuple[Step, Model, Array]:
        """The next step; the curvature depends on the multipliers, hence twice."""
        rho = TOLERANCES.penalty_growth * max(self._penalty, self._penalty_estimate())
        rho = rho or math.inf
        first, _ = self._step(iterate, self.mu, iterate.c, rho)
        aim = self._extra_margins(iterate, first)
        step, model = self._step(iterate, first.mu, iterate.c + aim, rho)
        self.mu = step.mu
        total = float(step.mu.sum())
        least = max(self._penalty_estimate(), self._min_penalty)
        self._penalty = TOLERANCES.penalty * max(total, least)
        return step, model, aim

    def _penalty_estimate(self) -> float:
        """What the way to the best point cost for each unit of the worst residual."""
        evaluator = self._evaluator
        lower = evaluator.first.worst - max(evaluator.best.worst, 0.0)
        return self.best.half / lower if lower > 0 else 0.0

    def _extra_margins(self, iterate: Iterate, step: Step) -> Array:
        """How far inside to aim: by the last error of a linearisation, if cheap."""
        total = float(step.mu.sum())
        if total == 0:
            return np.zeros(len(step.mu))
        ahead = iterate.d + step.p
        worth = self._min_gain * 0.5 * float(ahead.dot(ahead)) / total
        least = 0.0 if self._trusted else TOLERANCES.aim_least * worth
        aim: Array = self._errors * float(step.p.dot(step.p))
        return np.minimum(np.maximum(aim, least), TOLERANCES.aim_most * worth)

    def _has_converged(self, iterate: Iterate, step: Step) -> bool:
        """Whether the KKT conditions hold, or what could be gained is not worth it."""
        best = self.best
        if self._evaluator.best.worst > 0:
            return False
        if iterate is best and self._kkt_residual(best, step) <= self._tolerance:
            return True
        coarse = self._warm or not self._trusted
        worth = (TOLERANCES.coarse if coarse else 1.0) * self._min_gain * best.half
        if self._min_gain == 0 or best.half - step.value > worth:
            return False
        most = TOLERANCES.balanced if coarse else math.sqrt(self._min_gain)
        return self._warm or self._kkt_residual(best, step) <= most

    def _kkt_residual(self, iterate: Iterate, step: Step) -> float:
        """``|d + sum_j mu_j grad c_j|`` relative to ``|d|``."""
        left = iterate.d + step.mu.dot(iterate.J)
        for (a, _), nu in zip(self._halfspaces, step.nu, strict=False):
            left = left + nu * a
        return math.sqrt(float(left.dot(left)) / max(2.0 * iterate.half, TINY))

    def _return_to_best(self) -> None:
        """Go back to the feasible point, with a penalty that prefers it from now on."""
        lost, violation = self.best.half - self.current.half, self.current.c.max()
        if violation > 0:
            self._min_penalty = max(self._min_penalty, lost / float(violation))
        self._restart_at(self.best)

    def _start_anew_at(self, iterate: Iterate) -> None:
        """Go on from an iterate, without what was learned before."""
        self._restart_at(iterate)
        self._curvature.forget()
        self._step_share, self._trusted = 1.0, False

    def _restart_at(self, iterate: Iterate) -> None:
        self.current = iterate
        self._recent: list[tuple[float, Array]] = []

    def _with_room(self, iterate: Iterate) -> Iterate:
        """The iterate itself; in a smaller basis if the present one has no room."""
        m = len(self.names)
        if self._basis.free >= m + 1 + bool(self._region.places):
            return iterate
        self._evaluator.keep_best()
        self.may_be_convex()
        self._visited.clear()
        best, latest = self.best, reversed(self._curvature.changes)
        rows = np.vstack([iterate.d, iterate.J, best.d, best.J, *latest])
        turn = self._basis.compress(rows, self._basis.room - 2 * m - 2)
        self._curvature.reduce(turn, self.mu)
        self._halfspaces, self._recent = [], []
        fresh = iterate.rotated(turn)
        self.best = fresh if best is iterate else best.rotated(turn)
        return fresh

    def _leave_plateau(self) -> None:
        """Leave a point without a gradient along a direction, random but the same.

        For a point with a gradient, or a feasible one.
        """
        evaluator = self._evaluator
        direction = random_direction(evaluator.origin, self._size)
        for share in TOLERANCES.nudges:
            point = combine([1.0, share], [evaluator.best_point, direction])
            inside = self._region.nearest(point)
            # Mirrored at the sets, so that it leads off a face that it leads out of.
            moved = combine([2.0, -1.0, -1.0], [inside, point, evaluator.origin])
            evaluator.keep_best()
            try:
                iterate = self._visit(self._basis.coordinates(moved))
            except NonFiniteError:
                continue
            if iterate is not None and (
                iterate.has_gradient() or iterate.evaluation.worst <= 0
            ):
                self.mu, self._penalty = np.zeros(len(self.names)), 0.0
                self._start_anew_at(iterate)
                return

    # --- steps

    def _take_step(
        self, iterate: Iterate, step: Step, model: Model, aim: Array
    ) -> float:
        """Take the step or a shorter one; returns the share of the merit gained."""
        rho, p = self._penalty, self._limit_length(iterate, step.p)
        before, ahead = iterate.merit(rho, aim), iterate.d + p
        left = excess(iterate.c + iterate.J.dot(p), aim)
        promised = max(before - 0.5 * float(ahead.dot(ahead)) - rho * left, 0.0)
        limit = before
        if iterate.evaluation.worst > 0:
            limit = max([before, *(h + rho * excess(c, aim) for h, c in self._recent)])
        limit += TOLERANCES.local_rounding * abs(limit) - TOLERANCES.decrease * promised
        correct = (
            (lambda error: model.step(error + aim, rho).p) if p is step.p else None
        )
        search = self._line_search(
            iterate, p, correct, lambda t: t.merit(rho, aim), limit
        )
        after, best = search if search is not None else (before, iterate)
        kept = before - after >= TOLERANCES.local_trusted * self._taken_share * promised
        self._trusted = self._tries == 1 and kept
        self._recent = []
        if len(self._curvature.moves) >= TOLERANCES.patience:
            self._recent = [(iterate.half, iterate.c)]
        if after <= limit or after < before:
            self.current = best
        return 1.0 - after / max(before, TINY)

    def _line_search(
        self,
        iterate: Iterate,
        p: Array,
        correct: Callable[[Array], Array] | None,
        merit: Callable[[Iterate], float],
        limit: float,
    ) -> tuple[float, Iterate] | None:
        """The trial with the least merit, the last one if it is within the limit.

        Begins with the share of a step that the last search came to. A full step is
        corrected to second order if that is a small correction.
        """
        best: tuple[float, Iterate] | None = None
        share, self._tries = self._step_share, 0
        moves = [share * p]
        while moves and self._tries < TOLERANCES.shortenings:
            trial = self._visit(iterate.d + moves.pop())
            self._tries += 1
            if trial is not None:
                self._update_curvature(iterate, trial)
                value = merit(trial)
                if best is None or value < best[0]:
                    best = value, trial
                if value <= limit:
                    break
            if share == 1.0 and correct is not None and trial is not None:
                corrected = correct(trial.c - iterate.J.dot(p))
                correct = None
                change = float(np.linalg.norm(corrected - p))
                if change <= TOLERANCES.correction * float(np.linalg.norm(p)):
                    moves.append(corrected)
                    continue
            share *= TOLERANCES.shorter
            moves.append(share * p)
        self._taken_share = share
        if self._tries == 1:
            share /= TOLERANCES.shorter
        self._step_share = min(max(share, TOLERANCES.shortest), 1.0)
        return best

    def _max_length(self, iterate: Iterate) -> float:
        """The longest step: the size of the parameters, or of the move so far."""
        return max(self._size, math.sqrt(2.0 * iterate.half))

    def _limit_length(self, iterate: Iterate, p: Array) -> Array:
        most, length = self._max_length(iterate), math.sqrt(float(p.dot(p)))
        return p if length <= most else most / length * p

    def _update_curvature(self, start: Iterate, end: Iterate) -> None:
        move = end.d - start.d
        square = float(move.dot(move))
        if square > TOLERANCES.local_rounding**2 * end.half:
            change = end.J - start.J
            self._curvature.add(move, change)
            error = end.c - start.c - start.J.dot(move)
            self._errors = np.maximum(error / square, 0.0)

    # --- the answer

    def multipliers(self) -> tuple[dict[str, float], float]:
        """The multipliers at the best point and the relative KKT residual."""
        iterate = self.best
        rows = np.vstack([iterate.J, *[a for a, _ in self._halfspaces], iterate.d])
        flat = Model(rows, rows, np.maximum(self._offsets(iterate), 0.0))
        values = np.array([iterate.evaluation.values[n] for n in self.names])
        step = flat.step(np.minimum(values, 0.0), math.inf)
        residual = min(self._kkt_residual(iterate, step), 1.0)
        return dict(zip(self.names, step.mu.tolist(), strict=True)), residual
