"""The steps of Algorithm 1 where nobody says: how long they are, and how many to K.

A step of Adam changes a parameter by about lr at most, so N updates that decay change
it by about ``N lr / 2``. A start can be farther than that from being feasible: a model
that fits its task perfectly has parameters of the size 30, and is now to keep a cap on
another. The way to a bound is, in the parameter that changes most,

    ``c_j(x) / |grad c_j(x)|_1``

at least if c_j is convex, and the way from there to the solution comes on top. Steps
whose sum is not ``WAYS`` times that are lengthened until it is. Of a c_j that is not
declared convex, a start where it is nearly flat would be said to be far from
everything, so the size of the largest parameter that it depends on is the most that
counts: other starts are near zero, and remain as they are. Of one that is, the way is
what it is, up to ``FARTHEST``: a mean prediction that is to be 200 takes an intercept
of about 200, from wherever it starts.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from oneproj.errors import InvalidProblemError, warn
from oneproj.methods.checks import check_inner_steps
from oneproj.oracles import Anchor
from oneproj.problem.checks import holds
from oneproj.problem.modes import evaluating, evaluating_when_called
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.vectors.arithmetic import Vector, dimension

INNER_STEPS = 10
"""K, unless the user says otherwise."""
LR, FEW_PARAMETERS = 0.1, 1000
"""The step unless the user says otherwise, and up to how many parameters."""
EXAMPLES, LOOKED_UP = 8, 0.25
"""So many show of which tensors only a part is in use, and how small it is if entries
are looked up: of a layer half the units can be off."""
WAYS = 12.0
"""So many times the way to the bounds is what all steps together should allow."""
FARTHEST = 1e6
"""No way to a bound is taken for longer: c_j may be flat because nothing meets it."""
LONGEST = 0.05
"""Of that way: no step becomes longer than this share, however few there are."""


def choose_inner_steps(inner_steps: int | None, steps: int) -> int:
    """K as asked for, or about 10 so that hardly an update is left over.

    Example:
        >>> choose_inner_steps(None, 500), choose_inner_steps(None, 484)
        (10, 11)
    """
    if inner_steps is None:
        if steps == 1:
            message = (
                "steps=1 is too few: the next centre is a mean of the iterates before "
                "each step, so the start itself is projected. Give 2 or more."
            )
            warn(message)
        # Not 1 where there is a choice: the centre would never move.
        middle = min(INNER_STEPS, max(2, steps // 2))
        near = range(min(steps, max(2, middle // 2)), middle + middle // 2 + 1)
        return min(near, key=lambda K: (steps % K, abs(K - middle)))
    inner_steps = check_inner_steps(inner_steps)
    if inner_steps == 1:
        message = (
            "inner_steps=1 would return the start: the next centre is the mean of the "
            "iterates before each step (line 14 of Algorithm 1), and with one of them "
            "that is the centre itself. Give 2 or more, or leave it out."
        )
        raise InvalidProblemError(message)
    if steps < inner_steps:
        message = (
            f"steps={steps} is less than inner_steps={inner_steps}: no outer iteration "
            "would complete and the start would be returned. Give more steps, or fewer "
            "inner_steps."
        )
        raise InvalidProblemError(message)
    if left := steps % inner_steps:
        message = (
            f"steps={steps} is not a multiple of inner_steps={inner_steps}: the last "
            f"{left} updates end inside an outer iteration and do not reach the answer."
        )
        warn(message)
    return inner_steps


def default_lr(problem: Problem) -> float:
    """``0.1 / sqrt(n / 1000)`` for n > 1000 parameters, 0.1 for fewer.

    A step of Adam changes every parameter by about lr, so a score that adds up n of
    them changes by n times that, while they are of the size 1 / sqrt(n) that
    initialisations give them. The rule yields what is common: 0.01 for 10^5 parameters,
    0.001 for 10^7. Those of which an example uses a few, as it does of the rows of an
    embedding or of weights of sparse features, count for these few.

    Example:
        >>> import oneproj, torch
        >>> w = torch.zeros(100_000, requires_grad=True)
        >>> round(default_lr(oneproj.Problem(w, oneproj.function(w.sum), {})), 6)
        0.01
        >>> table = torch.nn.Embedding(50_000, 2)
        >>> risk = oneproj.mean(lambda i: table(i).square().sum(1), torch.arange(20))
        >>> default_lr(oneproj.Problem(table.parameters(), risk, {}))
        0.1
    """
    n = dimension(problem.parameters)
    if n > FEW_PARAMETERS:
        terms = (problem.objective, *problem.constraints.values())
        used = [_in_use(term, problem.parameters) for term in terms]
        most = [max(counts) for counts in zip(*used, strict=True)]
        pairs = zip(problem.parameters, most, strict=True)
        n = sum(count or p.numel() for p, count in pairs)
    return LR * min(1.0, math.sqrt(FEW_PARAMETERS / n))


@torch.enable_grad()
def _in_use(term: AbstractTerm, parameters: Vector) -> list[int]:
    """How many numbers of each tensor a few examples of a term depend on.

    Of a tensor with slopes all over all count. One without any may have some as soon as
    the first step is made, as before a layer of zeros: 0 says that nothing is known.
    """
    some = None
    if term.size is not None:
        some = torch.arange(EXAMPLES, device="cpu") * term.size // EXAMPLES
    drawn = torch.random.fork_rng(range(torch.cuda.device_count()))
    unseen = evaluating_when_called(enabled=not holds(term.model, parameters))
    with drawn, evaluating(term.model), unseen:
        value = term.batch_value(some)
        if not value.requires_grad:  # evaluating, a model may be without a graph
            return [0] * len(parameters)
        slopes = torch.autograd.grad(value, list(parameters), allow_unused=True)
    used = []
    for p, slope in zip(parameters, slopes, strict=True):
        found = 0
        if slope is not None:
            dense = slope.coalesce().values() if slope.is_sparse else slope
            found = int(torch.count_nonzero(dense))
        used.append(found if found < LOOKED_UP * p.numel() else p.numel())
    return used


def far_lr(anchor: Anchor, steps: int, convex: Collection[str] = ()) -> float:
    """The step with which that many updates come back from such a start.

    Args:
        anchor: The constraints at the start.
        steps: Updates that are planned.
        convex: The constraints that are declared to be.

    Example:
        >>> import torch
        >>> values = {"cap": 60.0}
        >>> slope = {"cap": [torch.tensor([2.0, 1.0])]}
        >>> far_lr(Anchor([torch.tensor([25.0, 9.0])], values, slope), steps=500)
        0.96
        >>> far_lr(Anchor([torch.tensor([0.5, 0.1])], values, slope), steps=500)
        0.024
        >>> near = Anchor([torch.tensor([0.5, 0.1])], values, slope)
        >>> far_lr(near, steps=500, convex=["cap"])
        0.96
    """
    way = 0.0
    for name, c in anchor.values.items():
        slopes = anchor.jacobian[name]
        steepness = sum(float(slope.abs().sum()) for slope in slopes)
        if c > 0 and steepness > 0:
            certain = FARTHEST if name in convex else _largest(anchor.point, slopes)
            way = max(way, min(c / steepness, certain))
    return way * min(2.0 * WAYS / steps, LONGEST)


def lengthen(optimizer: Optimizer, scheduler: LRScheduler, lr: float) -> None:
    """Make lr the first step of a run, before any was made, if it is the longer.

    The prox weight falls as the steps grow: a step goes the same share of its way to
    the proximal centre as before, and does not overshoot it.

    Example:
        >>> import torch
        >>> from torch.optim.lr_scheduler import LambdaLR
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        >>> scheduler = LambdaLR(optimizer, lambda k: 1.0 / (k + 1))
        >>> lengthen(optimizer, scheduler, 0.8)
        >>> optimizer.step(); scheduler.step(); scheduler.get_last_lr()
        [0.4]
    """
    for k, group in enumerate(optimizer.param_groups):
        if lr > group["initial_lr"]:
            factor = lr / group["initial_lr"]
            group["lr"] *= factor
            if "prox_weight" in group:
                group["prox_weight"] /= factor
            group["initial_lr"] = scheduler.base_lrs[k] = lr


def _largest(point: Vector, slopes: Vector) -> float:
    """The largest entry among those with a slope."""
    parts = zip(point, slopes, strict=True)
    sizes = [float(x[slope != 0].abs().max()) for x, slope in parts if slope.any()]
    return max(sizes, default=0.0)
