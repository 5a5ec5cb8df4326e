"""What SLSQP's stages ask for, and what they remember of the answers.

SciPy asks for values and gradients one by one, and more than once at a point; here a
term is evaluated once. SciPy's line search tries a tenth of the step where the
objective is infinite. So that is what it is told where a term has no finite value, or
has a value but no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oneproj.arrays import Array
from oneproj.errors import NonFiniteError


class Question(NamedTuple):
    """What SciPy wants to know at a point: the values, or the gradients."""

    x: Array
    differentiate: bool
    held: Array | None = None
    """The answer if nothing more can be asked, where it is not the last iterate."""


class Seen(NamedTuple):
    """The values, or the gradients, of the objective and of what is to be <= 0."""

    f: Any
    """A number, or a vector."""
    c: Array


Reply: TypeAlias = Seen | NonFiniteError
Ask: TypeAlias = Callable[[Question], Reply]


@dataclass(frozen=True)
class Point:
    """Where it is, with the values and the gradients there."""

    x: Array
    value: Seen
    slope: Seen


class Lost(Exception):  # noqa: N818 - it ends SciPy's loop, it is no error of its own
    """SciPy wants to go on from a point without finite values or gradients."""


class Memory:
    """Every value and gradient, asked for once per point.

    Example:
        >>> asked = []
        >>> def ask(question):
        ...     asked.append(question.differentiate)
        ...     return Seen(2.0 * question.x, np.zeros((0, 1)))
        >>> memory = Memory(ask)
        >>> for _ in range(2):
        ...     point = memory.point(np.ones(1))
        >>> asked
        [False, True]
    """

    def __init__(self, ask: Ask) -> None:
        """Nothing was asked yet."""
        self._ask = ask
        self._trial: tuple[bytes, Seen] | None = None
        self.error: NonFiniteError | None = None
        self.refused: set[bytes] = set()
        """Points with a value and no gradient: not to be tried again."""
        self.last: Point | None = None
        """The last point whose gradients were known: SciPy's iterate."""
        self.held: Array | None = None
        """See ``Question``."""

    def value(self, x: Array) -> Seen:
        """The values at a point; an infinite objective where there are none."""
        if self.last is not None and np.array_equal(x, self.last.x):
            return self.last.value
        key = x.tobytes()
        nowhere = Seen(np.inf, np.zeros(0) if self.last is None else self.last.value.c)
        if key in self.refused:
            return nowhere
        if self._trial is None or self._trial[0] != key:
            answer = self._ask(Question(x.copy(), differentiate=False))
            if isinstance(answer, NonFiniteError):
                self.error, answer = answer, nowhere
            self._trial = key, answer
        return self._trial[1]

    def point(self, x: Array) -> Point:
        """The values and gradients at a point, which becomes the last one.

        Raises:
            Lost: There are none.
        """
        if self.last is None or not np.array_equal(x, self.last.x):
            value = self.value(x)
            if not np.isfinite(value.f):
                raise Lost
            slope = self._ask(Question(x.copy(), differentiate=True, held=self.held))
            if isinstance(slope, NonFiniteError):
                self.error = slope
                self.refused.add(x.tobytes())
                raise Lost
            self.last = Point(x.copy(), value, slope)
        return self.last

    def look_again(self) -> Point:
        """The last point, if its values are still finite; a term may break for good."""
        last, self.last, self._trial = self.last, None, None
        try:
            self.point(last.x)  # type: ignore[union-attr]  # the start at least
        except Lost:
            raise self.error from None  # type: ignore[misc]  # lost by an error
        self.last = last
        return last  # type: ignore[return-value]
