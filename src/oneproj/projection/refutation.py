"""Evidence against a declared curvature: a value below a linearisation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from oneproj.projection.bundle import padded
from oneproj.projection.evaluator import Evaluation, Evaluator
from oneproj.projection.tolerances import TOLERANCES
from oneproj.sets import SetConstraint
from oneproj.vectors.arithmetic import Array, norm


class Point(NamedTuple):
    """A visited point: its coordinates in a basis, and the values there."""

    y: Array
    outside: float
    """The length of the part of the displacement that the basis does not span."""
    far: float
    values: dict[str, float]


class Witness:
    """Compares the linearisations of a search with the values at its points.

    A convex function lies above its linearisations. A value that is below one by more
    than rounding explains proves that the declared curvature is wrong, and that cuts of
    the function may have cut off the answer.

    Args:
        evaluator: Of the constraints.
        declared: Whether the search relies on declarations. One that does not is
            refuted by less.

    Attributes:
        doubt: What to say of a declaration that a value contradicts by more than the
            rounding that the numbers show; "" for none. No bound rests on it.
        refuted: The same of a value that is plainly below a later linearisation.
        points: The visited points.
    """

    def __init__(self, evaluator: Evaluator, *, declared: bool) -> None:
        """Take the sizes of the numbers that are rounded from the evaluator."""
        self._far = TOLERANCES.sure_units * evaluator.eps
        self._sure = max(TOLERANCES.sure_share, self._far)
        self._size = norm(evaluator.origin)
        self._constraints, self._first = evaluator.constraints, evaluator.first.values
        self._share = TOLERANCES.plain if declared else 0.0
        self.points: list[Point] = []
        self.doubt = self.refuted = ""

    def add(self, y: Array, far: float, seen: Evaluation, *, inside: bool) -> None:
        """Keep a visited point for comparison with the linearisations to come.

        Args:
            y: Its coordinates.
            far: Its distance from the start.
            seen: Values there.
            inside: Whether the basis spans its displacement.
        """
        outside = 0.0 if inside else math.sqrt(max(0.0, far * far - float(y @ y)))
        self.points.append(Point(y, outside, far, seen.values))

    def rotate(self, columns: Array) -> None:
        """Follow the basis to what these columns span."""
        for i, (y, outside, far, values) in enumerate(self.points):
            turned = y @ columns[: len(y)]
            lost = max(0.0, float(y @ y) - float(turned @ turned))
            more = math.hypot(outside, math.sqrt(lost))
            self.points[i] = Point(turned, more, far, values)

    def compare_with_points(
        self, name: str, value: float, gradient: Array, level: float, far: float
    ) -> None:
        """Compare a linearisation with the values at all points before.

        Args:
            name: The constraint's.
            value: Its value where it is linearised.
            gradient: The coordinates of its gradient there.
            level: The inner product of the gradient and the displacement there.
            far: The length of that displacement.
        """
        points, slope = self.points, float(np.linalg.norm(gradient))
        if not points:
            return
        rows = np.array([padded(point.y, gradient.shape) for point in points])
        lengths = np.array([point.far for point in points])
        # What the basis does not span of a point has an unknown product with it.
        unknown = slope * np.array([point.outside for point in points])
        said = value + rows @ gradient - level
        terms = abs(value) + slope * (lengths + far)
        values = np.array([point.values[name] for point in points])
        steep = np.full(len(points), slope)
        found = self.compare(name, values, lengths, said, terms, steep, unknown)
        self.refuted = self.refuted or found

    def compare(  # noqa: PLR0917 - the numbers of one comparison
        self,
        name: str,
        value: Array | float,
        far: Array | float,
        predicted: Array,
        terms: Array,
        slope: Array,
        error: Array,
    ) -> str:
        """Compare values with linearisations, and note a ``doubt``.

        Args:
            name: The constraint's.
            value: Its value at a point.
            far: The distance of the point from the start.
            predicted: The value of the linearisation there.
            terms: The size of the numbers that ``predicted`` was computed from.
            slope: The length of the gradient.
            error: How far off ``predicted`` may be beside that.

        Returns:
            What to say if a value is plainly below a linearisation; "" if none is.
        """
        constraint = self._constraints[name]
        # The tolerance of a set without interior bends its distance slightly.
        if isinstance(constraint, SetConstraint) or not predicted.size:
            return ""
        above = predicted - value
        apart = np.abs(above) if constraint.curvature == "linear" else above
        size = constraint.scale() + np.abs(value) + terms
        # The point is rounded too, and the value with it.
        noise = self._sure * size + self._far * slope * (self._size + far) + error
        k = int(np.argmax(apart - noise))
        if not apart[k] > noise[k]:
            return ""
        seen = np.broadcast_to(value, apart.shape)
        message = self.message(name, float(predicted[k]), float(seen[k]))
        if constraint.curvature is not None:
            self.doubt = self.doubt or (
                f"The lower bound is withdrawn. {message} Large numbers that cancel "
                "inside the term look the same: float64 tells."
            )
        return message if above[k] > self._share * abs(self._first[name]) else ""

    def message(self, name: str, predicted: float, value: float) -> str:
        """What to say of a constraint whose value is below a linearisation."""
        curvature = self._constraints[name].curvature
        never = "equals" if curvature == "linear" else "is never below"
        return (
            f"The constraint {name!r} is declared {curvature}, but is not: "
            f"where a linearisation of it is {predicted:.6g} its value is {value:.6g}, "
            f"and such a function {never} its linearisations. The nearest point "
            "may have been cut off. Leave the term's curvature out: the answer is then "
            "nearest locally. If the declaration is true, the term has to be the same "
            "function at every call: no dropout, and no other batch."
        )
