"""The steps of the projection onto nonconvex constraints; ``local.py`` says which."""

from __future__ import annotations

import math
from operator import itemgetter

import numpy as np

from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.bracket import can_be_nearer, close_in, is_unaware
from oneproj.projection.nonconvex.chart import Carried, Chart
from oneproj.projection.nonconvex.descent import nudges
from oneproj.projection.nonconvex.line_search import SHORTENINGS, SHORTER, LineSearch
from oneproj.projection.nonconvex.model import TINY, Model, Place, Plan
from oneproj.vectors.arithmetic import Array, combine, difference, dimension

SUFFICIENT = 1e-4
"""The share of the predicted decrease of the merit that a step must deliver."""
WINDOW, EXPERIENCED = 2, 3
"""A step may be worse than the place before it, not than the last places; unless the
curvature is known from fewer moves than this."""
ABOVE = 1.5
"""The penalty's ratio to the multipliers, which it has to exceed."""
BELIEVED = 0.3
"""The share of the promised decrease that a right model delivers."""
KINKED, COARSE = 100.0, 1e-2
"""Where the model is wrong, as at kinks, a gain of this multiple of the progress asked
for, but of no more than this share, is not worth the gradients that it takes."""
BALANCED = 0.2
"""The KKT residual above which the model is too wrong for that stop. On networks with
kinks it is half of this, at most."""
SHALLOW, DEEP = 0.05, 0.25
"""The least, where the model is wrong, and the most that aiming inside may cost, as a
share of that gain."""
WRONG = 1.02
"""A model that is sure that no point is as near as this multiple, in squares, of the
best feasible one is wrong."""
LITTLE = 0.5
"""The share of the worst residual that is left where a model promises little."""
REACH = 1e1
"""No step is longer than this multiple of the distance so far, or of the parameters:
where a linearisation asks for more, a plateau is more likely than a set so far away."""


