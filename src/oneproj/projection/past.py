"""What a warm projector carries from one projection to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from oneproj.parameters import Vector
from oneproj.projection.convex.bend import Bend
from oneproj.projection.convex.bundle import Bundle
from oneproj.projection.nonconvex.chart import Carried
from oneproj.projection.view import View
from oneproj.terms.base import AbstractTerm


@dataclass(frozen=True)
class Past:
    """What the last projection learned, and the problem that it belongs to.

    A cut of a convex constraint is valid for good, wherever the next start is: only its
    offset is measured from there. Local models are a guess at what the next ones will
    be. What they are models of must not have changed, and that is judged by identity:
    other objects, other past.
    """

    parameters: list[Tensor]
    constraints: dict[str, AbstractTerm]
    origin: list[Tensor]
    cuts: tuple[Bundle, Bend] | None = None
    models: Carried | None = None

    @classmethod
    def of(
        cls,
        view: View,
        *,
        cuts: tuple[Bundle, Bend] | None = None,
        models: Carried | None = None,
    ) -> Past:
        """Keep what was learned, and the view's problem and origin with it."""
        parameters, constraints = list(view.parameters), dict(view.constraints)
        return cls(parameters, constraints, view.origin, cuts, models)

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
        bundle, _ = self.cuts
        return [name for name, mu in bundle.multipliers().items() if mu > 0]

    def cuts_from(self, view: View) -> tuple[Bundle, Bend] | None:
        """The cuts for displacements from another origin, that of the view."""
        if self.cuts is not None:
            pack = view.space.pack
            move = pack(view.origin).minus(pack(self.origin))
            for part in self.cuts:
                part.shift(move)
        return self.cuts


def _identities(constraints: Mapping[str, AbstractTerm]) -> dict[str, int]:
    """What was made as a constraint, whatever name and model it was given since."""
    return {name: id(term.original) for name, term in constraints.items()}
