"""``"auto"``: SLSQP where it is the better tool, Algorithm 1 everywhere else.

On few parameters and little data a full pass costs no more than a minibatch does, and
second-order steps on exact gradients need a few dozen of them where a stochastic method
needs hundreds and ends less accurate. A run that is to be saved is one of Algorithm 1
as well: SLSQP cannot save its state.
``Solution.settings`` says which method was used (``"method"``) and why (``"why"``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oneproj.methods.algorithm1 import Algorithm1
from oneproj.methods.base import AbstractMethod, AbstractUpdater, Context
from oneproj.methods.slsqp import SLSQP
from oneproj.oracles import Estimate, OracleLike
from oneproj.problem.problem import Problem
from oneproj.results import Projection
from oneproj.theory.constants import Observations
from oneproj.vectors.arithmetic import dimension

SLSQP_PARAMETERS = 200
SLSQP_EXAMPLES = 20_000
"""Up to here SLSQP was both faster and more accurate than 500 updates of Algorithm 1,
on logistic regression with a cap on the risk over a second data set (20 to 400
parameters, 2,000 to 100,000 examples in both terms, float32 and float64)."""


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

    def begin(self, context: Context) -> AutoUpdater:
        """Start a run."""
        return AutoUpdater(context)


class AutoUpdater(AbstractUpdater):
    """The run of the method that was chosen."""

    def __init__(self, context: Context) -> None:
        """Choose, and begin what was chosen with its defaults."""
        self._follows_schedule = context.schedule is not None
        self._chosen, self._why = recommend(context)
        self._method = self._chosen.begin(context)

    def update(self) -> Estimate:
        """Make one update of the chosen method."""
        return self._method.update()

    def finish(self) -> Projection:
        """End the run of the chosen method."""
        return self._method.finish()

    @property
    def done(self) -> bool:
        """Whether the chosen method is done."""
        return self._method.done

    @property
    def outer(self) -> int | None:
        """Outer iterations of the chosen method."""
        return self._method.outer

    @property
    def seen(self) -> Observations | None:
        """What the chosen method saw, if it follows a schedule."""
        return self._method.seen

    def state_dict(self) -> dict[str, Any]:
        """The state of the chosen method: Algorithm 1 in every run that is saved."""
        return self._method.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        self._method.load_state_dict(state)

    def describe(self) -> dict[str, Any]:
        """What was chosen, why, and with which options."""
        options = None if self._follows_schedule else self._chosen.options
        own = {"method": self._chosen.name, "why": self._why, "options": options}
        return own | self._method.describe()


def recommend(context: Context) -> tuple[AbstractMethod, str]:
    """The method for a problem, and the reason.

    A problem that is small enough for SLSQP is evaluated twice: terms that give two
    values at one point (dropout, for example) have no exact gradient.
    """
    problem = context.problem
    n = dimension(problem.parameters)
    terms = (problem.objective, *problem.constraints.values())
    examples = sum(term.size or 0 for term in terms)
    size = f"{n} parameters and {examples} examples"
    if context.schedule is not None:
        return Algorithm1(), "a schedule is executed by Algorithm 1 only"
    if n > SLSQP_PARAMETERS:
        limit = f"more than {SLSQP_PARAMETERS} parameters"
        return Algorithm1(), f"{size}, which is {limit}: SLSQP would cost more"
    if examples > SLSQP_EXAMPLES:
        limit = f"more than {SLSQP_EXAMPLES} examples"
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
