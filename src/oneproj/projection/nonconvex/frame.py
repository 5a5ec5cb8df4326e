"""Coordinates in the span of the gradients seen so far.

Every point that a projector visits is ``x_0`` plus a combination of constraint
gradients. In an orthonormal frame of their span the projection problem has a few dozen
coordinates, whatever the size of the model: parameter-size work is one inner product
per stored vector and one combination per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from oneproj.errors import NonFiniteError
from oneproj.schema import check_names, check_range, check_tensor
from oneproj.vectors.arithmetic import Array, Vector
from oneproj.vectors.space import AbstractMove, AbstractPacked, AbstractSpace
from oneproj.vectors.storage import (
    AbstractPile,
    pile_of,
    pile_of_state,
)

INDEPENDENT, CLEAR = 1e-9, 1e-2
"""A vector whose part outside the span is a smaller share than the first adds nothing.

The share is the root of a difference of squares, which hides what is below 1e-8. So if
it is below the second, that part itself is formed, and stored in the vector's place.
With 1e-4 for the second, errors grow from vector to vector: after twenty gradients of
an ill-conditioned constraint the frame was no longer orthonormal at all.
"""
FAINT = 1e-6
"""What is new in a difference to a known vector, but is a smaller share of the vector
than this, is near the rounding of the known coordinates: it is formed, too. Where sums
of vectors are rounded to more than its square, none is taken for known."""

LONG = "the squared length of a constraint's gradient"


class Frame:
    """An orthonormal frame of a growing list of vectors, kept as a Cholesky factor.

    With what is stored as columns of V and ``V'V = L L'``, those of ``V L^{-T}`` are
    orthonormal. They are never formed. Coordinates have one entry per vector that there
    is room for, so they stay valid while the frame grows.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> frame, eps = Frame(room=3), 2**-52
        >>> frame.coordinates(Short(np.array([3.0, 0.0]), eps)).tolist()
        [3.0, 0.0, 0.0]
        >>> frame.coordinates(Short(np.array([1.0, 2.0]), eps)).tolist()
        [1.0, 2.0, 0.0]
        >>> frame.vector(np.array([0.0, 4.0, 0.0])).numbers
        array([0., 4.])
    """

    def __init__(self, room: int) -> None:
        """Start with the empty frame, for at most ``room`` vectors."""
        self.room = room
        self._pile: AbstractPile[Any] | None = None
        self._inverse: Array = np.zeros((room, room))
        """A row has the weights of the stored vectors in one axis of the frame."""
        self._last: list[tuple[AbstractPacked, Array] | None] = []
        """The last list of vectors with their coordinates; None if these miss a bit."""

    @property
    def size(self) -> int:
        """The dimension of the span, and how many vectors are stored."""
        return 0 if self._pile is None else len(self._pile)

    def forget_last(self) -> None:
        """Let the next list of vectors be located anew, not by its change."""
        self._last = []

    def state(self) -> dict[str, Any]:
        """The vectors and their weights in the axes, as plain data."""
        n = self.size
        vectors = None if self._pile is None else self._pile.state()
        return {
            "vectors": vectors,
            "inverse": torch.from_numpy(self._inverse[:n, :n].copy()),
        }

    def load_state(self, state: Mapping[str, Any], like: Vector) -> None:
        """Go on with the vectors of such a state."""
        check_names(state, "frame", ("vectors", "inverse"))
        check_tensor(state["inverse"], "inverse", (None, None), torch.float64)
        n = check_range(len(state["inverse"]), "axes", 0, self.room)
        check_tensor(state["inverse"], "inverse", (n, n), torch.float64)
        self._inverse[:n, :n] = state["inverse"].numpy()
        if n or state["vectors"] is not None:
            self._pile = pile_of_state(state["vectors"], like, n)

    def all_coordinates(self, vectors: Sequence[AbstractPacked]) -> Array:
        """The coordinates of one vector after the other, as rows.

        The same as one by one; of long vectors the products are made at once. Those of
        a vector are found from its difference to the one that had its place in the last
        list. Near the answer gradients hardly change: what is new of one is a small
        share of it, to be looked for twice, but a large share of the change.
        """
        pile = self._pile = pile_of(vectors[0]) if self._pile is None else self._pile
        known = self._last if len(self._last) == len(vectors) else [None] * len(vectors)
        rows, self._last = np.empty((len(vectors), self.room)), []
        pile.expect(vectors, [None if last is None else last[0] for last in known])
        try:
            for j, vector in enumerate(vectors):
                rows[j], whole = self._locate(pile, vector, known[j])
                self._last.append((vector, rows[j]) if whole else None)
        finally:
            pile.expect([], [])
        return rows

    def coordinates(self, vector: AbstractPacked) -> Array:
        """The coordinates of a vector; the frame grows by it if it is independent.

        In a full frame they are those of the nearest vector in the span.

        Raises:
            NonFiniteError: The vector is so long that its square overflows.
        """
        pile = self._pile = pile_of(vector) if self._pile is None else self._pile
        return self._locate(pile, vector, None)[0]

    def _locate(
        self,
        pile: AbstractPile[Any],
        vector: AbstractPacked,
        known: tuple[AbstractPacked, Array] | None,
    ) -> tuple[Array, bool]:
        """The coordinates, by way of those of a vector that are known, if any are.

        And whether they are all there is: what is too small to add an axis is dropped,
        and long vectors of few bits are rounded.
        """
        n = len(pile)
        if n == self.room:
            inside: Array = self._inverse.dot(pile.products(vector))
            if not np.isfinite(inside).all():
                raise NonFiniteError(LONG)
            return inside, False
        if known is None:
            products = pile.products(vector)
            square = vector.dot(vector)
            y = self._grow(pile, vector, products, square)
        else:
            products, square = pile.products_of_change(vector, known[0])
            y = self._grow(pile, vector, products, square, known[1])
        size = float(y.dot(y))
        exact = vector.sum_eps <= FAINT**2
        if y[n] ** 2 > max(CLEAR**2 * square, FAINT**2 * size):
            return y, exact
        pile.remove(n)
        y[n:] = 0.0
        if n == 0:
            return y, True
        # What is left of it without its part in the span.
        left = pile.remainder(vector, y[:n].dot(self._inverse[:n, :n]))
        rest = self._grow(pile, *left)
        stored = bool(rest[n] ** 2 > INDEPENDENT**2 * size)
        if not stored:
            pile.remove(n)
            rest[n:] = 0.0
        return y + rest, stored and exact

    def _grow(
        self,
        pile: AbstractPile[Any],
        vector: AbstractPacked,
        products: Array,
        square: float,
        known: Array | None = None,
    ) -> Array:
        """Store a vector; its coordinates, of which the last is new.

        Products and square are its own, or those of its difference to a vector of which
        the coordinates are known.
        """
        if not math.isfinite(square):
            raise NonFiniteError(LONG)  # all that comes after it would be NaN
        n, inverse = len(pile), self._inverse
        pile.store(vector)
        y = np.zeros(self.room)
        y[:n] = inverse[:n, :n].dot(products)
        new = math.sqrt(max(square - float(y.dot(y)), 0.0))
        if known is not None:
            y += known
        y[n] = new
        if new > 0:
            inverse[n, :n] = y[:n].dot(inverse[:n, :n]) / -new
            inverse[n, n] = 1.0 / new
        return y

    def vector(self, coordinates: Array) -> AbstractPacked:
        """The vector with these coordinates, in a frame that is not empty."""
        pile, weights = self._weighed(coordinates)
        found: AbstractPacked = pile.combination(weights)
        return found

    def move(self, coordinates: Array, length: float) -> AbstractMove:
        """The displacement with these coordinates, not formed; its length is known."""
        return _Move(*self._weighed(coordinates), length)

    def _weighed(self, coordinates: Array) -> tuple[AbstractPile[Any], Array]:
        if self._pile is None:
            message = "an empty frame has no vectors"
            raise ValueError(message)
        n = len(self._pile)
        return self._pile, coordinates[:n].dot(self._inverse[:n, :n])


class _Move(AbstractMove):
    """A sum of piled vectors; those that came later have no part in it."""

    def __init__(self, pile: AbstractPile[Any], weights: Array, length: float) -> None:
        self._pile, self._weights, self.length = pile, weights, length

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        self._pile.write(self._weights, space, point)
