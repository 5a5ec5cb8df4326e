"""What a cut says about the constraint that it is of."""

from __future__ import annotations

from typing import NamedTuple, Self


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
