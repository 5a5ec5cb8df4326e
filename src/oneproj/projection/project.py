"""``oneproj.project``: make any parameters feasible, after any optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from torch import Tensor

from oneproj.arguments import at_most_five
from oneproj.distributed import (
    agreeing,
    compares_ranks,
    setting_facts,
    staying_in_step,
)
from oneproj.errors import InfeasibleError, InvalidProblemError, warn
from oneproj.problem.autograd import fresh_casts
from oneproj.problem.checks import check_connected, common_facts
from oneproj.problem.float64 import check_in_float64, warn_if_signs_differ
from oneproj.problem.modes import evaluating_when_called
from oneproj.problem.problem import Problem, named_constraints
from oneproj.problem.terms import AbstractTerm, mark_trained
from oneproj.problem.trainable import trainable
from oneproj.progress import progress_line
from oneproj.projection.base import AbstractProjector
from oneproj.projection.closed_form import ClosedForm
from oneproj.projection.cuts import Cuts
from oneproj.projection.evaluator import watching
from oneproj.rates.correction import has_rates, project_counts
from oneproj.results import Projection, Status
from oneproj.vectors.arithmetic import Vector, assign, snapshot

ProjectorLike: TypeAlias = AbstractProjector | Literal["auto", "closed-form", "cuts"]
OnFailure: TypeAlias = Literal["raise", "return"]

PROJECTORS: dict[str, type[AbstractProjector]] = {
    projector.name: projector for projector in (ClosedForm, Cuts)
}
"""Every projector by name, in the order in which ``"auto"`` tries them."""

SAME, LEFT = 1e-6, 1e-3
"""Two constraints whose residuals add up to this share of one are the two sides of an
equality. If this share of it is left, at most, rounding is in the way."""


def project(
    parameters: Iterable[Tensor] | Tensor,
    constraints: Mapping[str, AbstractTerm],
    *,
    projector: ProjectorLike = "auto",
    on_failure: OnFailure = "raise",
    progress: bool | None = None,
) -> Projection:
    """Move parameters to the nearest feasible point, in place.

    ``x_hat in argmin { |y - x| : c_j(y) <= 0 }``, line 6 of Algorithm 1. It does not
    matter how the point was trained.

    Args:
        parameters: Any iterable of tensors, or one tensor.
        constraints: Name to constraint.
        projector: ``"closed-form"``, which takes sets only; ``"cuts"``, which takes
            any constraint; ``"auto"`` for the first of these that can; or an
            ``AbstractProjector`` of your own.
        on_failure: ``"raise"``, or ``"return"`` a Projection whose status says it, with
            the parameters at the best point.
        progress: Show how far it is once it takes long; None does so in a notebook and
            on a terminal.

    Dropout, batch norm and the like are judged in evaluation mode, also where they are
    found in training mode, which is warned of. Whatever this raises, an error of a
    function of yours and Ctrl-C included, leaves the parameters as they were.

    Where the model computes in less than float64, each constraint of the answer is
    evaluated once more in float64, a pass without gradients; a warning names one that
    is met in one precision only.

    In a process group of ``torch.distributed`` with more than one rank, every rank has
    to make this call with the same parameters and all of the data. They are compared,
    for one more gradient of every constraint.

    Raises:
        InvalidProblemError: No projector can handle these constraints, or the ranks of
            a process group differ.
        InfeasibleError: No feasible point was reached; the message has the residuals.
        RankError: Another rank of the process group has ended.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> projection = project(w, {"size": oneproj.sets.Ball(1.0).on(w)})
        >>> projection.residuals["size"] <= 0, round(projection.distance, 6)
        (True, 4.0)
    """
    check_on_failure(on_failure)
    if isinstance(parameters, Problem):
        message = (
            "project takes parameters and constraints, but got a Problem, which has "
            "both. Write oneproj.project(problem.parameters, problem.constraints)."
        )
        raise InvalidProblemError(message)
    alone, call = not compares_ranks(), "oneproj.project"
    with agreeing(call) as facts:
        moving, named = trainable(parameters), named_constraints(constraints)
        chosen = choose_projector(projector, named)
        if not alone:
            settings = {"projector": chosen.name, "on_failure": on_failure}
            facts.update(setting_facts(settings))
            facts.update(common_facts(moving, named.values()))
    start = snapshot(moving)
    mark_trained(named.values())
    try:
        probe = check_connected(named.values(), moving)
        if probe.kinds:
            _warn_of_modes(probe.kinds)
        with (
            evaluating_when_called(enabled=bool(probe.kinds)),
            fresh_casts(),
            progress_line("projecting", enabled=progress) as say,
            reporting(say),
            staying_in_step(call, moving),
        ):
            projection = chosen.project(moving, named)
            doubtful = {name: named[name] for name in probe.random}
            projection = _seen_again(projection, doubtful)
            projection = _checked_in_float64(projection, moving, named)
        if not alone:  # the comparison took a gradient as well
            gradients = projection.gradients + 1
            projection = replace(projection, gradients=gradients)
        if on_failure == "raise":
            raise_if_infeasible(projection)
    except BaseException:
        assign(moving, start)
        raise
    return projection


def reporting(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Say how far a projection is while the block runs.

    Example:
        >>> import torch, oneproj
        >>> w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> with reporting(print):
        ...     _ = Cuts().project([w], {"w": oneproj.function(w.sum) <= 1.0})
        1 full gradients, worst residual 1.00e+00
        2 full gradients, worst residual -...
    """
    return watching(lambda k, c: say(f"{k} full gradients, worst residual {c:.2e}"))


