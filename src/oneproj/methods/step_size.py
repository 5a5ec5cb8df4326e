"""How long the first step of Algorithm 1 is, and how many inner steps there are.

``default_lr`` tries the mean step of a run where it begins.

``far_lr`` lengthens it for a start that is far from feasible. A step of Adam changes a
parameter by about lr, so N updates with a decay change it by about ``N lr / 2``. The
distance to a bound is at least ``c_j(x) / |grad c_j(x)|_1``, in the parameter that
changes most, if c_j is convex. The steps together should be ``far_start_path`` times
that. A c_j that is not declared convex may be nearly flat at the start and seem far
from everything, so its distance counts for no more than the largest parameter that it
depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import TypeAlias

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from oneproj.arguments import at_most_five
from oneproj.defaults import OWN, Defaults
from oneproj.errors import InvalidProblemError, warn
from oneproj.methods.checks import check_inner_steps
from oneproj.oracles.anchor import Anchor
from oneproj.oracles.base import Sampler
from oneproj.problem.checks import holds
from oneproj.problem.modes import evaluating, evaluating_when_called
from oneproj.problem.problem import Problem
from oneproj.problem.terms import AbstractTerm
from oneproj.results import Counts
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Vector, assign, rounding_unit, snapshot

EXAMPLES = 64
"""Of each term, on which first steps are tried where no batch size is known."""
MINIBATCHES = 8
"""Of the objective, at most, on which they are tried. A direction from one follows its
noise, and a step along it is too long where a step of the run is not. Source:
worst_group_network."""
TRIAL_UPDATES = 5
"""Updates of Adam that confirm a first step. A transformer of 10^7 parameters gains by
one update with a step that ruins it by the third. Source: ``benchmarks.overhead``."""
ROUNDINGS = 8.0
"""Units of rounding: a difference of values is no more exact than this."""
FLAT = 1e-30
"""Least L1 norm of a gradient: a function without one may not become violated."""
FARTHEST = 1e6
"""Longest distance to a bound that is believed: c_j may be flat at the start."""


def choose_inner_steps(
    inner_steps: int | None, steps: int, defaults: Defaults = OWN
) -> int:
    """Return K as asked for, or 10, or half of fewer than 20 updates.

    Example:
        >>> choose_inner_steps(None, 500), choose_inner_steps(None, 8)
        (10, 4)
    """
    if inner_steps is None:
        if steps == 1:
            message = (
                "steps=1 is too few: the next centre is a mean of the iterates before "
                "each step, so the start itself is projected. Give 2 or more."
            )
            warn(message)
        # Not 1 where there is a choice: the centre would never move.
        return min(steps, defaults.inner_steps, max(2, steps // 2))
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


def default_lr(
    problem: Problem,
    examples: int = EXAMPLES,
    defaults: Defaults = OWN,
    counts: Counts | None = None,
) -> float:
    """Return the longest first step, up to 0.1, whose half does no harm at the start.

    With a warm-up and a decay the mean step of a run is lr / 2. It is tried where the
    run begins, along the step that Adam makes there on average: minus the mean of the
    objective's gradient on several minibatches over its root mean square, which is
    between -1 and 1 in each parameter and near 0 where minibatches disagree. Then

    * the objective, on the minibatches, is not larger than at the start.
    * violations do not grow too much. ``V = sum_j max(c_j, 0) / |grad c_j|_1`` is their
      sum, with gradients at the start, so that units do not count. It may grow by
      ``lr_rise`` times what it was plus the objective's fall over ``|grad f|_1``.

    Then some updates of Adam are made with that step, after which the objective is not
    larger either: updates follow their minibatches, and may go the same way in a row.

    Fresh networks allow about one over the width of their layers, trained ones less.
    Rows of an embedding that no example looks up do not move, and so do not count.

    Args:
        problem: Its parameters hold the start, and hold it again afterwards.
        examples: Of each term in a minibatch, drawn at random.
        defaults: The longest step, the number of its halvings, and the limit.
        counts: Where the gradients are counted; None for nowhere.

    Example:
        >>> import oneproj, torch
        >>> w = torch.zeros(100, requires_grad=True)
        >>> narrow = oneproj.function(lambda: (w.sum() - 1.0).square())
        >>> default_lr(oneproj.Problem(w, narrow, {}))  # a step of 0.01 is the best
        0.025
    """
    parameters, draws = problem.parameters, torch.Generator().manual_seed(0)
    sampler = Sampler(problem.objective, examples, draws)
    several = min(MINIBATCHES, max(1, (problem.objective.size or 0) // examples))
    objective = [
        partial(_value, problem.objective, sampler.draw(), parameters)
        for _ in range(several)
    ]
    constraints = [
        partial(_value, c, c.draw(examples, draws), parameters)
        for c in problem.constraints.values()
    ]
    start = snapshot(parameters)
    direction, steepness = _mean_step(objective, parameters)
    sizes = _steepness(problem, constraints)
    if counts is not None:
        counts.objective_gradients += several
        counts.constraint_gradients += len(constraints)

    def scaled_objective() -> float:
        return math.fsum(value().item() for value in objective) / several / steepness

    def violation() -> float:
        total = 0.0
        for value, size in zip(constraints, sizes, strict=True):
            total += max(value().item(), 0.0) / size
        return total

    def is_harmless(t: float) -> bool:
        torch._foreach_copy_(parameters, start)
        torch._foreach_add_(parameters, direction, alpha=t)
        f = scaled_objective()
        allowed = violated + defaults.lr_rise * (violated + most - f)
        return f <= most and violation() <= allowed

    def trial_gains(t: float) -> bool:
        torch._foreach_copy_(parameters, start)
        _update(parameters, cycle(objective), lr=t)
        if counts is not None:
            counts.objective_gradients += TRIAL_UPDATES
        return scaled_objective() <= most

    t = 0.5 * defaults.longest_lr
    shortest = t * 0.5**defaults.lr_halvings
    try:
        with torch.no_grad():
            most, violated = scaled_objective(), violation()
            most += ROUNDINGS * rounding_unit(parameters) * abs(most)
            t = _halved(t, shortest, is_harmless)
            # Not the objective stopped it, at the last step that was tried.
            held = t <= shortest and scaled_objective() <= most
            t = _halved(t, shortest, trial_gains)
    finally:
        assign(parameters, start)
    if held:
        _warn_of_flat(dict(zip(problem.constraints, sizes, strict=True)), 2.0 * t)
    return 2.0 * t


def _halved(t: float, shortest: float, is_short: Callable[[float], bool]) -> float:
    while t > shortest and not is_short(t):
        t *= 0.5
    return t


def _warn_of_flat(sizes: Mapping[str, float], lr: float) -> None:
    """Warn of constraints without a gradient at a start that no step may leave."""
    names = [name for name, size in sizes.items() if size <= FLAT]
    if not names:
        return
    message = (
        "The run will hardly leave its start: the gradient of "
        f"{at_most_five(names)} is 0 there and every step violates it, so the first "
        f"step is the shortest, lr={lr:.1g}. A function that says nothing at its "
        "start, as a squared norm at 0, needs another one, a little noise for example; "
        "or pass lr=0.01."
    )
    warn(message)


BatchValue: TypeAlias = Callable[[], Tensor]
"""Returns the value of a term on one minibatch, at the current parameters."""


def _value(term: AbstractTerm, indices: Tensor | None, parameters: Vector) -> Tensor:
    """Return the value of a term on these examples, in evaluation mode."""
    keep_rng = torch.random.fork_rng(range(torch.cuda.device_count()))
    unknown_modules = evaluating_when_called(enabled=not holds(term.model, parameters))
    with keep_rng, evaluating(term.model), unknown_modules:
        return term.batch_value(indices)


def _update(parameters: Vector, batches: Iterator[BatchValue], lr: float) -> None:
    """Make the trial updates, each on the next minibatch; ``.grad`` stays as it is."""
    kept = [p.grad for p in parameters]
    try:
        adam = Adam(parameters, lr=lr)
        for value in islice(batches, TRIAL_UPDATES):
            gradient = _gradient(value, parameters)
            for p, part in zip(parameters, gradient, strict=True):
                p.grad = part
            adam.step()
    finally:
        for p, grad in zip(parameters, kept, strict=True):
            p.grad = grad


def _mean_step(
    batches: Sequence[BatchValue], parameters: Vector
) -> tuple[list[Tensor], float]:
    """Return minus the mean gradient over its root mean square, and its L1 norm."""
    wide = [torch.promote_types(p.dtype, torch.float32) for p in parameters]
    pairs = list(zip(parameters, wide, strict=True))
    total, squares = ([torch.zeros_like(p, dtype=d) for p, d in pairs] for _ in "mv")
    for value in batches:
        parts = zip(_gradient(value, parameters), wide, strict=True)
        gradient = [part.to(dtype) for part, dtype in parts]
        torch._foreach_add_(total, gradient)
        torch._foreach_addcmul_(squares, gradient, gradient)
    roots = [(len(batches) * square).sqrt() for square in squares]
    steps = zip(total, roots, parameters, strict=True)
    step = [torch.where(v > 0, -m / v, 0.0).to(p.dtype) for m, v, p in steps]
    return step, _l1_norm(total) / len(batches)


def _l1_norm(gradient: Sequence[Tensor]) -> float:
    """Return the sum of absolute entries, or nearly 0 where they are 0."""
    return max(math.fsum(float(part.abs().sum()) for part in gradient), FLAT)


def _steepness(problem: Problem, values: Sequence[BatchValue]) -> list[float]:
    """Return the L1 norms of gradients; of a set that has none here, what it may be.

    The residual of a set is a distance, whose gradient has a Euclidean norm of 1 at
    most. At points such as a matrix of zeros in a set of low rank it is 0.
    """
    found = []
    for constraint, value in zip(problem.constraints.values(), values, strict=True):
        size = _l1_norm(_gradient(value, problem.parameters))
        if size <= FLAT and isinstance(constraint, SetConstraint):
            size = math.sqrt(constraint.tensor.numel())
        found.append(size)
    return found


@torch.enable_grad()
def _gradient(value: BatchValue, parameters: Vector) -> list[Tensor]:
    """Return the gradient of a value; zeros where it has none."""
    zeros, found = [torch.zeros_like(p) for p in parameters], value()
    if not found.requires_grad:
        return zeros
    gradient = torch.autograd.grad(found, list(parameters), allow_unused=True)
    pairs = zip(zeros, gradient, strict=True)
    return [zero if part is None else part.to_dense() for zero, part in pairs]


def far_lr(
    anchor: Anchor,
    steps: int,
    convex: Collection[str] = (),
    defaults: Defaults = OWN,
) -> float:
    """The step with which that many updates come back from such a start.

    Args:
        anchor: The constraints at the start.
        steps: Updates that are planned.
        convex: The constraints that are declared to be.
        defaults: How long all steps together should be.

    Example:
        >>> import torch
        >>> values = {"cap": 60.0}
        >>> jacobian = {"cap": [torch.tensor([2.0, 1.0])]}
        >>> far_lr(Anchor([torch.tensor([25.0, 9.0])], values, jacobian), steps=500)
        0.96
        >>> far_lr(Anchor([torch.tensor([0.5, 0.1])], values, jacobian), steps=500)
        0.024
        >>> near = Anchor([torch.tensor([0.5, 0.1])], values, jacobian)
        >>> far_lr(near, steps=500, convex=["cap"])
        0.96
    """
    distance = 0.0
    for name, c in anchor.values.items():
        gradient = anchor.jacobian[name]
        steepness = sum(float(part.abs().sum()) for part in gradient)
        if c > 0 and steepness > 0:
            limit = FARTHEST if name in convex else _largest(anchor.point, gradient)
            distance = max(distance, min(c / steepness, limit))
    path = 2.0 * defaults.far_start_path / steps
    return distance * min(path, defaults.far_start_share)


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


def _largest(point: Vector, gradient: Vector) -> float:
    """Return the largest absolute entry of a point among those with a gradient."""
    parts = zip(point, gradient, strict=True)
    sizes = [float(x[slope != 0].abs().max()) for x, slope in parts if slope.any()]
    return max(sizes, default=0.0)