class LocalModels:
    """Where the method is, what it has seen, and how strong its penalty is."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        progress: float,
        memory: int,
        capacity: int,
        carried: Carried | None = None,
    ) -> None:
        """Start where the evaluator's parameters are."""
        self._evaluator, self._progress = evaluator, progress
        self._coarse = max(progress, min(KINKED * progress, COARSE))
        if carried is not None and carried.names != tuple(evaluator.constraints):
            carried = None
        self._chart = Chart(
            evaluator, memory=memory, capacity=capacity, carried=carried
        )
        self._begin_at(self._chart.best_place())
        self.mu: Array = np.zeros(len(self.place.c)) if carried is None else carried.mu
        self._rho = self._weakest = TINY
        self._quick, self._believed = carried is not None, True
        size = math.sqrt(dimension(evaluator.parameters))
        self._scale = max(evaluator.space.size_of_origin(), size)
        self._line = LineSearch(self._chart)

    def _begin_at(self, place: Place) -> None:
        """Go to a place from which there is no plan yet, and no steps to compare."""
        self.place = place
        self._recent = [place]
        self._plan: Plan | None = None

    def settled(self, tolerance: float) -> bool:
        """Whether the KKT conditions hold, or what could be gained is not worth it."""
        plan, place = self._planned(), self.place
        if self.feasible and place.is_balanced(plan.mu, tolerance):
            # The frame drops what is tiny: confirm over the parameters.
            return self._chart.prefer(place) and self.kkt_residual() <= tolerance
        if self._evaluator.best.worst > 0 or self._progress == 0:
            return False
        exact = self._believed and not self._quick
        worth = self._progress if exact else self._coarse
        reached = self._chart.best_half
        if plan.optimum > WRONG * reached and self._doubt():
            return False
        if reached - plan.optimum > worth * reached:
            return False
        best = self._chart.best or place
        return exact or self._quick or best.is_balanced(plan.mu, BALANCED)

    def _doubt(self) -> bool:
        """Drop a model that knows less than the best point does, if there is another.

        That is the model at the best point, with more penalty for what is violated, or
        the one there without the curvature.
        """
        if self.place.look is not self._evaluator.best:
            self._weakest = max(self._weakest, self._rho)
            self.resume()
        elif self._chart.moves > 0:
            self._chart.forget()
            self._begin_at(self.place)
        else:
            return False
        return True

    def advance(self) -> float:
        """Take the planned step; returns the share of the merit that it gained."""
        plan = self._planned()
        place, rho = self.place, self._rho
        before = place.merit(rho, plan.aim)
        worst = max(recent.merit(rho, plan.aim) for recent in self._recent)
        promised, share = max(before - plan.ahead, 0.0), self._line.share
        tries = self._line.search(place, plan, rho, worst - SUFFICIENT * promised)
        after, self.place = min(tries, key=itemgetter(0), default=(before, place))
        gained = before - after
        self._believed = len(tries) == 1 and gained >= BELIEVED * share * promised
        self._recent = [*self._recent, self.place][-WINDOW:]
        self._plan = None
        self.close_in()
        return 1.0 - after / max(before, TINY)

    def close_in(self, *, fully: bool = False) -> None:
        """From a feasible place whose model thinks that the start is too, go back.

        ``fully``, whatever it thinks, to where the way back leaves the feasible set.
        The model there is a new one: no step has confirmed it yet.
        """
        if self.feasible and (fully or is_unaware(self.place)):
            self._begin_at(close_in(self._chart, self.place, fully=fully))
            self._line.share, self._believed = 1.0, False
            self._chart.forget()

    def is_too_far(self, uneven: float) -> bool:
        """Whether this is feasible, no KKT point, and not at the boundary either."""
        if not self.feasible or self.place.is_balanced(self.mu, uneven):
            return False
        self.place = self._chart.refreshed(self.place)
        return can_be_nearer(self._chart, self.place)

    def leave_plateau(self) -> None:
        """Leave a start where what is violated has no gradient, if that helps."""
        if self.place.has_slope():
            return  # as a rule: a nudge costs a few copies of the parameters
        for moved in nudges(self._evaluator):
            self._begin_at(self._chart.jump(moved) or self.place)
            if self.place.has_slope():
                break
        self.close_in()

    def leave_saddle(self) -> bool:
        """Begin anew a little beside the best point, if its model promises little.

        A saddle between two ways down is where a search that is symmetric ends: models
        there see neither. Beside it they see one. Whether it was done.
        """
        self.resume()
        c, evaluator = self.place.c, self._evaluator
        left = c + self.place.J @ self._linear_step(c)
        if float(left.max()) <= LITTLE * float(c.max()):
            return False
        moved = difference(evaluator.best_point, evaluator.origin)
        place = self._chart.jump(combine([1.0, 1.0], [moved, next(nudges(evaluator))]))
        if place is None:
            return False
        self._begin_at(place)
        self.mu, self._rho, self._weakest = np.zeros(len(place.c)), TINY, TINY
        self._believed, self._line.share = True, 1.0
        return True

    def restore(self, extra: Array) -> None:
        """Take the shortest step that the linearised constraints, tightened, allow.

        It is shortened until it helps; the place stays if none does.
        """
        # No new beginning: the next step is compared with those before this one.
        self.place = place = self._chart.refreshed(self.place)
        self._plan = None
        p = self._linear_step(place.c + extra)
        for k in range(SHORTENINGS):
            trial = self._chart.visit(place.d + SHORTER**k * p)
            if trial is not None and trial.look.worst < place.look.worst:
                self.place = trial
                return

    def leave_contradiction(self) -> bool:
        """Leave a point where the constraints contradict each other, if possible.

        Tries to satisfy one of them at a time; whether that lowered the worst residual.
        """
        place = self._chart.refreshed(self.place)
        self._begin_at(place)
        for j in np.flatnonzero(place.c > 0):
            steepness = max(float(place.J[j] @ place.J[j]), TINY)
            p = self._within_reach(-place.c[j] / steepness * place.J[j])
            trial = self._chart.visit(place.d + p)
            if trial is not None and trial.look.worst < self.place.look.worst:
                self._begin_at(trial)
        return self.place is not place

    def resume(self) -> None:
        """Go to the best point seen, which may be that of a step not taken."""
        self._begin_at(self._chart.best_place())

    def finish(self) -> None:
        """End at the best point; if it is feasible, with the multipliers it has."""
        if self.place.look is not self._evaluator.best:
            self.resume()
        if self.feasible:
            rows = self.place.rows
            _, plain = Model.flat(rows).feasible_step(self._rho, self.place.c)
            self.mu = min(self.mu, plain, key=self.place.imbalance)

    def carry(self) -> Carried:
        """What helps a projection onto the same constraints from a point nearby."""
        return self._chart.carry(self.mu)

    @property
    def feasible(self) -> bool:
        """Whether every residual is <= 0 here."""
        return self.place.look.worst <= 0

    @property
    def length(self) -> float:
        """How far away from the start this is."""
        return math.sqrt(2.0 * self.place.half)

    def kkt_residual(self) -> float:
        """``|d + sum_j mu_j grad c_j|`` relative to ``|d|``, at the best point.

        Taken over the parameters themselves: their frame drops what is tiny.
        """
        return self._chart.imbalance(self.mu) / max(self._evaluator.moved(), TINY)

    def multipliers(self) -> dict[str, float]:
        """Mu by the constraint's name."""
        return dict(zip(self._chart.names, self.mu.tolist(), strict=True))

    def _planned(self) -> Plan:
        """The next step; the curvature depends on the multipliers, hence twice."""
        if self._plan is None:
            self.place = place = self._chart.refreshed(self.place)
            if self._chart.moves < EXPERIENCED:
                self._recent = [place]
            d, c, J = place.d, place.c, place.J
            p, mu = self._chart.model(place, self.mu).feasible_step(self._rho, c)
            aim = self._aim(d + p, p, mu)
            model = self._chart.model(place, mu)
            aimed = c + aim
            p, mu = model.feasible_step(self._rho, aimed)
            price = max(sum(mu.tolist()), self._chart.price())
            self.mu, self._rho = mu, max(ABOVE * price, self._weakest)
            ahead = self._promised(place, p, aimed)
            # With (I + B) p = -(d + J'mu); aiming inside cost mu'aim.
            bent = -0.5 * float(p.dot(d + p + mu.dot(J)))
            optimum = ahead + bent - float(mu.dot(aim))
            step = self._within_reach(p)
            if step is not p:
                ahead = self._promised(place, step, aimed)
            self._plan = Plan(model, step, mu, aim, ahead, optimum)
        return self._plan

    def _promised(self, place: Place, p: Array, aimed: Array) -> float:
        """The merit after a step, if the constraints were linear."""
        left: float = max(0.0, *(aimed + place.J.dot(p)).tolist())
        return 0.5 * _square(place.d + p) + self._rho * left

    def _linear_step(self, c: Array) -> Array:
        """The shortest step that the linearised constraints allow, with values c."""
        rows = np.vstack([self.place.J, np.zeros(len(self.place.d))])
        return self._within_reach(Model.flat(rows).feasible_step(0.0, c)[0])

    def _within_reach(self, p: Array) -> Array:
        most, length = REACH * max(self._scale, self.length), math.sqrt(_square(p))
        return p if length <= most else most / length * p

    def _aim(self, ahead: Array, p: Array, mu: Array) -> Array:
        """How far inside to aim: by the last error of a linearisation, if cheap."""
        total: float = sum(mu.tolist())
        if total == 0:
            return np.zeros(len(mu))  # nothing binds: how far inside would say nothing
        worth = self._coarse * 0.5 * _square(ahead) / max(total, TINY)
        least = 0.0 if self._believed else SHALLOW * worth
        most = worth if self._quick else DEEP * worth
        aim: Array = self._chart.bend * _square(p)
        return np.minimum(np.maximum(aim, least), most)


def _square(a: Array) -> float:
    return float(a.dot(a))