def choose_projector(
    projector: ProjectorLike, constraints: Mapping[str, AbstractTerm]
) -> AbstractProjector:
    """The projector that was asked for, or the first that accepts the constraints.

    Example:
        >>> choose_projector("auto", {}).name
        'closed-form'
    """
    if isinstance(projector, AbstractProjector):
        candidates = [projector]
    elif projector == "auto":
        candidates = [make() for make in PROJECTORS.values()]
    elif isinstance(projector, str) and projector in PROJECTORS:
        candidates = [PROJECTORS[projector]()]
    else:
        known = ", ".join(("auto", *PROJECTORS))
        message = (
            f"There is no projector {projector!r}. Known: {known}; an "
            "AbstractProjector of your own will do too. It finds the nearest feasible "
            'point; "auto" takes the first of these that can.'
        )
        raise InvalidProblemError(message)
    reasons = []
    for candidate in candidates:
        reason = candidate.accepts(constraints)
        if reason is None:
            return counting(candidate, constraints)
        reasons.append(f"{candidate.name}: {reason}")
    message = (
        "No projector can handle these constraints (" + "; ".join(reasons) + "). "
        'Use projector="auto", or pass an AbstractProjector of your own.'
    )
    raise InvalidProblemError(message)


def _warn_of_modes(kinds: str) -> None:
    message = (
        f"{kinds} in training mode: a constraint has no one value there. It was judged "
        "in evaluation mode, so it holds after model.eval(). Call that first to "
        "silence this warning."
    )
    warn(message)


def raise_if_infeasible(projection: Projection) -> None:
    """Raise with the constraint that is left, its best residual and where that was.

    Example:
        >>> from oneproj.results import Status
        >>> raise_if_infeasible(Projection(Status.FEASIBLE, 0.0, {}, {}, 0))
    """
    if projection.status.ok:
        return
    worst = max(projection.residuals, key=lambda name: projection.residuals[name])
    residual = f"{projection.residuals[worst]:.3e} > 0"
    unmet = [name for name, c in projection.residuals.items() if c > 0]
    what = f"The constraint {worst!r} could not be met: its best residual is {residual}"
    if len(unmet) > 1:
        what = (
            f"The constraints {at_most_five(unmet)} could not be met together: at the "
            f"best point the largest residual, of {worst!r}, is {residual}"
        )
    message = (
        f"{what}, at a distance of "
        f"{projection.distance:.3e}, after {projection.gradients} full constraint "
        f"gradients ({projection.status.value}). "
        f"{_advice(projection)} The parameters "
        "are where they were before this projection; oneproj.project(..., "
        'on_failure="return") goes to the best point instead.'
    )
    raise InfeasibleError(message)


def _seen_again(
    projection: Projection, doubtful: Mapping[str, AbstractTerm]
) -> Projection:
    """The projection, not feasible if a random constraint is violated the next time."""
    if not (projection.status.ok and doubtful):
        return projection
    again = {name: constraint.value() for name, constraint in doubtful.items()}
    worst = max(again, key=lambda name: again[name])
    if again[worst] <= 0:
        return projection
    remark = (
        f"The constraint {worst!r} is random: where the search ended it was "
        f"{projection.residuals[worst]:.6g}, and then {again[worst]:.6g}. Average it "
        "over fixed draws of its noise, or call model.eval() first."
    )
    residuals = {**projection.residuals, **again}
    status = Status.INFEASIBLE
    return replace(projection, status=status, residuals=residuals, remark=remark)


def _checked_in_float64(
    projection: Projection,
    parameters: list[Tensor],
    constraints: Mapping[str, AbstractTerm],
) -> Projection:
    """The projection, with the residuals of a feasible answer in float64 as well."""
    if not projection.status.ok:
        return projection
    wide = check_in_float64(parameters, constraints).residuals
    warn_if_signs_differ(projection.residuals, wide)
    return replace(projection, residuals_in_float64=wide)


