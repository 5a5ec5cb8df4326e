"""Evidence against a declared curvature: a value below a linearisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from oneproj.errors import InvalidProblemError
from oneproj.parameters import norm
from oneproj.projection.convex.kept_cuts import SURE, UNITS
from oneproj.projection.sets import SetConstraint
from oneproj.projection.view import Look, View

PLAIN = 0.1
"""Of the residual at the start: a value is below a linearisation by more than that."""


class Prediction(NamedTuple):
    """The value of a cut at a point: at most that of its constraint, if convex."""

    name: str
    value: float
    terms: float
    """The size of what it was computed of."""
    slope: float
    """The norm of the gradient."""

    @classmethod
    def of(cls, name: str, level: float, offset: float, slope: float) -> Self:
        """From a cut ``<g, d> <= offset`` with a unit normal, and ``level = <g, d>``.

        Example:
            >>> Prediction.of("a", level=3.0, offset=1.0, slope=2.0)
            Prediction(name='a', value=4.0, terms=8.0, slope=2.0)
        """
        terms = slope * (abs(level) + abs(offset))
        return cls(name, slope * (level - offset), terms, slope)


class Witness:
    """Compares what is seen with what cuts say, and refuses what contradicts them.

    A convex function lies above its linearisations. A value that is below one by more
    than rounding explains proves that the function is not what it was declared to be,
    and cuts of it may have cut off the answer.
    """

    def __init__(self, view: View) -> None:
        """Know the sizes of what is seen, for they are what is rounded."""
        self._sure = max(SURE, UNITS * view.eps)
        self._far = UNITS * view.eps
        self._size = norm(view.origin)
        self._constraints, self._first = view.constraints, view.first.values
        self._scales = {name: c.scale() for name, c in view.constraints.items()}

    def check(self, seen: Look, said: Iterable[Prediction], moved: float) -> None:
        """Refuse a constraint whose value is below a cut's.

        Args:
            seen: All constraints at a point.
            said: What the cuts say about them there.
            moved: The point's distance from the start.

        Raises:
            InvalidProblemError: A declared curvature is wrong.
        """
        message = self.refusal(seen, said, moved)
        if message:
            raise InvalidProblemError(message)

    def refusal(self, seen: Look, said: Iterable[Prediction], moved: float) -> str:
        """What ``check`` would say; nothing if all may be as it was declared."""
        for name, predicted, terms, slope in said:
            value, constraint = seen.values[name], self._constraints[name]
            size = self._scales[name] + abs(value) + terms
            # The point is rounded too, and the value with it.
            noise = self._sure * size + self._far * slope * (self._size + moved)
            # What is large inside a function, and cancels, is rounded unseen.
            noise = max(noise, PLAIN * abs(self._first[name]))
            # The band of a set bends its distance, slightly, and it is what it is.
            if predicted - value > noise and not isinstance(constraint, SetConstraint):
                return (
                    f"The constraint {name!r} is declared {constraint.curvature}, but "
                    f"is not: where a linearisation of it is {predicted:.6g} its value "
                    f"is {value:.6g}, and such a function is never below its "
                    "linearisations. The nearest point may have been cut off. Leave "
                    "the term's curvature out: the answer is then nearest locally. If "
                    "the declaration is true, the term has to be the same function at "
                    "every call: no dropout, and no other batch."
                )
        return ""
