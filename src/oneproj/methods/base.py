"""What ``solve`` asks of a method: updates, and a feasible point at the end."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from oneproj.errors import InvalidProblemError
from oneproj.oracles import ORACLES, AbstractOracle, Sight
from oneproj.penalties import AbstractPenalty
from oneproj.problem import Problem
from oneproj.projection.base import AbstractProjector
from oneproj.results import Counts, Projection
from oneproj.theory import Schedule


@dataclass(frozen=True)
class Setting:
    """What every method is given: the problem and the means to look at it."""

    problem: Problem
    steps: int
    projector: AbstractProjector
    oracle: str
    batch_size: int
    counts: Counts
    sampling: torch.Generator
    """Draws the minibatches."""
    selection: torch.Generator
    """Draws the index of the outer iterate, where a method selects one."""
    schedule: Schedule | None = None

    def look(self, penalty: AbstractPenalty | None) -> AbstractOracle:
        """The oracle of this run, with the method's penalty."""
        return ORACLES[self.oracle](
            self.problem,
            penalty,
            batch_size=self.batch_size,
            generator=self.sampling,
            counts=self.counts,
        )

    def project(self) -> Projection:
        """Project the parameters onto the feasible set, and count it."""
        problem = self.problem
        projection = self.projector.project(problem.parameters, problem.constraints)
        self.counts.projections += 1
        self.counts.constraint_gradients += projection.evaluations
        return projection


class AbstractMethod(ABC):
    """One way to solve a problem: ``update()`` again and again, then ``finish()``.

    A method owns its loop variables and nothing else: ``solve`` counts updates, keeps
    time and history, and certificates judge the result.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]]
    """A frozen dataclass: what ``solve(..., **options)`` may set, with defaults."""

    @abstractmethod
    def __init__(self, setting: Setting, options: Any) -> None:  # noqa: ANN401 - each method has its own
        """Prepare the run; the parameters hold the start."""

    @abstractmethod
    def update(self) -> Sight:
        """Use one stochastic gradient of the objective; say what was seen."""

    @abstractmethod
    def finish(self) -> Projection:
        """Make the parameters hold the answer; say how it became feasible."""


def read_options(method: type[AbstractMethod], options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    """Build a method's options, refusing names that it does not have."""
    known = [f.name for f in dataclasses.fields(method.Options)]
    for name in options:
        if name not in known:
            message = (
                f"The method {method.name!r} has no option {name!r}. It has: "
                + ", ".join(known)
                + "."
            )
            raise InvalidProblemError(message)
    return method.Options(**options)