def _advice(projection: Projection) -> str:
    """What helps: the remark, where there is one, or what fits the status."""
    over = {name: c for name, c in projection.residuals.items() if c > 0}
    enough = ", ".join(f"{name!r} by {c:.3g}" for name, c in over.items())
    equal = _equality(projection)
    if equal is not None:
        return (
            f"{equal[0]!r} and {equal[1]!r} bound the same term from both sides by the "
            "same number: an equality, which rounding keeps from holding exactly. Try: "
            "(a) room between the two, term <= b + 1e-6 and term >= b - 1e-6 (1e-4 in "
            "float32, more if the term is large); (b) oneproj.sets.Affine(matrix, "
            "values).on(tensor) for linear equations."
        )
    if projection.remark:
        return projection.remark
    if (
        projection.status is not Status.PROVEN_INFEASIBLE
        and projection.lower_bound is not None
    ):
        return (
            "All constraints are declared convex, but the linearisations do not prove "
            "that no point satisfies them: it may be too far away, or rounding is in "
            f"the way. Try: (a) a looser bound: enough, at the best point, is {enough};"
            " (b) float64 parameters and data, (c) inputs of similar size."
        )
    if projection.status is not Status.PROVEN_INFEASIBLE:
        return (
            f"Try: (a) a looser bound: enough, at the best point, is {enough}; (b) a "
            "start nearer to the feasible set, (c) another projector, (d) "
            'curvature="convex" of a term that is convex, or a set of oneproj.sets for '
            "a bound on a size, (e) where a loss is flat, as a clamp or a saturated "
            "sigmoid is, a surrogate with a slope, (f) a maximum, or a mean over the "
            "worst examples, as oneproj.largest: as a function it shows the "
            "gradient of one example at a time."
        )
    advice = (
        "If the terms declared convex are, neither another start nor another projector "
        "helps: only looser bounds do. The search ended where that was proven, not at "
        f"the least residual: enough there is {enough}, elsewhere less may do."
    )
    if len(projection.residuals) == 1:
        return advice
    return f"{advice} Leave one constraint out at a time to see which exclude others."


def _equality(projection: Projection) -> tuple[str, str] | None:
    """Two constraints c <= b and c >= b that rounding keeps apart, if there are any.

    Their residuals add up to 0 wherever it is, and hardly anything is left of them.
    """
    before, after = projection.residuals_before, projection.residuals
    worst = max(after, key=lambda name: after[name])
    size = abs(before.get(worst, 0.0))
    if after[worst] > LEFT * size:
        return None
    for name in after:
        sums = after[name] + after[worst], before[name] + before[worst]
        if name != worst and max(map(abs, sums)) <= SAME * size:
            return worst, name
    return None


def check_on_failure(on_failure: str) -> None:
    """Refuse a word that would silently mean "return".

    Example:
        >>> check_on_failure("raise")
    """
    if not (isinstance(on_failure, str) and on_failure in ("raise", "return")):
        message = (
            'on_failure must be "raise" (an InfeasibleError) or "return" (a result '
            f"whose status says it), got {on_failure!r}. It decides what becomes of a "
            "run that ends without a feasible point; none goes unnoticed."
        )
        raise InvalidProblemError(message)


class Counted(AbstractProjector):
    """A projector that meets bounds on counts by way of another one.

    The other projects onto smooth bounds; ``oneproj.rates.correction`` searches them.

    Args:
        smooth: The projector for surrogate bounds and constraints without rates.
    """

    def __init__(self, smooth: AbstractProjector) -> None:
        """Keep the projector, and use its name."""
        self._smooth, self.name = smooth, smooth.name

    def warm(self) -> AbstractProjector:
        return Counted(self._smooth.warm())

    def state_dict(self) -> dict[str, Any] | None:
        return self._smooth.state_dict()

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
    ) -> None:
        self._smooth.load_state_dict(state, parameters, constraints)

    def accepts(self, constraints: Mapping[str, AbstractTerm]) -> str | None:
        return self._smooth.accepts(constraints)

    def project(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> Projection:
        return project_counts(parameters, constraints, self._smooth.project)


def counting(
    projector: AbstractProjector, constraints: Mapping[str, AbstractTerm]
) -> AbstractProjector:
    """Return the projector, made to meet counts where a constraint has rates.

    Example:
        >>> from oneproj.projection.cuts import Cuts
        >>> counting(Cuts(), {}).name
        'cuts'
    """
    return (
        Counted(projector) if any(map(has_rates, constraints.values())) else projector
    )
