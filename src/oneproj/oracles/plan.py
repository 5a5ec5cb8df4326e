"""How much data updates and anchors look at: as asked for, or as it may cost."""

from __future__ import annotations

import math
from typing import NamedTuple

from oneproj.arguments import check_count
from oneproj.defaults import OWN, Defaults
from oneproj.problem.problem import Problem
from oneproj.vectors.arithmetic import PLAIN, dimension

SLOPES = 2048
"""Examples that give the gradient of an anchor where its value is made of more. A hinge
needs the value to be exact; the gradient's error is far below that of a minibatch."""
BETWEEN_ANCHORS = 10
"""Updates, for methods without a proximal centre; with one there are about as many."""
LOOKS = 4
"""Anchors per pass over all data, at least, where not every anchor makes one."""
RAREST = 16
"""Anchors per pass over all data, at most. Data that is too large for that is sampled
at every anchor, and its values have the standard error of a mean of the sample."""
VALUES = 3
"""Examples whose values take as long as the gradient of one."""
SELDOM = 2
"""Centres per costly anchor with minibatches, where it serves the strengths alone."""


class AnchorPlan(NamedTuple):
    """How thorough anchors are; unless it says otherwise, all is seen at each centre.

    Example:
        >>> AnchorPlan(size=320, whole_every=4).every
        1
    """

    size: int | None = None
    """Examples of a constraint's larger data that an anchor samples; None for all."""
    whole_every: int | None = None
    """Anchors per pass over all of that larger data; None for never."""
    every: int = 1
    """Proximal centres per anchor."""
    at_once: int = 0
    """Examples up to which a constraint is seen on all of them at every update."""


def plan_batches(
    batch_size: int | None, problem: Problem, defaults: Defaults = OWN
) -> int:
    """Examples of a minibatch: as many as asked for, or as cost next to nothing.

    What the data of all terms is, decides: of images or sequences, a model with few
    parameters uses each many times.

    Example:
        >>> import oneproj, torch
        >>> few, many = (torch.ones(n, requires_grad=True) for n in (18, 100_000))
        >>> plan_batches(None, oneproj.Problem(few, oneproj.function(few.sum), {}))
        256
        >>> plan_batches(None, oneproj.Problem(many, oneproj.function(many.sum), {}))
        64
    """
    if batch_size is not None:
        sampled = "It is how many examples of each term an update sees."
        return check_count("batch_size", batch_size, sampled)
    if not _is_tabular(problem):
        return defaults.batch_size
    free = defaults.free_work // dimension(problem.parameters)
    return max(defaults.batch_size, min(defaults.largest_batch_size, free))


def plan_at_once(
    problem: Problem,
    batch_size: int,
    defaults: Defaults = OWN,
    *,
    given: bool = False,
    anchor_size: int | None = None,
) -> int:
    """Examples of a constraint that are all seen for what a minibatch would cost.

    A batch size that was given says what is too much, whatever the parameters do, and
    so does the size of anchors.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1000, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> plan_at_once(problem, batch_size=64)
        1250
        >>> plan_at_once(problem, batch_size=64, given=True)
        128
    """
    free = _is_tabular(problem) and not given
    cheap = defaults.whole_data_work // dimension(problem.parameters) if free else 0
    most = max(defaults.whole_data_batches * batch_size, min(SLOPES, cheap))
    return most if anchor_size is None else min(most, anchor_size)


def _is_tabular(problem: Problem) -> bool:
    terms = (problem.objective, *problem.constraints.values())
    return all(term.tabular for term in terms)


def plan_anchors(
    anchor_size: int | None,
    problem: Problem,
    batch_size: int,
    oracle: str,
    *,
    at_once: int = 0,
    defaults: Defaults = OWN,
) -> AnchorPlan:
    """Plan the anchors of a run: of the size asked for, or of what they may cost.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> problem = oneproj.Problem(w, oneproj.function(w.sum), {})
        >>> plan_anchors(None, problem, batch_size=64, oracle="anchored").size is None
        True
    """
    if anchor_size is not None:
        return AnchorPlan(anchor_size, at_once=at_once)
    affordable = defaults.anchor_work // dimension(problem.parameters)
    few = int(defaults.anchor_share * BETWEEN_ANCHORS * batch_size)
    largest = max((c.size or 0 for c in problem.constraints.values()), default=0)
    if largest <= max(few, LOOKS * affordable):
        return AnchorPlan(at_once=at_once)
    if oracle == "minibatch":  # which remembers nothing of what was seen
        return AnchorPlan(max(few, affordable), every=SELDOM)
    every = max(LOOKS, math.ceil(largest / max(affordable, VALUES * few)))
    if sees_the_same(problem) and every <= RAREST:
        return AnchorPlan(max(few, min(affordable, SLOPES)), every, at_once=at_once)
    return AnchorPlan(max(few, affordable), at_once=at_once)


def sees_the_same(problem: Problem) -> bool:
    """Whether an example has the value in a minibatch that it has among all data.

    Not if the model trains, for it evaluates here. Nor in few bits, where much of the
    value is rounding that depends on the size of the batch.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> sees_the_same(oneproj.Problem(w, oneproj.function(w.sum), {}))
        True
    """
    modules = () if problem.model is None else problem.model.modules()
    exact = all(p.dtype in PLAIN for p in problem.parameters)
    return exact and not any(module.training for module in modules)
