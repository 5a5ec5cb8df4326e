"""Projection onto nonconvex constraints: local models, one per step.

Sequential quadratic programming for ``min (1/2)|d|^2, c_j(x_0 + d) <= 0``. A step p
from the displacement d minimises the model

    ``(1/2)|d + p|^2 + (1/2) p'Bp + rho max(0, max_j c_j + <grad c_j, p>)``

where B estimates the curvature ``sum_j mu_j hess c_j`` (``curvature.py``). The model
has a solution also where the linearised constraints contradict each other: it then
lowers the worst residual (restoration). A step is taken if it lowers the merit
``(1/2)|d|^2 + rho max(0, max_j c_j)``; a full step that does not is corrected to second
order, then shortened.

All of it happens in the coordinates of ``frame.py``. The answer satisfies the KKT
conditions of the projection problem: nearest in its neighbourhood, which is all that
can be promised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oneproj.errors import NonFiniteError
from oneproj.parameters import Vector, combine, difference, norm
from oneproj.projection.curvature import Curvature
from oneproj.projection.frame import Array, Frame, pad
from oneproj.projection.view import Look, View
from oneproj.simplex_qp import solve_simplex_qp

SUFFICIENT = 1e-4
"""The share of the predicted decrease of the merit that a step must deliver."""
SHORTER, SHORTENINGS = 0.4, 8
"""By how much, and how often at most, a step is shortened."""
STRONGER, STRONGEST = 5.0, 1e12
"""By how much the penalty grows when it is too weak to reach the constraints."""
ABOVE = 1.5
"""The penalty's ratio to the multipliers, which it has to exceed."""
CLOSE, FULL = 1e-9, 0.99
"""A linearised residual of this share is reached; multipliers that add up to this
share of the penalty say that the penalty holds them back."""
ROUNDING = 1e-13
"""Changes of the merit below this share are rounding."""
SLOW, HOPELESS = 2, 4
"""Steps in a row without progress that end the search, and the way back inside."""
ROUNDS, FARTHER = 3, 1.01
"""If the way back inside led this much farther away, the search resumes from there."""
TINY = 1e-300


@dataclass(frozen=True)
class Place:
    """A visited point: displacement, residuals plus margins, gradients as rows."""

    d: Array
    c: Array
    J: Array
    look: Look

    def merit(self, rho: float) -> float:
        """The merit function."""
        return 0.5 * float(self.d @ self.d) + rho * max(0.0, float(self.c.max()))


@dataclass(frozen=True)
class Model:
    """The quadratic model at a place, with the inverse of ``I + B`` applied."""

    J: Array
    normals: Array
    """``(I + B)^{-1} grad c_j``, as rows."""
    free: Array
    """The step without constraints, ``-(I + B)^{-1} d``."""

    def step(self, rho: float, c: Array) -> tuple[Array, Array]:
        """The minimiser and its multipliers, for residuals c."""
        m = len(c)
        # In units of rho the multipliers and a slack lie in the unit simplex.
        P, w = np.zeros((m + 1, m + 1)), np.zeros(m + 1)
        P[:m, :m] = rho * (self.J @ self.normals.T)
        w[:m] = -(c + self.J @ self.free)
        mu = rho * solve_simplex_qp(P, w, np.ones(m + 1, dtype=bool)).z[:m]
        return self.free - mu @ self.normals, mu

    def feasible_step(self, rho: float, c: Array) -> tuple[Array, Array, float]:
        """The step with a penalty, at least rho, that reaches the constraints.

        Returns the step, its multipliers and the penalty, which is the strongest
        allowed where the linearised constraints contradict each other.
        """
        steepness = float((self.J * self.normals).sum(axis=1).max())
        size = float(np.abs(c).max())
        rho = max(rho, size / max(steepness, TINY))
        while True:
            p, mu = self.step(rho, c)
            reached = float((c + self.J @ p).max()) <= CLOSE * size
            if reached or mu.sum() < FULL * rho or rho > STRONGEST * max(size, TINY):
                return p, mu, rho
            rho *= STRONGER


