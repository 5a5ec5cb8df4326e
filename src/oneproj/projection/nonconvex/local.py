"""Projection onto nonconvex constraints: local models, one per step.

Sequential quadratic programming for ``min (1/2)|d|^2, c_j(x_0 + d) <= 0``. A step p
from the displacement d minimises the model

    ``(1/2)|d + p|^2 + (1/2) p'Bp + rho max(0, max_j c_j + e_j + <grad c_j, p>)``

where B estimates the curvature ``sum_j mu_j hess c_j`` (``curvature.py``) and the aim
``e_j >= 0`` is how far the last linearisation turned out to be off. The model has a
solution also where the linearised constraints contradict each other: it then lowers the
worst residual (restoration). A step is taken if it lowers the merit
``(1/2)|d|^2 + rho max(0, max_j c_j + e_j)`` below the worse of its last two values; a
full step that does not is corrected to second order, if that is a small correction,
then shortened, and the next search begins with the length that this one came to.

The model also says how much nearer the boundary could be than the best feasible point
so far. If that is not worth a gradient, the search ends.

Models of one gradient per constraint know nothing on plateaus and little at the kinks
of a maximum. From a saddle, where a symmetric search ends, they begin anew beside it.
The way back from beyond a plateau is in ``bracket.py``, and an answer that is no KKT
point is tried a tenth nearer, lest it lies behind one. Other ways into the feasible
set are in ``descent.py``, and what may be convex is tried as if it were, also where
the gradients at the answer do not balance: at the kinks of a maximum or a norm.

All of it happens in the coordinates of ``frame.py``. The answer satisfies the KKT
conditions of the projection problem: nearest in its neighbourhood, which is all that
can be promised.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from oneproj.errors import InvalidProblemError
from oneproj.projection.bundle import Bundle
from oneproj.projection.convex import Exhaustion, project_convex, secure
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.nonconvex.chart import Carried
from oneproj.projection.nonconvex.descent import find_inside
from oneproj.projection.nonconvex.stepper import LocalModels
from oneproj.projection.tolerances import TOLERANCES
from oneproj.vectors.arithmetic import difference, dot

INSIDE = 0.1
"""A share of the violation at the start; deeper inside the boundary is not near."""
SLOW, HOPELESS = 3, 4
"""Steps in a row without progress that end the search, and the way back inside."""
LOOKS, LOWER = 50, 0.9
"""The looks for a search from beside the point where one ended outside, which may be a
saddle; and how much lower the worst residual has to be to count as progress."""
UNEVEN = 0.1
"""The KKT residual above which what may be convex is tried as if it were. Networks with
kinks end with up to 0.12, but hardly one of them may be convex."""
ROUNDS, FARTHER = 3, 1.01
"""If the way back inside led this much farther away, the search resumes from there."""


@np.errstate(over="ignore", invalid="ignore")  # a merit of inf or NaN is not taken
def project_local(
    evaluator: Evaluator,
    *,
    tolerance: float,
    progress: float,
    max_evaluations: int,
    memory: int,
    capacity: int,
    carried: Carried | None = None,
    bundle: Bundle | None = None,
    enough: float = 0.0,
) -> LocalModels:
    """Move the evaluator's parameters to a feasible point that is nearest locally.

    Stops at a feasible point whose relative KKT residual is at most ``tolerance``; at
    one that the model thinks could be nearer, in ``(1/2)|d|^2``, by at most the share
    ``progress``; or after steps in a row that gained less than that of the merit.
    ``carried`` is from a projection onto the same constraints from nearby; then the
    coarser stop for kinks always applies, since what counts is the next step.
    ``bundle`` receives the cuts, if what may be convex is tried as if it were. A worst
    residual of the share ``enough`` of the first ends the search for the time being.
    """
    models = LocalModels(
        evaluator, progress=progress, memory=memory, capacity=capacity, carried=carried
    )
    models.leave_plateau()
    _search(models, evaluator, tolerance, progress, max_evaluations, enough=enough)
    if 0 < evaluator.best.worst <= enough * evaluator.first.worst:
        models.finish()
        return models
    before, few = math.inf, min(LOOKS, max_evaluations)
    while (
        not evaluator.is_within_margins(evaluator.best)
        and evaluator.best.worst < LOWER * before
    ):
        before = evaluator.best.worst
        if models.leave_saddle():
            _search(models, evaluator, tolerance, progress, evaluator.evaluations + few)
    looks = few if evaluator.is_within_margins(evaluator.best) else max_evaluations
    if evaluator.best.worst > 0 and find_inside(
        evaluator, looks=looks, capacity=capacity
    ):
        deep = evaluator.best.worst < -INSIDE * evaluator.first.worst
        _improve(models, evaluator, tolerance, max_evaluations, fully=deep)
    models.finish()
    lost = evaluator.best.worst > 0 or evaluator.evaluations >= max_evaluations
    if carried is None and models.is_too_far(UNEVEN):
        _improve(models, evaluator, tolerance, max_evaluations, fully=True)
        models.finish()
    balanced = models.place.is_balanced(models.mu, UNEVEN)
    wrong = carried is None and not balanced
    if (lost or wrong) and may_be_convex(evaluator):
        cuts = Bundle(capacity) if bundle is None else bundle
        few = max_evaluations if lost else min(evaluator.evaluations, max_evaluations)
        # What was not declared is nobody's mistake.
        with suppress(InvalidProblemError):
            project_convex(evaluator, cuts, max_evaluations=few, declared=False)
    secure(evaluator)
    models.finish()
    return models


def _search(
    models: LocalModels,
    evaluator: Evaluator,
    tolerance: float,
    progress: float,
    max_evaluations: int,
    *,
    enough: float = 0.0,
) -> None:
    """Step by step to the answer; where that ends outside, back inside."""
    for k in range(ROUNDS):
        slow, budget = 0, max_evaluations if k == 0 else 2 * max_evaluations
        exhaustion = Exhaustion(evaluator, evaluator.best)
        while not (settled := models.settled(tolerance)):
            if evaluator.evaluations >= budget or slow >= SLOW:
                break
            if evaluator.best.worst > 0 and exhaustion.looks >= TOLERANCES.stalled:
                break
            if 0 < evaluator.best.worst <= enough * evaluator.first.worst:
                return
            before = evaluator.best.worst
            gained = models.advance() > progress
            exhaustion.note(models.place.look)
            # What is slow outside says nothing about the way along the boundary.
            slow = 0 if gained or evaluator.best.worst <= 0 < before else slow + 1
        if settled:
            break
        before = models.length
        _step_inside(models, evaluator, 2 * max_evaluations)
        if models.feasible:
            if models.length <= FARTHER * before:
                break
        elif (
            evaluator.evaluations >= max_evaluations or not models.leave_contradiction()
        ):
            break


def _improve(
    models: LocalModels,
    evaluator: Evaluator,
    tolerance: float,
    looks: int,
    *,
    fully: bool,
) -> None:
    """Come nearer from a feasible point that was found on another way.

    First back to the boundary; ``fully``, whatever the model there thinks of it.
    """
    budget = evaluator.evaluations + looks
    models.resume()
    models.close_in(fully=fully)
    slow = 0
    while (
        evaluator.evaluations < budget and slow < SLOW and not models.settled(tolerance)
    ):
        slow = 0 if models.advance() > 0 else slow + 1


def may_be_convex(evaluator: Evaluator) -> bool:
    """Whether each constraint lies above its linearisations as far as two looks tell.

    Example:
        >>> import torch
        >>> from oneproj.problem.functions import function
        >>> w = torch.tensor([2.0, 1.0], requires_grad=True)
        >>> largest = {"largest": function(lambda: w.abs().max()) <= 1.0}
        >>> evaluator = Evaluator([w], largest, differentiate_all=True)
        >>> _ = evaluator.move([torch.tensor([-1.0, 0.0])])
        >>> may_be_convex(evaluator)
        True
    """
    first, best = evaluator.first, evaluator.best
    moved = difference(evaluator.best_point, evaluator.origin)
    for name, margin in evaluator.margins.items():
        there = first.values[name] + dot(first.gradients[name], moved)
        back = best.values[name] - dot(best.gradients[name], moved)
        if there > best.values[name] + margin or back > first.values[name] + margin:
            return False
    return True


def _step_inside(
    models: LocalModels, evaluator: Evaluator, max_evaluations: int
) -> None:
    """Hovering a little outside is fine for the merit, not for the answer.

    Aims inside by what is left, and by more each time that this does not help.
    """
    extra, waited = np.zeros(len(models.mu)), 0
    while not models.feasible and waited < HOPELESS:
        if evaluator.evaluations >= max_evaluations:
            break
        least, left = models.place.look.worst, np.maximum(models.place.c, 0.0)
        extra = 2.0 * extra + left if waited else left
        models.restore(extra)
        waited = 0 if models.place.look.worst < LOWER * least else waited + 1
    if evaluator.best.worst <= 0 < models.place.look.worst:
        models.resume()
