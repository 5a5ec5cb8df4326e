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
    Carried,
    Curvature,
    Model,
    Place,
    Step,
    Subspace,
    excess,
    random_direction,
)
from oneproj.projection.tolerances import LOCAL
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
        carried: From a search for the same constraints, from a point nearby. The
            coarser stop for wrong models then applies: what counts is the next start.

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
        carried: Carried | None = None,
    ) -> None:
        """Start where the parameters are, or at the nearest point of the sets."""
        self._evaluator, self._region = evaluator, region
        self._visited: list[Place] = []
        """Points in the present basis, for the test of convexity."""
        self._refuted = False
        self._gain, self._tolerance = min_gain, tolerance
        self.names = [n for n in evaluator.constraints if n not in region.places]
        m = len(self.names)
        self._quick, self._gave_up_sets = carried is not None, False
        self.mu: Array = np.zeros(m)
        self._bend: Array = np.zeros(m)
        """By how much the last linearisation was too low, per squared length."""
        self._basis, self._curvature = Subspace(evaluator.space, room), Curvature(MOVES)
        if carried is not None:
            self.mu, self._bend = carried.mu, carried.bend
            if carried.basis.free >= 2 * m + 2:
                self._basis, self._curvature = carried.basis, carried.curvature
        self._halfspaces: list[tuple[Array, float]] = []
        """Normals a and offsets b with ``a'd <= b`` on the sets."""
        self._rho, self._share, self._trusted, self._weakest = 0.0, 1.0, True, 0.0
        self._tries, self._taken = 0, 1.0
        """Of the last line search: its trials, and the share of the step."""
        least = math.sqrt(dimension(evaluator.parameters))
        self._size = max(evaluator.space.size_of_origin(), least)
        self.best = self._place(np.zeros(self._basis.room), evaluator.first)
        self.place: Place = self.best
        self._begin(self.best)
        if region.places:
            place = self._first_member()
            if place is None:  # the functions have no value in the sets, or hardly
                nowhere = Region(evaluator.parameters, {})
                self.__init__(  # type: ignore[misc]
                    evaluator,
                    nowhere,
                    min_gain=min_gain,
                    tolerance=tolerance,
                    room=room,
                )
                self._gave_up_sets = True
            else:
                self._begin(place)
        self.stationary = False  # whether it ended at one of the violation
        self.settled = False  # whether it ended because little is to be gained

    def resume(self) -> None:
        """Go on from the evaluator's best point, wherever that was found."""
        evaluator = self._evaluator
        if self.best.seen is not evaluator.best:
            self.best = self._refreshed(self.best)
            moved = evaluator.space.displacement(evaluator.best_point)
            seen = evaluator.best
            if not all(name in seen.gradients for name in self.names):
                seen = evaluator.move_to(evaluator.best_point)
            self.best = self._place(self._basis.coordinates(moved), seen)
        self._begin(self.best)

    def may_be_convex(self) -> bool:
        """Whether the gradients at all pairs of visited points are monotone.

        Those of convex functions are: ``<g_i - g_j, d_i - d_j> >= 0``, up to rounding.
        """
        if self._refuted or not self._visited:
            return not self._refuted
        D = np.array([place.d for place in self._visited])
        squares = (D * D).sum(1)
        apart = squares[:, None] + squares - 2.0 * D.dot(D.T)
        length = np.sqrt(np.maximum(apart, 0.0))
        for J in np.array([place.J for place in self._visited]).swapaxes(0, 1):
            along = D.dot(J.T)
            own, norms = along.diagonal(), np.linalg.norm(J, axis=1)
            rise = own[:, None] + own - along - along.T
            noise = self._evaluator.share * np.maximum(norms[:, None], norms) * length
            self._refuted |= bool((rise < -noise).any())
        return not self._refuted

    def carry(self) -> Carried | None:
        """What helps a search from a point nearby; None where sets were given up."""
        found = Carried(self.mu, self._bend, self._basis, self._curvature)
        return None if self._gave_up_sets else found

    # --- points

    def _place(self, d: Array, seen: Evaluation) -> Place:
        J = np.array([self._basis.coordinates(seen.gradients[n]) for n in self.names])
        margins = self._evaluator.margins
        c = np.array([seen.values[n] + margins[n] for n in self.names])
        return Place(d, c, J.reshape(len(c), -1), seen, 0.5 * float(d.dot(d)))

    def _visit(self, d: Array) -> Place | None:
        """Evaluate at a displacement; None where a constraint has no finite value."""
        evaluator, move = self._evaluator, self._basis.move(d)
        if not self._region.places:
            try:
                seen = evaluator.move(move)
                place = self._place(d, seen)
            except NonFiniteError:
                return None
            return self._noted(place)
        return self._visit_member(evaluator.point_after(move))

    def _visit_member(self, point: Vector) -> Place | None:
        """Evaluate at the nearest point of the sets."""
        evaluator = self._evaluator
        try:
            inside = self._region.member(point, like=evaluator.origin)
            seen = evaluator.move_to(inside)
            d = self._basis.coordinates(evaluator.space.displacement(inside))
            place = self._place(d, seen)
        except NonFiniteError:
            return None
        return self._noted(place)

    def _noted(self, place: Place) -> Place:
        """The place, now the best if it is; gradients elsewhere are in the basis."""
        self._visited.append(place)
        worse = place
        if self._evaluator.best is place.seen:
            worse, self.best = self.best, place
        if worse.seen is not self._evaluator.first:
            worse.seen.gradients.clear()
        return place

    def _first_member(self) -> Place | None:
        """The sets' point nearest to the start, or one where functions have values."""
        origin = self._evaluator.origin
        place = self._visit_member(origin)
        if place is not None:
            return place
        direction = random_direction(origin, self._size)
        for share in LOCAL.nudges:
            place = self._visit_member(combine([1.0, share], [origin, direction]))
            if place is not None:
                break
        return place

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

    def _model(self, place: Place, mu: Array) -> Model:
        normals = [a for a, _ in self._halfspaces]
        rows = np.vstack([place.J, *normals, place.d])
        divided = self._curvature.divide(rows, mu)
        if float((rows * divided).sum(1).min(initial=0.0)) < 0:
            divided = rows  # of many nearly equal moves rounding is left
        return Model(rows, divided, self._offsets(place))

    def _offsets(self, place: Place) -> Array:
        return np.array([b - float(a.dot(place.d)) for a, b in self._halfspaces])

    def _step(
        self, place: Place, mu: Array, c: Array, rho: float, damping: float = 0.0
    ) -> tuple[Step, Model]:
        for _ in range(LOCAL.separations):
            model = self._model(place, mu)
            step = model.step(c, rho, damping)
            if not (self._region.places and self._separate(place.d + step.p)):
                break
        if len(self._halfspaces) > LOCAL.halfspaces:
            used = zip(self._halfspaces, step.nu, strict=False)
            self._halfspaces = [half for half, nu in used if nu > 0]
        return step, model

    def run(self, budget: int, *, last: bool = True) -> None:
        """Search until an end is reached or about so many gradients are used.

        Args:
            budget: Gradients in all.
            last: Restore feasibility where they are used up without it.
        """
        self._run_rounds(budget, last=last)
        outside = not self._evaluator.is_within_margins(self._evaluator.best)
        if last and outside and self._shrink():
            self.stationary = False
            self.settled = self._descend(budget)

    def _run_rounds(self, budget: int, *, last: bool) -> None:
        """Search, and restore feasibility where that ends without it."""
        evaluator = self._evaluator
        if not self.place.has_slope():
            self._nudge()
        for _ in range(LOCAL.rounds):
            self.stationary = False
            self.settled = self._descend(budget)
            used_up = evaluator.evaluations >= budget
            if self.settled or (used_up and not last and not self.stationary):
                return
            if evaluator.best.worst <= 0:
                if self.place is self.best or used_up:
                    return
                self._return_to_best()
            elif not self._restore(self.best, 2 * budget):
                return

    def _descend(self, budget: int) -> bool:
        """Step by step; whether that settled."""
        evaluator, slow = self._evaluator, 0
        while evaluator.evaluations < budget and slow < LOCAL.patience:
            place = self.place = self._refreshed(self.place)
            step, model, aim = self._plan(place)
            if self._settled(place, step):
                return True
            if place.seen.worst <= 0 and not step.mu.any():
                self._close_in()
                continue
            before = evaluator.best.worst
            gained = self._advance(place, step, model, aim)
            found = evaluator.best.worst <= 0 < before
            slow = 0 if gained > self._gain or found else slow + 1
            infeasible = evaluator.best.worst > 0
            if slow and infeasible and self._is_stationary(place, step):
                self.stationary = True
                return False
        return False

    def _close_in(self) -> None:
        """Go back from a feasible place whose model takes the start for feasible.

        There is a plateau in between. The boundary crosses the segment to the start,
        and a bisection on logarithms of the length finds it from anywhere.
        """
        place, low, high, factor = self.place, 0.0, 1.0, 2.0
        whole = place.d
        while high > LOCAL.bracket * low:
            share = math.sqrt(low * high) if low > 0 else high / factor
            if share == 0.0:
                break  # the start is the only point that is not feasible
            trial = self._visit(share * whole)
            if trial is not None and trial.seen.worst <= 0:
                place, high = trial, share
                ahead = trial.c - (1.0 - low / high) * trial.J.dot(trial.d)
                if float(ahead.max()) > 0:
                    break
            else:
                low = share
            factor *= factor
        self._begin(place)
        self._curvature.forget()
        self._share, self._trusted = 1.0, False

    def _shrink(self) -> bool:
        """Make all parameters zero, or nearly: a bound on a size is met there."""
        for share in LOCAL.shrinks:
            self._evaluator.keep_best()
            moved = combine([share - 1.0], [self._evaluator.origin])
            try:
                place = self._visit(self._basis.coordinates(moved))
            except NonFiniteError:
                continue
            if place is not None and place.seen.worst <= 0:
                self._begin(place)
                self._close_in()
                return True
        return False

    def _restore(self, place: Place, budget: int) -> bool:
        """Lower the sum of squared violations until none is left; whether that is so.

        By Levenberg-Marquardt steps in the metric of the curvature. Constraints that
        pull apart, where the worst residual has a local minimum, mostly have none in
        the sum of squares. Each step is aimed inside by more than the last.
        """
        evaluator, waited = self._evaluator, 0
        extra, damping, mu = 0.0, LOCAL.damping, self.mu
        while evaluator.evaluations < budget and waited < LOCAL.restorations:
            place = self._refreshed(place)
            if place.seen.worst <= 0:
                self._begin(place)
                self._share = 1.0
                return True
            aimed = place.c + np.where(place.c > 0, extra, 0.0)
            here = place._replace(d=np.zeros_like(place.d))
            step, _ = self._step(here, mu, aimed, math.inf, damping)
            trial = self._visit(place.d + self._within_reach(place, step.p))
            if trial is not None:
                self._learn(place, trial)
            before = place.violation()
            if trial is None or trial.violation() >= before:
                if self._is_balanced(place):
                    self.stationary = True
                    return False
                damping *= LOCAL.damping_step
                waited += 1
                continue
            mu = step.mu
            slow = trial.violation() > LOCAL.slow * before
            waited = waited + 1 if slow else 0
            worst = max(trial.seen.worst, 0.0)
            extra = 2.0 * extra + worst if slow else worst
            place, damping = trial, damping / LOCAL.damping_step
        return False

    def _is_balanced(self, place: Place) -> bool:
        """Whether no step as long as the parameters lowers the squares by much."""
        pull = np.maximum(place.c, 0.0).dot(place.J)
        gain = self._reach(place) * math.sqrt(float(pull.dot(pull)))
        return gain <= LOCAL.stationary * place.violation()

    def _plan(self, place: Place) -> tuple[Step, Model, Array]:
        """The next step; the curvature depends on the multipliers, hence twice."""
        rho = LOCAL.penalty_growth * max(self._rho, self._price())
        rho = rho or math.inf
        first, _ = self._step(place, self.mu, place.c, rho)
        aim = self._aim(place, first)
        step, model = self._step(place, first.mu, place.c + aim, rho)
        self.mu = step.mu
        total = float(step.mu.sum())
        self._rho = LOCAL.penalty * max(total, self._price(), self._weakest)
        return step, model, aim

    def _price(self) -> float:
        """What the way to the best point cost for each unit of the worst residual."""
        evaluator = self._evaluator
        lower = evaluator.first.worst - max(evaluator.best.worst, 0.0)
        return self.best.half / lower if lower > 0 else 0.0

    def _aim(self, place: Place, step: Step) -> Array:
        """How far inside to aim: by the last error of a linearisation, if cheap."""
        total = float(step.mu.sum())
        if total == 0:
            return np.zeros(len(step.mu))
        ahead = place.d + step.p
        worth = self._gain * 0.5 * float(ahead.dot(ahead)) / total
        least = 0.0 if self._trusted else LOCAL.aim_least * worth
        aim: Array = self._bend * float(step.p.dot(step.p))
        return np.minimum(np.maximum(aim, least), LOCAL.aim_most * worth)

    def _settled(self, place: Place, step: Step) -> bool:
        """Whether the KKT conditions hold, or what could be gained is not worth it."""
        best = self.best
        if self._evaluator.best.worst > 0:
            return False
        if place is best and self._imbalance(best, step) <= self._tolerance:
            return True
        if step.value > LOCAL.wrong * best.half and self._doubt():
            return False
        coarse = self._quick or not self._trusted
        worth = (LOCAL.coarse if coarse else 1.0) * self._gain * best.half
        if self._gain == 0 or best.half - step.value > worth:
            return False
        most = LOCAL.balanced if coarse else math.sqrt(self._gain)
        return self._quick or self._imbalance(best, step) <= most

    def _imbalance(self, place: Place, step: Step) -> float:
        """``|d + sum_j mu_j grad c_j|`` relative to ``|d|``."""
        left = place.d + step.mu.dot(place.J)
        for (a, _), nu in zip(self._halfspaces, step.nu, strict=False):
            left = left + nu * a
        return math.sqrt(float(left.dot(left)) / max(2.0 * place.half, TINY))

    def _doubt(self) -> bool:
        """Drop a model that knows less than the best point does."""
        if self.place is not self.best:
            self._return_to_best()
        elif self._curvature.moves:
            self._curvature.forget()
        else:
            return False
        return True

    def _return_to_best(self) -> None:
        """Go back to the feasible point, with a penalty that prefers it from now on."""
        lost, violation = self.best.half - self.place.half, float(self.place.c.max())
        if violation > 0:
            self._weakest = max(self._weakest, lost / violation)
        self._begin(self.best)

    def _begin(self, place: Place) -> None:
        self.place = place
        self._recent: list[tuple[float, Array]] = []

    def _refreshed(self, place: Place) -> Place:
        """The place itself; in a smaller basis if the present one has no room."""
        m = len(self.names)
        if self._basis.free >= m + 1 + bool(self._region.places):
            return place
        self._evaluator.keep_best()
        self.may_be_convex()
        self._visited.clear()
        best, latest = self.best, reversed(self._curvature.changes)
        rows = np.vstack([place.d, place.J, best.d, best.J, *latest])
        turn = self._basis.compress(rows, self._basis.room - 2 * m - 2)
        self._curvature.reduce(turn, self.mu)
        self._halfspaces, self._recent = [], []
        fresh = place.turned(turn)
        self.best = fresh if best is place else best.turned(turn)
        return fresh

    def _nudge(self) -> bool:
        """Leave a point without a slope, or a saddle, along a random direction.

        The direction is always the same. Returns whether a point with a slope was
        found, or a feasible one.
        """
        evaluator = self._evaluator
        direction = random_direction(evaluator.origin, self._size)
        flat = not self.best.has_slope()
        for share in LOCAL.nudges if flat else LOCAL.nudges[:1]:
            point = combine([1.0, share], [evaluator.best_point, direction])
            inside = self._region.nearest(point)
            # Mirrored at the sets, so that it leads off a face that it leads out of.
            moved = combine([2.0, -1.0, -1.0], [inside, point, evaluator.origin])
            self._evaluator.keep_best()
            try:
                d = self._basis.coordinates(moved)
                place = self._visit(d)
            except NonFiniteError:
                continue
            if place is not None and (place.has_slope() or place.seen.worst <= 0):
                self._curvature.forget()
                self.mu, self._rho = np.zeros(len(self.names)), 0.0
                self._share, self._trusted = 1.0, False
                self._begin(place)
                return True
        return False

    def _is_stationary(self, place: Place, step: Step) -> bool:
        """Whether no step as long as the parameters lowers the violation by much."""
        total = float(step.mu.sum())
        worst = float(place.c.max())
        if place.seen.worst <= 0 or total == 0:
            return place.seen.worst > 0
        share = step.mu / total
        pull = share.dot(place.J)
        gain = self._reach(place) * math.sqrt(float(pull.dot(pull)))
        left = float(share.dot(place.c)) - gain
        return left >= (1.0 - LOCAL.stationary) * worst

    # --- steps

    def _advance(self, place: Place, step: Step, model: Model, aim: Array) -> float:
        """Take the step or a shorter one; returns the share of the merit gained."""
        rho, p = self._rho, self._within_reach(place, step.p)
        before, ahead = place.merit(rho, aim), place.d + p
        left = excess(place.c + place.J.dot(p), aim)
        promised = max(before - 0.5 * float(ahead.dot(ahead)) - rho * left, 0.0)
        limit = before
        if place.seen.worst > 0:
            limit = max([before, *(h + rho * excess(c, aim) for h, c in self._recent)])
        limit += LOCAL.rounding * abs(limit) - LOCAL.sufficient * promised
        correct = (
            (lambda error: model.step(error + aim, rho).p) if p is step.p else None
        )
        search = self._line_search(
            place, p, correct, lambda t: t.merit(rho, aim), limit
        )
        after, best = search if search is not None else (before, place)
        kept = before - after >= LOCAL.trusted * self._taken * promised
        self._trusted = self._tries == 1 and kept
        self._recent = []
        if len(self._curvature.moves) >= LOCAL.patience:
            self._recent = [(place.half, place.c)]
        if after <= limit or after < before:
            self.place = best
        return 1.0 - after / max(before, TINY)

    def _line_search(
        self,
        place: Place,
        p: Array,
        correct: Callable[[Array], Array] | None,
        merit: Callable[[Place], float],
        limit: float,
    ) -> tuple[float, Place] | None:
        """The trial with the least merit, the last one if it is within the limit.

        Begins with the share of a step that the last search came to. A full step is
        corrected to second order if that is a small correction.
        """
        best: tuple[float, Place] | None = None
        share, self._tries = self._share, 0
        moves = [share * p]
        while moves and self._tries < LOCAL.shortenings:
            trial = self._visit(place.d + moves.pop())
            self._tries += 1
            if trial is not None:
                self._learn(place, trial)
                value = merit(trial)
                if best is None or value < best[0]:
                    best = value, trial
                if value <= limit:
                    break
            if share == 1.0 and correct is not None and trial is not None:
                corrected = correct(trial.c - place.J.dot(p))
                correct = None
                change = float(np.linalg.norm(corrected - p))
                if change <= LOCAL.correction * float(np.linalg.norm(p)):
                    moves.append(corrected)
                    continue
            share *= LOCAL.shorter
            moves.append(share * p)
        self._taken = share
        if self._tries == 1:
            share /= LOCAL.shorter
        self._share = min(max(share, LOCAL.shortest), 1.0)
        return best

    def _reach(self, place: Place) -> float:
        """The longest step: the size of the parameters, or of the move so far."""
        return max(self._size, math.sqrt(2.0 * place.half))

    def _within_reach(self, place: Place, p: Array) -> Array:
        most, length = self._reach(place), math.sqrt(float(p.dot(p)))
        return p if length <= most else most / length * p

    def _learn(self, start: Place, end: Place) -> None:
        move = end.d - start.d
        square = float(move.dot(move))
        if square > LOCAL.rounding**2 * end.half:
            change = end.J - start.J
            self._curvature.add(move, change)
            error = end.c - start.c - start.J.dot(move)
            self._bend = np.maximum(error / square, 0.0)

    # --- the answer

    def multipliers(self) -> tuple[dict[str, float], float]:
        """The multipliers at the best point and the relative KKT residual."""
        place = self.best
        rows = np.vstack([place.J, *[a for a, _ in self._halfspaces], place.d])
        flat = Model(rows, rows, np.maximum(self._offsets(place), 0.0))
        values = np.array([place.seen.values[n] for n in self.names])
        step = flat.step(np.minimum(values, 0.0), math.inf)
        left, mu = self._imbalance(place, step), step.mu
        own = self._imbalance(place, step._replace(mu=self.mu))
        if place.seen.worst <= 0 and own < left:
            left, mu = own, self.mu
        return dict(zip(self.names, mu.tolist(), strict=True)), min(left, 1.0)
