"""What a warm projector carries from one projection to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from oneproj.problem.terms import AbstractTerm
from oneproj.projection.bundle import Bundle
from oneproj.projection.evaluator import Evaluator
from oneproj.projection.local_model import Carried
from oneproj.schema import check_like
from oneproj.sets.region import boxes_of
from oneproj.vectors.arithmetic import Vector, on_devices, snapshot
from oneproj.vectors.space import space_around


@dataclass(frozen=True)
class WarmStart:
    """What the last projection learned, and the problem that it belongs to.

    A cut of a convex constraint is valid for good, wherever the next start is: only its
    offset is measured from there. Local models are a guess at what the next ones will
    be. What they are models of must not have changed, and that is judged by identity:
    other objects, other past.
    """

    parameters: list[Tensor]
    constraints: dict[str, AbstractTerm]
    origin: list[Tensor]
    cuts: Bundle | None = None
    models: Carried | None = None

    @classmethod
    def of(
        cls,
        evaluator: Evaluator,
        *,
        cuts: Bundle | None = None,
        models: Carried | None = None,
    ) -> WarmStart:
        """Keep what was learned, and the evaluator's problem and origin with it."""
        parameters, constraints = (
            list(evaluator.parameters),
            dict(evaluator.constraints),
        )
        return cls(parameters, constraints, evaluator.origin, cuts, models)

    def concerns(
        self, parameters: Vector, constraints: Mapping[str, AbstractTerm]
    ) -> bool:
        """Whether these are its very parameters and constraints, or copies of these."""
        same = [*map(id, parameters)] == [*map(id, self.parameters)]
        return same and _identities(constraints) == _identities(self.constraints)

    def suspects(self) -> list[str]:
        """The constraints that held the last answer back, and may the next."""
        if self.cuts is None:
            return []
        return [name for name, mu in self.cuts.multipliers().items() if mu > 0]

    def cuts_from(self, evaluator: Evaluator) -> Bundle | None:
        """The cuts for displacements from another origin, that of the evaluator."""
        if self.cuts is not None:
            pack = evaluator.space.pack
            self.cuts.shift(pack(evaluator.origin).minus(pack(self.origin)))
        return self.cuts

    def state(self) -> dict[str, Any]:
        """All of it as plain data; the problem is that of whoever loads it."""
        return {
            "constraints": list(self.constraints),
            "origin": self.origin,
            "cuts": None if self.cuts is None else self.cuts.state(),
            "models": None if self.models is None else self.models.state(),
        }

    @classmethod
    def of_state(
        cls,
        state: Mapping[str, Any],
        parameters: Vector,
        constraints: Mapping[str, AbstractTerm],
        *,
        cuts: int,
        vectors: int,
    ) -> WarmStart | None:
        """The past of such a state; None if it is of other constraints.

        At the edge of the safeguard ball the ball is one of them, made anew for every
        projection: nothing is remembered from there, resumed or not.
        """
        if state["constraints"] != list(constraints):
            return None
        parts = {"constraints": [], "origin": parameters, "cuts": None, "models": None}
        check_like(state, parts, "projector")
        bundle, models = None, None
        if state["cuts"] is not None:
            bundle = Bundle(cuts)
            bundle.load_state(state["cuts"], parameters, list(constraints))
        if state["models"] is not None:
            sets = boxes_of(parameters, constraints).places
            space = space_around(snapshot(parameters))
            functions = len(constraints) - len(sets)
            models = Carried.of_state(state["models"], functions, space, vectors)
        origin = on_devices(state["origin"], parameters)
        return cls(list(parameters), dict(constraints), origin, bundle, models)


def _identities(constraints: Mapping[str, AbstractTerm]) -> dict[str, int]:
    """What was made as a constraint, whatever name and model it was given since."""
    return {name: id(term.original) for name, term in constraints.items()}
