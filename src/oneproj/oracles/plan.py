"""How many examples updates and anchors see: as asked for, or as many as cost little.

``plan_batches`` sizes minibatches, ``plan_at_once`` says which constraints are seen as
a whole at every update, and ``plan_anchors`` how much data an anchor evaluates.
"""

from __future__ import annotations

from typing import NamedTuple

from oneproj.arguments import check_count
from oneproj.defaults import OWN, Defaults
from oneproj.problem.problem import Constrained
from oneproj.vectors.arithmetic import PLAIN, dimension

GRADIENT_EXAMPLES = 2048
"""Examples that give the gradient of an anchor where its value is made of more. A hinge
needs the value to be exact; the gradient's error is far below that of a minibatch."""
BETWEEN_ANCHORS = 10
"""Updates, for methods without a proximal centre; with one there are about as many."""
ANCHORS_PER_PASS = 4
"""Anchors per pass over all data, at least, where not every anchor makes one."""
ANCHORS_PER_REFERENCE = 16
"""Anchors that use one reference sample. Source: ``benchmarks.rows``, many_rows."""
VALUES_PER_GRADIENT = 3
"""Examples whose values take as long as the gradient of one."""
CENTERS_PER_ANCHOR = 2
"""Centres per costly anchor with minibatches, where it serves the strengths alone."""


class AnchorPlan(NamedTuple):
    """How thorough anchors are; unless it says otherwise, all is seen at each centre.

    Example:
        >>> AnchorPlan(size=320, reference_every=4).every
        1
    """

    size: int | None = None
    """Examples of a constraint's larger data that an anchor samples; None for all."""
    reference_every: int | None = None
    """Anchors per reference, an evaluation of that larger data; None for no such."""
    every: int = 1
    """Proximal centres per anchor."""
    at_once: int = 0
    """Examples up to which a constraint is seen on all of them at every update."""
    reference_size: int | None = None
    """Examples of a reference; None for all of that larger data."""


def plan_batches(
    batch_size: int | None, problem: Constrained, defaults: Defaults = OWN
) -> int:
    """Examples of a minibatch: as many as asked for, or as cost next to nothing.

    What the data of all terms is, decides: of images or sequences, a model with few
    parameters uses each many times.

    Example:
        >>> import oneproj, torch
        >>> few, many = (torch.ones(n, requires_grad=True) for n in (18, 100_000))
        >>> plan_batches(None, oneproj.Problem(few, oneproj.function(few.sum), {}))
        1024
        >>> plan_batches(None, oneproj.Problem(many, oneproj.function(many.sum), {}))
        128
    """
    if batch_size is not None:
        sampled = "It is how many examples of each term an update sees."
        return check_count("batch_size", batch_size, sampled)
    if not _is_tabular(problem):
        return defaults.batch_size
    free = defaults.free_work // dimension(problem.parameters)
    return max(defaults.batch_size, min(defaults.largest_batch_size, free))


def plan_at_once(
    batch_size: int, anchor_size: int | None = None, defaults: Defaults = OWN
) -> int:
    """Examples of a constraint that are all seen for what minibatches would cost.

    No more than an anchor may see, if that was asked for.

    Example:
        >>> plan_at_once(batch_size=64), plan_at_once(batch_size=64, anchor_size=100)
        (128, 100)
    """
    most = defaults.whole_data_batches * batch_size
    return most if anchor_size is None else min(most, anchor_size)


def _is_tabular(problem: Constrained) -> bool:
    return all(term.tabular for term in problem.terms)


def plan_anchors(
    anchor_size: int | None,
    problem: Constrained,
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
    if largest <= max(few, ANCHORS_PER_PASS * affordable):
        return AnchorPlan(at_once=at_once)
    if oracle == "minibatch":  # which remembers nothing of what was seen
        return AnchorPlan(max(few, affordable), every=CENTERS_PER_ANCHOR)
    if not is_exact(problem):
        return AnchorPlan(max(few, affordable), at_once=at_once)
    size = max(few, min(affordable, GRADIENT_EXAMPLES))
    values = max(affordable, VALUES_PER_GRADIENT * few)
    if largest <= ANCHORS_PER_PASS * values:
        return AnchorPlan(size, ANCHORS_PER_PASS, at_once=at_once)
    every, reference_size = ANCHORS_PER_REFERENCE, 2 * values
    return AnchorPlan(size, every, at_once=at_once, reference_size=reference_size)


def is_exact(problem: Constrained) -> bool:
    """Whether the values of an example at two anchors can be compared.

    Not in few bits, where much of the value is rounding that depends on the size of the
    batch.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> is_exact(oneproj.Problem(w, oneproj.function(w.sum), {}))
        True
    """
    return all(p.dtype in PLAIN for p in problem.parameters)


def sees_the_same(problem: Constrained) -> bool:
    """Whether an example has the value in a minibatch that it has among all data.

    Not if the model trains, for anchors are in evaluation mode.

    Example:
        >>> import oneproj, torch
        >>> w = torch.ones(1, requires_grad=True)
        >>> sees_the_same(oneproj.Problem(w, oneproj.function(w.sum), {}))
        True
    """
    modules = () if problem.model is None else problem.model.modules()
    return is_exact(problem) and not any(module.training for module in modules)