class LocalModels:
    """Where the method is, what it has seen, and how strong its penalty is."""

    def __init__(self, view: View, *, memory: int, capacity: int) -> None:
        """Start where the view's parameters are."""
        self._view, self._frame = view, Frame()
        self._names = list(view.constraints)
        self._margins = np.array([view.margins[name] for name in self._names])
        self._memory, self._capacity = memory, capacity
        self._curvature = Curvature(memory)
        self._rho = 0.0
        self.mu: Array = np.zeros(len(self._names))
        self.place = self._place(np.zeros(0), view.first)

    def advance(self) -> float:
        """Take one step; returns the share of the merit that it gained."""
        self._make_room()
        model, p, self.mu = self._propose()
        total = float(self.mu.sum())
        self._rho = max(ABOVE * total, min(self._rho, STRONGER * total), TINY)
        before, c = self.place, self.place.c + self.place.J @ p
        merit = before.merit(self._rho)
        ahead = Place(before.d + p, c, before.J, before.look).merit(self._rho)
        self.place = self._search(
            model, p, merit - SUFFICIENT * max(merit - ahead, 0.0)
        )
        self._remember(before, self.place)
        return 1.0 - self.place.merit(self._rho) / max(merit, TINY)

    def restore(self, extra: Array) -> None:
        """Take the shortest step that the linearised constraints, tightened, allow.

        It is shortened until it helps; the place stays if none does.
        """
        self._make_room()
        place = self.place
        model = Model(place.J, place.J, np.zeros(len(place.d)))
        p, _, _ = model.feasible_step(0.0, place.c + extra)
        for k in range(SHORTENINGS):
            trial = self._try(place.d + SHORTER**k * p)
            if trial is not None and trial.look.worst < place.look.worst:
                self.place = trial
                return

    def resume(self) -> None:
        """Go to the best point seen, which may be that of a step not taken."""
        moved = difference(self._view.best_point, self._view.origin)
        self._start_frame(moved, self._view.best)
        self.mu, self._rho = np.zeros(len(self._names)), 0.0

    @property
    def feasible(self) -> bool:
        """Whether every residual is <= 0 here."""
        return self.place.look.worst <= 0

    @property
    def length(self) -> float:
        """How far away from the start this is."""
        return float(np.linalg.norm(self.place.d))

    def kkt_residual(self) -> float:
        """``|d + sum_j mu_j grad c_j|`` relative to ``|d|``, at the best point.

        Taken over the parameters themselves: their frame drops what is tiny.
        """
        moved = difference(self._view.best_point, self._view.origin)
        pulls = [self._view.best.gradients[name] for name in self._names]
        forces = combine([1.0, *self.mu], [moved, *pulls])
        return norm(forces) / max(norm(moved), TINY)

    def multipliers(self) -> dict[str, float]:
        """Mu by the constraint's name."""
        return dict(zip(self._names, self.mu.tolist(), strict=True))

    def _propose(self) -> tuple[Model, Array, Array]:
        """The model's step, with a penalty strong enough to reach the constraints."""
        place, mu = self.place, self.mu
        for _ in range(2):  # the curvature depends on the multipliers: once more
            inverse = self._curvature.inverse(mu, self._frame.size)
            model = Model(place.J, place.J @ inverse, -inverse @ place.d)
            p, mu, self._rho = model.feasible_step(self._rho, place.c)
        return model, p, mu

    def _search(self, model: Model, p: Array, enough: float) -> Place:
        """Try the step, its second-order correction, then shorter ones."""
        start, rho = self.place, self._rho
        limit = enough + ROUNDING * abs(enough)
        tried = start
        for k in range(SHORTENINGS):
            trial = self._try(start.d + SHORTER**k * p)
            if trial is None:
                continue
            if trial.merit(rho) <= limit:
                return trial
            tried = trial
            self._remember(start, trial)
            if k == 0:
                # The linear model was off by this much; aim at the true residuals.
                corrected, _ = model.step(rho, trial.c - start.J @ p)
                trial = self._try(start.d + corrected)
                if trial is not None and trial.merit(rho) <= limit:
                    return trial
        return tried

    def _try(self, d: Array) -> Place | None:
        """The place at d, or None where a constraint is not a number."""
        try:
            return self._visit(d)
        except NonFiniteError:
            return None

    def _visit(self, d: Array) -> Place:
        return self._place(d, self._view.move(self._frame.vector(d)))

    def _place(self, d: Array, look: Look) -> Place:
        rows = [self._frame.coordinates(look.gradients[name]) for name in self._names]
        n = self._frame.size
        c = np.array([look.values[name] for name in self._names]) + self._margins
        return Place(pad(d, n), c, np.array([pad(row, n) for row in rows]), look)

    def _remember(self, start: Place, end: Place) -> None:
        n = self._frame.size
        move = pad(end.d, n) - pad(start.d, n)
        change = np.array(
            [pad(b, n) - pad(a, n) for a, b in zip(start.J, end.J, strict=True)]
        )
        if move @ move > ROUNDING**2 * (end.d @ end.d):
            self._curvature.add(move, change)

    def _start_frame(self, moved: Vector, look: Look) -> None:
        self._frame, self._curvature = Frame(), Curvature(self._memory)
        for name in self._names:
            self._frame.coordinates(look.gradients[name])
        self.place = self._place(self._frame.coordinates(moved), look)

    def _make_room(self) -> None:
        """Bring the place to the frame's size; start a new frame when it is full."""
        if self._frame.size + len(self._names) > self._capacity:
            self._start_frame(self._frame.vector(self.place.d), self.place.look)
        n, place = self._frame.size, self.place
        J = np.array([pad(row, n) for row in place.J])
        self.place = Place(pad(place.d, n), place.c, J, place.look)


def project_local(
    view: View,
    *,
    tolerance: float,
    progress: float,
    max_evaluations: int,
    memory: int,
    capacity: int,
) -> LocalModels:
    """Move the view's parameters to a feasible point that is nearest locally.

    Stops at a feasible point whose relative KKT residual is at most ``tolerance``, or
    after two steps in a row that gained less than the share ``progress`` of the merit.
    """
    models = LocalModels(view, memory=memory, capacity=capacity)
    for k in range(ROUNDS):
        slow, budget = 0, max_evaluations if k == 0 else 2 * max_evaluations
        while view.evaluations < budget and slow < SLOW:
            slow = slow + 1 if models.advance() <= progress else 0
            if models.feasible and models.kkt_residual() <= tolerance:
                break
        before = models.length
        _step_inside(models, view, 2 * max_evaluations)
        if not models.feasible or models.length <= FARTHER * before:
            break
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
