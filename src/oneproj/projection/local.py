"""Projection onto nonconvex constraints: local models, one per step.

Sequential quadratic programming for ``min (1/2)|d|^2, c_j(x_0 + d) <= 0``. A step p
from the displacement d minimises the model

    ``(1/2)|d + p|^2 + (1/2) p'Bp + rho max(0, max_j c_j + e_j + <grad c_j, p>)``

where B estimates the curvature ``sum_j mu_j hess c_j`` (``curvature.py``) and the aim
``e_j >= 0`` is how far the last linearisation turned out to be off. The model has a
solution also where the linearised constraints contradict each other: it then lowers the
worst residual (restoration). A step is taken if it lowers the merit
``(1/2)|d|^2 + rho max(0, max_j c_j + e_j)`` below the worse of its last two values; a
full step that does not is corrected to second order, then shortened, and the next
search begins with the length that this one came to.

The model also says how much nearer the boundary could be than the best feasible point
so far. If that is not worth a gradient, the search ends.

All of it happens in the coordinates of ``frame.py``. The answer satisfies the KKT
conditions of the projection problem: nearest in its neighbourhood, which is all that
can be promised.
"""

from __future__ import annotations

import math
from operator import itemgetter

import numpy as np
import torch

from oneproj.projection.blocks import combined_norm
from oneproj.projection.chart import Carried, Chart
from oneproj.projection.descent import descend
from oneproj.projection.frame import Array
from oneproj.projection.line_search import SHORTENINGS, SHORTER, LineSearch
from oneproj.projection.model import TINY, Model, Plan
from oneproj.projection.view import View

SUFFICIENT = 1e-4
"""The share of the predicted decrease of the merit that a step must deliver."""
WINDOW, EXPERIENCED = 2, 3
"""A step may be worse than the place before it, not than the last places; unless the
curvature is known from fewer moves than this."""
ABOVE = 1.5
"""The penalty's ratio to the multipliers, which it has to exceed."""
BELIEVED = 0.3
"""The share of the promised decrease that a step delivers if the model is right."""
KINKED, COARSE = 100.0, 1e-2
"""Where the model is wrong, as at kinks, a gain of this multiple of the progress asked
for, but of no more than this share, is not worth the gradients that it takes."""
SHALLOW, DEEP = 0.05, 0.25
"""The least, where the model is wrong, and the most that aiming inside may cost, as a
share of that gain."""
SLOW, HOPELESS = 3, 4
"""Steps in a row without progress that end the search, and the way back inside."""
ROUNDS, FARTHER = 3, 1.01
"""If the way back inside led this much farther away, the search resumes from there."""


