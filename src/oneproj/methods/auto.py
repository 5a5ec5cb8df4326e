"""``"auto"``: SLSQP where it is the better tool, Algorithm 1 everywhere else.

On few parameters and little data a full pass costs no more than a minibatch does, and
second-order steps on exact gradients need a few dozen of them where a stochastic method
needs hundreds and ends less accurate. A run that is to be saved is one of Algorithm 1
as well: SLSQP cannot save its state.
``Solution.settings`` says which method was used (``"method"``) and why (``"why"``).
"""

from __future__ import annotations

from dataclasses import dataclass

from oneproj.methods.algorithm1 import Algorithm1
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.slsqp import SLSQP
from oneproj.oracles import OracleLike
from oneproj.problem.problem import Problem
from oneproj.vectors.arithmetic import dimension


@dataclass(frozen=True)
class Auto(AbstractMethod):
    """Chooses a method by the size of the problem; it has no options of its own.

    Example:
        >>> import oneproj
        >>> oneproj.methods.Auto().options
        {}
    """

    name = "auto"
    follows_schedules = True
    WITHOUT_OPTIONS = "Name the method whose option it is: method='one-projection'."

    def takes_anchors(self, oracle: OracleLike, *, scheduled: bool) -> bool:
        """Algorithm 1 does, unless it follows a schedule; SLSQP ignores their size."""
        return not scheduled or super().takes_anchors(oracle, scheduled=scheduled)

    def begin(self, context: Context) -> AbstractUpdater:
        """Start a run of the method that is recommended."""
        return recommend(context)[0].begin(context)


def recommend(context: Context) -> tuple[AbstractMethod, str]:
    """The method for a problem, and the reason.

    A problem that is small enough for SLSQP is evaluated twice: terms that give two
    values at one point (dropout, for example) have no exact gradient.
    """
    problem, most = context.problem, context.defaults
    n = dimension(problem.parameters)
    terms = problem.terms
    examples = sum(term.size or 0 for term in terms)
    size = f"{n} parameters and {examples} examples"
    if context.schedule is not None:
        return Algorithm1(), "a schedule is executed by Algorithm 1 only"
    if n > most.slsqp_parameters:
        limit = f"more than {most.slsqp_parameters} parameters"
        return Algorithm1(), f"{size}, which is {limit}: SLSQP would cost more"
    if examples > most.slsqp_examples:
        limit = f"more than {most.slsqp_examples} examples"
        return Algorithm1(), f"{size}, which is {limit}: SLSQP would cost more"
    if context.saved:
        return Algorithm1(), f"{size} are few, but a run of SLSQP cannot be saved"
    context.counts.constraint_passes += 2 * len(problem.constraints)
    if _values(problem) != _values(problem):
        why = "a term gave two values at one point: SLSQP needs exact ones"
        return Algorithm1(), why
    return SLSQP(), f"{size} are few: exact second-order steps cost less than SGD"


def _values(problem: Problem) -> list[float]:
    return [problem.objective.value(), *problem.residuals().values()]
