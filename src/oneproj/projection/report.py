"""What a projection says of its answer: numbers, and words where they are unusual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from oneproj.errors import InvalidProblemError
from oneproj.problem.terms import AbstractTerm
from oneproj.progress import require
from oneproj.projection.bundle import Bundle
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.within_sets import SetBundle
from oneproj.results import NEAREST, Projection, Status
from oneproj.sets.region import Region
from oneproj.vectors.arithmetic import (
    Vector,
    combine,
    difference,
    norm,
    relative_distance,
)

UNBALANCED = 0.5
"""A KKT residual above this says little for the answer. On networks, those with kinks
included, it is a tenth of that."""
LOOSE = NEAREST.distance_over_bound


def describe(
    evaluator: Evaluator,
    best: Evaluation,
    distance: float,
    *,
    multipliers: Mapping[str, float] | None = None,
    kkt_residual: float = 0.0,
    lower_bound: float | None = None,
    empty: bool = False,
    remark: str = "",
) -> Projection:
    """Describe the point that the parameters hold: feasible or not, and how near.

    Args:
        evaluator: Through which it was found.
        best: The evaluation there.
        distance: From the start.
        multipliers: By name; 0 for those that are left out.
        kkt_residual: How far they are from balancing the displacement, relative to it.
        lower_bound: A distance below which no feasible point lies, if that is proven.
        empty: Whether it is proven that there is no feasible point.
        remark: What is to be said of it in any case.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0], requires_grad=True)
        >>> cap = {"cap": oneproj.function(w.sum) <= 1.0}
        >>> evaluator = Evaluator([w], cap, differentiate_all=True)
        >>> describe(evaluator, evaluator.best, 0.0).status.name
        'INFEASIBLE'
    """
    weights, flat = multipliers or {}, _flat_remark(evaluator, best)
    status = Status.FEASIBLE if best.worst <= 0 else Status.INFEASIBLE
    projection = Projection(
        status=Status.PROVEN_INFEASIBLE if empty else status,
        distance=distance,
        residuals=best.values,
        multipliers={name: weights.get(name, 0.0) for name in evaluator.constraints},
        gradients=evaluator.evaluations + evaluator.extra_passes,
        kkt_residual=kkt_residual,
        residuals_before=evaluator.first.values,
        lower_bound=lower_bound,
        history=tuple(evaluator.history),
        relative_distance=relative_distance(distance, evaluator.origin),
        remark=("" if lower_bound and distance <= LOOSE * lower_bound else flat)
        or remark
        or _zero_gradient_remark(evaluator, best, empty=empty)
        or _rounding_remark(evaluator, best, empty=empty),
    )
    return with_remark(projection, evaluator.constraints)


def stationary_remark(evaluator: Evaluator) -> str:
    """What to say of a stationary point of the violation."""
    best = evaluator.best
    worst = max(best.values, key=lambda name: best.values[name])
    return (
        "Locally infeasible: the gradients here predict no step that lowers the "
        "squared violations by more than a thousandth. The worst residual is "
        f"{best.values[worst]:.6g}, of {worst!r}. If the constraints are convex and "
        "smooth, they cannot be met together. "
        f"Try: (a) a looser bound, by {1.01 * best.values[worst]:.3g}; (b) another "
        "start; (c) oneproj.largest for a maximum, which has other gradients nearby."
    )


def _zero_gradient_remark(
    evaluator: Evaluator, best: Evaluation, *, empty: bool
) -> str:
    """What to say of a violated constraint whose gradient is zero, before and after."""
    if empty:  # at the minimum of a convex function it is no surprise
        return ""
    for name, c in evaluator.first.values.items():
        gradients = evaluator.first.gradients.get(name), best.gradients.get(name)
        if c > 0 and all(
            s is not None and not any(t.any() for t in s) for s in gradients
        ):
            return (
                f"The gradient of {name!r} is zero, at the start and here: a step "
                "function (sign, round, a comparison) has none, and whatever point was "
                "found is a guess. Use a surrogate with a slope, such as a sigmoid."
            )
    return ""


def _flat_remark(evaluator: Evaluator, best: Evaluation) -> str:
    """What to say where a function that was violated is 0 with a gradient of 0."""
    if best.worst > 0:
        return ""
    for name, slope in evaluator.first.gradients.items():
        fell = evaluator.first.values[name] > 0 == best.values[name]
        sloped = any(part.any() for part in slope)  # a step function is another matter
        here = best.gradients.get(name, slope)
        if fell and sloped and not any(part.any() for part in here):
            return (
                f"{name!r} is exactly on its bound and its gradient is exactly 0: its "
                "value no longer depends on the parameters. A function that is flat "
                "there, such as a maximum with 0, is met. One that only comes near its "
                "bound, such as exp(x) <= 0, is met by underflow only, where x is far "
                "enough: loosen that bound to a value that the function can reach."
            )
    return ""


def _rounding_remark(evaluator: Evaluator, best: Evaluation, *, empty: bool) -> str:
    """What to say of a point that is infeasible by rounding only."""
    if best.worst <= 0 or empty or not evaluator.is_rounding(best):
        return ""
    return (
        f"What is left is at the level of rounding: the worst residual is "
        f"{best.worst:.3g}, and nothing nearer to 0 was reached. Sets that touch in "
        "one point, or a bound that is just reached, leave no room for it. Try: (a) "
        f"bounds that are looser by a little more, {2.0 * best.worst:.3g} say; (b) "
        "float64 parameters and data, where they are narrower."
    )


def with_remark(
    projection: Projection, constraints: Mapping[str, AbstractTerm]
) -> Projection:
    """The projection, with a remark if its answer is probably not the nearest point.

    One that it has already says more.

    Args:
        projection: That was made.
        constraints: What it is onto; advice is given that was not followed yet.

    Example:
        >>> far = Projection(Status.FEASIBLE, 3.0, {}, {}, 9, kkt_residual=0.8)
        >>> with_remark(far, {}).remark[:60]
        'A nearer feasible point probably exists: the KKT residual is'
    """
    if projection.remark or not projection.may_be_nearer:
        return projection
    if projection.kkt_residual <= UNBALANCED:
        return projection
    remark = (
        f"A nearer feasible point probably exists: the KKT residual is "
        f"{projection.kkt_residual:.2g}, and 0 at a nearest point. At kinks, such as "
        "that of a maximum or an absolute value, it may be hardly nearer, and the "
        f"answer is feasible all the same.{_further_advice(constraints)}"
    )
    return replace(projection, remark=remark)


def describe_local(
    evaluator: Evaluator,
    own: tuple[Mapping[str, float], float],
    bundle: Bundle | None,
    region: Region,
    tolerance: float,
) -> Projection:
    """Describe the best point of a local search, with the least KKT residual known.

    Args:
        evaluator: Of the search.
        own: The multipliers that it ended with, and their KKT residual.
        bundle: Cuts, if what may be convex was tried as if it were.
        region: The sets; at a feasible point their normals are any that they have.
        tolerance: A KKT residual as good as none.
    """
    (multipliers, kkt_residual), remark = own, ""
    feasible, moved = evaluator.best.worst <= 0, evaluator.moved()
    if bundle is not None and (cuts := bundle.multipliers()):
        left = relative_residual(*distance_to_solution(evaluator, bundle))
        if left < kkt_residual:
            multipliers, kkt_residual = cuts, left
            even = stationarity_residual(evaluator, cuts, {})
            remark = kink_remark(even, moved) if feasible else ""
    if feasible and region.places:
        within, left = multipliers_within_sets(evaluator, region)
        left = relative_residual(left, moved)
        if left < max(kkt_residual, tolerance):
            multipliers, kkt_residual, remark = within, left, ""
    return describe(
        evaluator,
        evaluator.best,
        moved,
        multipliers=multipliers,
        kkt_residual=kkt_residual,
        remark=remark,
    )


def kink_remark(residual: float, distance: float) -> str:
    """What to say of an answer whose KKT residual is that of several linearisations.

    Nothing if the gradients at the answer alone balance it too.

    Example:
        >>> kink_remark(0.01, 1.0)
        ''
    """
    if residual <= NEAREST.kkt_residual * distance:
        return ""
    return (
        "The KKT residual is that of linearisations from several points around the "
        "answer, such as the sides of a kink, which is what counts if the constraints "
        "are convex. With the gradients at the answer alone it is "
        f"{residual / distance:.2g}."
    )


def _further_advice(constraints: Mapping[str, AbstractTerm]) -> str:
    """What else may help, as far as it was not done."""
    functions = [repr(n) for n, c in constraints.items() if c.curvature is None]
    if not functions:
        return " To come nearer, smooth the kinks."
    names = functions[0] if len(functions) == 1 else "a function"
    advice = (
        ' To come nearer, smooth the kinks, or declare curvature="convex" of '
        f"{names} if it is"
    )
    if len(functions) == len(constraints):
        advice += ", or use a set of oneproj.sets if it bounds a size"
    return f"{advice}."


def describe_convex(
    evaluator: Evaluator,
    cuts: Bundle,
    left: float,
    far: float,
    normals: Mapping[str, Vector],
    *,
    empty: bool,
) -> Projection:
    """The point that the parameters hold, with what cuts prove of it.

    They prove no bound where an evaluation contradicts a declared curvature.

    Args:
        evaluator: Through which it was found.
        cuts: Which have multipliers and a lower bound.
        left: How far it is from a solution over the cuts.
        far: How far it is from the start.
        normals: Of the sets that it lies in, by name.
        empty: Whether it is proven that there is no feasible point.
    """
    multipliers, bound = cuts.multipliers(), cuts.lower_bound()
    refuted = "" if empty else cuts.doubt
    if refuted or far > LOOSE * bound:
        left = max(left, stationarity_residual(evaluator, multipliers, normals))
    return describe(
        evaluator,
        evaluator.best,
        far,
        multipliers=multipliers,
        kkt_residual=relative_residual(left, far),
        lower_bound=None if empty or refuted else bound,
        empty=empty,
        remark=refuted,
    )


def distance_to_solution(evaluator: Evaluator, bundle: Bundle) -> tuple[float, float]:
    """How far the best point is from the solution over cuts, and from the origin."""
    evaluator.return_to_best()
    displacement = evaluator.displacement()
    left = displacement.minus(bundle.displacement(displacement)).norm()
    return left, displacement.norm()


def stationarity_residual(
    evaluator: Evaluator,
    multipliers: Mapping[str, float],
    normals: Mapping[str, Vector],
) -> float:
    """``|x_hat - x + sum_j mu_j grad c_j(x_hat)|``, with the normals of sets given.

    Where a bound proves that the answer is nearest it is not looked at: gradients of
    cuts balance then, and at a kink the gradient is only one of those that do.
    """
    gradients = {**evaluator.best.gradients, **normals}
    used = [name for name in gradients if multipliers.get(name, 0.0) > 0]
    largest = min(
        (torch.finfo(t.dtype).max for t in evaluator.parameters), default=math.inf
    )
    if any(not multipliers[name] < largest for name in used):
        return math.inf  # of an empty set: no finite weight balances it
    moved = difference(evaluator.best_point, evaluator.origin)
    pulls = [gradients[name] for name in used]
    return norm(combine([1.0, *(multipliers[n] for n in used)], [moved, *pulls]))


def multipliers_within_sets(
    evaluator: Evaluator, region: Region
) -> tuple[dict[str, float], float]:
    """Multipliers at the best point if it lies in sets, and the KKT residual, a length.

    A set has a normal for every direction it can be left in, and its distance shows one
    of them. With ``x_hat`` nearest it is ``P(x - sum_j mu_j grad c_j(x_hat))``, P onto
    the sets: mu is that of the problem with the linearisations there for functions, and
    the residual is how far its solution is from ``x_hat``.
    """
    evaluator.return_to_best()
    functions = [name for name in evaluator.constraints if name not in region.places]
    bundle = SetBundle(region, evaluator.origin, len(functions) + 1)
    at, pack = evaluator.displacement(), evaluator.space.pack
    for name in functions:
        value, gradient = evaluator.best.values[name], evaluator.best.gradients[name]
        bundle.add(name, value, pack(gradient), at)
    if not bundle.solve(dict.fromkeys(functions, 0.0)):
        return {}, math.inf
    return bundle.multipliers(), distance_to_solution(evaluator, bundle)[0]


def relative_residual(left: float, moved: float) -> float:
    """A KKT residual as a share of the distance moved, at most 1.

    Example:
        >>> relative_residual(0.5, 2.0), relative_residual(3.0, 2.0)
        (0.25, 1.0)
    """
    return left / max(moved, left) if 0 < left < math.inf else float(left != 0)


def plot_history(
    projection: Projection,
    ax: Any = None,  # noqa: ANN401 - axes of matplotlib
) -> Any:  # noqa: ANN401 - axes of matplotlib
    """Draw the distance and the worst residual of every visited point.

    Distances are on the left axis, filled where the point was feasible. What was
    violated is on the right one, logarithmic. Needs matplotlib (the extra ``learn``).

    Args:
        projection: With a history: what ``oneproj.project`` returned, or
            ``solution.projection``.
        ax: Axes of matplotlib; None for new ones.

    Returns:
        The axes.

    Raises:
        InvalidProblemError: The projection has no history.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0, 1.0], requires_grad=True)
        >>> done = oneproj.project(w, {"size": oneproj.function(w.norm) <= 1.0})
        >>> plot_history(done).get_xlabel()
        'full constraint gradients'
    """
    if not projection.history:
        message = (
            "This projection has no history to draw: its answer took no search, as "
            "that of closed-form sets does. Draw one that bounds a function."
        )
        raise InvalidProblemError(message)
    if ax is None:
        _, ax = require("matplotlib.pyplot", "learn").subplots(layout="constrained")
    counts, worst, far = zip(*projection.history, strict=True)
    feasible = [residual <= 0 for residual in worst]
    ax.plot(counts, far, color="tab:blue", linewidth=1)
    for filled, label in ((True, "distance, feasible"), (False, "distance, not yet")):
        at = [k for k, met in enumerate(feasible) if met == filled]
        face = "tab:blue" if filled else "white"
        ax.scatter(
            [counts[k] for k in at],
            [far[k] for k in at],
            s=18,
            facecolor=face,
            edgecolor="tab:blue",
            label=label,
            zorder=3,
        )
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("full constraint gradients")
    ax.set_ylabel("distance from the start")
    right = ax.twinx()
    violated = [residual if residual > 0 else float("nan") for residual in worst]
    right.semilogy(counts, violated, color="tab:red", linestyle=":", label="violation")
    right.set_ylabel("worst residual")
    lines = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    # Above the axes: inside them it would cover the last points, which count most.
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(lines)}
    right.legend(lines, [line.get_label() for line in lines], fontsize=8, **place)
    return ax