class LocalModels:
    """Where the method is, what it has seen, and how strong its penalty is."""

    def __init__(
        self,
        view: View,
        *,
        progress: float,
        memory: int,
        capacity: int,
        carried: Carried | None = None,
    ) -> None:
        """Start where the view's parameters are."""
        self._view, self._progress = view, progress
        self._coarse = max(progress, min(KINKED * progress, COARSE))
        if carried is not None and carried.names != tuple(view.constraints):
            carried = None
        self._chart = Chart(view, memory=memory, capacity=capacity, carried=carried)
        self.place = self._chart.best_place()
        self.mu: Array = np.zeros(len(self.place.c)) if carried is None else carried.mu
        self._rho, self._quick = TINY, carried is not None
        self._recent = [self.place]
        self._plan: Plan | None = None
        self._believed = True
        self._line = LineSearch(self._chart)

    def settled(self, tolerance: float) -> bool:
        """Whether the KKT conditions hold, or what could be gained is not worth it."""
        plan, place = self._planned(), self.place
        if self.feasible:
            force = place.d + plan.mu @ place.J
            if force @ force <= 2.0 * tolerance**2 * place.half:
                # The frame drops what is tiny: confirm over the parameters.
                return self._chart.prefer(place) and self.kkt_residual() <= tolerance
        if self._view.best.worst > 0 or self._progress == 0:
            return False
        exact = self._believed and not self._quick
        worth = self._progress if exact else self._coarse
        reached = self._chart.best_half
        return reached - plan.optimum <= worth * reached

    def advance(self) -> float:
        """Take the planned step; returns the share of the merit that it gained."""
        plan = self._planned()
        place, rho = self.place, self._rho
        before = place.merit(rho, plan.aim)
        worst = max(
            before if recent is place else recent.merit(rho, plan.aim)
            for recent in self._recent
        )
        promised, share = max(before - plan.ahead, 0.0), self._line.share
        tries = self._line.search(place, plan, rho, worst - SUFFICIENT * promised)
        after, self.place = min(tries, key=itemgetter(0), default=(before, place))
        gained = before - after
        self._believed = len(tries) == 1 and gained >= BELIEVED * share * promised
        self._recent = [*self._recent, self.place][-WINDOW:]
        self._plan = None
        return 1.0 - after / max(before, TINY)

    def restore(self, extra: Array) -> None:
        """Take the shortest step that the linearised constraints, tightened, allow.

        It is shortened until it helps; the place stays if none does.
        """
        self.place = place = self._chart.refreshed(self.place)
        self._plan = None
        model = Model(place.J, place.J, np.zeros(len(place.d)))
        p, _ = model.feasible_step(0.0, place.c + extra)
        for k in range(SHORTENINGS):
            trial = self._chart.visit(place.d + SHORTER**k * p)
            if trial is not None and trial.look.worst < place.look.worst:
                self.place = trial
                return

    def escape(self) -> bool:
        """Leave a point where the constraints contradict each other, if possible.

        Tries to satisfy one of them at a time; whether that lowered the worst residual.
        """
        self.place = place = self._chart.refreshed(self.place)
        self._plan = None
        for j in np.flatnonzero(place.c > 0):
            steepness = max(float(place.J[j] @ place.J[j]), TINY)
            trial = self._chart.visit(place.d - place.c[j] / steepness * place.J[j])
            if trial is not None and trial.look.worst < self.place.look.worst:
                self.place = trial
        self._recent = [self.place]
        return self.place is not place

    def resume(self) -> None:
        """Go to the best point seen, which may be that of a step not taken."""
        self.place, self._plan = self._chart.best_place(), None
        self._recent = [self.place]

    def finish(self) -> None:
        """End at the best point; if it is feasible, with the multipliers it has."""
        if self.place.look is not self._view.best:
            self.resume()
        if self.feasible:
            d, c, J = self.place.d, self.place.c, self.place.J
            _, plain = Model(J, J, -d).feasible_step(self._rho, c)
            self.mu = min(self.mu, plain, key=lambda mu: _square(d + mu @ J))

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
        view, mu = self._view, self.mu.tolist()
        moved = view.moved()
        pulls = [view.best.gradients[name] for name in self._chart.names]
        here = [view.parameters, view.origin]
        largest = min(torch.finfo(t.dtype).max for t in view.parameters)
        if not max((abs(weight) for weight in mu), default=0.0) < largest:
            return math.inf  # of an empty set: no finite weight balances it
        left = combined_norm([1.0, -1.0, *mu], [*here, *pulls])
        return left / max(moved, TINY)

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
            self.mu, self._rho = mu, max(ABOVE * float(mu.sum()), TINY)
            end, left = d + p, float((aimed + J @ p).max())
            ahead = 0.5 * float(end @ end) + self._rho * max(0.0, left)
            # With (I + B) p = -(d + J'mu); aiming inside cost mu'aim.
            bent = -0.5 * float(p @ (end + mu @ J))
            optimum = ahead + bent - float(mu @ aim)
            self._plan = Plan(model, p, mu, aim, ahead, optimum)
        return self._plan

    def _aim(self, ahead: Array, p: Array, mu: Array) -> Array:
        """How far inside to aim: by the last error of a linearisation, if cheap."""
        worth = self._coarse * 0.5 * float(ahead @ ahead) / max(float(mu.sum()), TINY)
        least = 0.0 if self._believed else SHALLOW * worth
        most = worth if self._quick else DEEP * worth
        aim: Array = self._chart.bend * float(p @ p)
        return np.minimum(np.maximum(aim, least), most)


def _square(a: Array) -> float:
    return float(a @ a)


@np.errstate(over="ignore", invalid="ignore")  # a merit of inf or NaN is not taken
def project_local(
    view: View,
    *,
    tolerance: float,
    progress: float,
    max_evaluations: int,
    memory: int,
    capacity: int,
    carried: Carried | None = None,
) -> LocalModels:
    """Move the view's parameters to a feasible point that is nearest locally.

    Stops at a feasible point whose relative KKT residual is at most ``tolerance``; at
    one that the model thinks could be nearer, in ``(1/2)|d|^2``, by at most the share
    ``progress``; or after steps in a row that gained less than that of the merit.
    ``carried`` is from a projection onto the same constraints from nearby; then the
    coarser stop for kinks always applies, since what counts is the next step.
    """
    models = LocalModels(
        view, progress=progress, memory=memory, capacity=capacity, carried=carried
    )
    for k in range(ROUNDS):
        slow, budget = 0, max_evaluations if k == 0 else 2 * max_evaluations
        while not (settled := models.settled(tolerance)):
            if view.evaluations >= budget or slow >= SLOW:
                break
            slow = 0 if models.advance() > progress else slow + 1
        if settled:
            break
        before = models.length
        _step_inside(models, view, 2 * max_evaluations)
        if models.feasible:
            if models.length <= FARTHER * before:
                break
        elif view.evaluations >= max_evaluations or not models.escape():
            break
    if view.best.worst > 0 and descend(view, looks=max_evaluations):
        models.resume()
        budget = view.evaluations + max_evaluations
        while view.evaluations < budget and not models.settled(tolerance):
            models.advance()
    models.finish()
    return models


def _step_inside(models: LocalModels, view: View, max_evaluations: int) -> None:
    """Hovering a little outside is fine for the merit, not for the answer.

    Aims inside by what is left, and by more each time that this does not help.
    """
    extra, waited = np.zeros(len(models.mu)), 0
    while not models.feasible and waited < HOPELESS:
        if view.evaluations >= max_evaluations:
            break
        least, left = models.place.look.worst, np.maximum(models.place.c, 0.0)
        extra = 2.0 * extra + left if waited else left
        models.restore(extra)
        waited = 0 if models.place.look.worst < 0.9 * least else waited + 1
    if view.best.worst <= 0 < models.place.look.worst:
        models.resume()
