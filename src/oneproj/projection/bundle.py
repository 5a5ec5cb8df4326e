"""Cuts, and the nearest point of their intersection.

A cut is a halfspace ``<n, d> <= h`` that contains every feasible displacement d. The
nearest displacement that satisfies all cuts,

    ``min (1/2)|d|^2  subject to  <n_i, d> <= h_i``,

is found in the dual, ``min (1/2) z'Pz + h'z`` over ``z >= 0`` with P the Gram matrix of
the normals: ``d = -sum_i z_i n_i``.

The parameter-size vectors are an orthonormal basis of the gradients; normals, points
and curvature are coordinates in it. A budget of vectors is one of the basis: when it is
full, cuts without a weight go, and others are replaced by their mean under z, which is
a cut with the same solution and the same proof.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from oneproj.projection.tolerances import TOLERANCES
from oneproj.schema import check_list, check_names, check_range, check_tensor, require
from oneproj.vectors.arithmetic import Array, Mask, Vector, rounding_unit
from oneproj.vectors.qp import EPSILON, solve_nonnegative_qp
from oneproj.vectors.space import (
    AbstractPacked,
    AbstractStorage,
    storage_like,
    storage_of_state,
)

SPARE = 4
"""Vectors beyond one for each constraint with which a step can be made: two points, and
two cuts."""
FACTS = ("offset", "slope", "rounding", "idle", "z")
"""The numbers of a cut, one array each; ``rounding`` is the error of its offset, and
``idle`` the number of solutions since it last had a weight."""


class Basis:
    """Orthonormal vectors that span the gradients seen so far.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> basis = Basis()
        >>> basis.coordinates(Short(np.array([3.0, 4.0]), 2**-52)).tolist()
        [5.0]
        >>> basis.coordinates(Short(np.array([3.0, 9.0]), 2**-52)).round(9).tolist()
        [9.0, 3.0]
        >>> len(basis)
        2
    """

    def __init__(self, storage: AbstractStorage[Any] | None = None) -> None:
        """Span nothing, or what a storage holds."""
        self.storage = storage

    def __len__(self) -> int:
        return 0 if self.storage is None else len(self.storage)

    def coordinates(self, vector: AbstractPacked) -> Array:
        """Return the coordinates of a vector, which the basis spans afterwards."""
        size = vector.norm()
        if size == 0.0:
            return np.zeros(len(self))
        unit = vector.times(1.0 / size)  # its squares neither overflow nor vanish
        if self.storage is None:
            self.storage = storage_like(vector)
        if not len(self.storage):
            self.storage.append(unit)
            return np.array([size])
        found: Array = self.storage.products(unit)
        left, more, _ = self.storage.remainder(unit, found, in_place=True)
        found = found + more
        left, more, square = self.storage.remainder(left, more, in_place=True)
        found, length = found + more, math.sqrt(square)
        if length <= TOLERANCES.independent * vector.sum_eps:
            return size * found
        left.scale(1.0 / length)
        self.storage.append(left)
        return size * np.append(found, length)

    def products(self, vector: AbstractPacked) -> Array:
        """Return the coordinates of the nearest vector that the basis spans."""
        found: Array = (
            np.zeros(0) if self.storage is None else self.storage.products(vector)
        )
        return found

    def vector(self, coordinates: Array, like: AbstractPacked) -> AbstractPacked:
        """Return the vector of coordinates, packed ``like`` another."""
        if self.storage is None or not coordinates.size:
            return like.times(0.0)
        found: AbstractPacked = self.storage.combination(coordinates)
        return found

    def rotate(self, columns: Array) -> None:
        """Span only what these orthonormal columns of coordinates do."""
        if self.storage is not None:
            self.storage.rotate(columns.T)


class Bundle:
    """Cuts in coordinates of at most ``capacity`` parameter-size vectors.

    Example:
        >>> from oneproj.vectors.space import Short
        >>> bundle, d = Bundle(capacity=10), Short(np.zeros(1), eps=2**-52)
        >>> bundle.add("a", 2.0, Short(np.array([2.0]), d.eps), d)     # 2 + 2 d <= 0
        array([2.])
        >>> bundle.solve({"a": 0.0}), bundle.displacement(d).numbers
        (True, array([-1.]))
        >>> bundle.multipliers()
        {'a': 0.5}
    """

    def __init__(self, capacity: int) -> None:
        """Start without cuts."""
        self.capacity = capacity
        self.basis = Basis()
        self.names: list[str] = []
        self.normals: Array = np.zeros((0, 0))
        self.gram: Array = np.zeros((0, 0))
        self.weights: Array = np.zeros((0, 0))
        """The multiplier of each constraint per unit of z: a row for each cut."""
        self.offset = self.slope = self.rounding = self.idle = self.z = np.zeros(0)
        self.d: Array = np.zeros(0)
        """The coordinates of the solution. Where normals nearly cancel it is more
        precise than ``-sum_i z_i n_i``."""
        self.proof = 0.0
        """The best distance that solutions so far have proven."""
        self.flat: dict[str, float] = {}
        """Linearisations without a gradient that are > 0: each excludes every point."""
        self.tight: Array = np.zeros(0)
        """The offsets of the last solution, each less its constraint's margin."""
        self.doubt = ""
        """Why the cuts prove nothing, where a value contradicts one of them."""
        self._ray: Array | None = None
        self._eps = self._sum_eps = EPSILON

    def __len__(self) -> int:
        return len(self.z)

    @property
    def excludes_all(self) -> bool:
        """Whether a linearisation, by itself, excludes every point."""
        return bool(self.flat)

    # --- cuts come and go ---------------------------------------------------------

    def add(
        self,
        name: str,
        value: float,
        gradient: AbstractPacked,
        at: AbstractPacked,
        *,
        rounding: float = 0.0,
    ) -> Array:
        """Add ``value + <gradient, d - at> <= 0``; returns the gradient's coordinates.

        Args:
            name: The constraint's.
            value: Its residual.
            gradient: Its gradient, in the basis afterwards.
            at: The displacement where both were seen.
            rounding: A unit of rounding of the value.
        """
        self._eps, self._sum_eps = gradient.eps, gradient.sum_eps
        coordinates = self.coordinates(gradient)
        slope = float(np.linalg.norm(coordinates))
        if slope == 0.0:
            if value > 0:
                self.flat[name] = value
            return coordinates
        offset = (gradient.dot(at) - value) / slope
        error = gradient.eps * at.norm() + rounding / slope
        self._append(
            {name: 1.0 / slope}, coordinates / slope, offset, slope, error, 0.0
        )
        return coordinates

    def coordinates(self, vector: AbstractPacked) -> Array:
        """Return the coordinates of a vector, which the basis spans afterwards."""
        found = self.basis.coordinates(vector)
        self.normals = padded(self.normals, (len(self), len(self.basis)))
        return found

    def _append(  # noqa: PLR0917 - the facts of one cut
        self,
        weights: Mapping[str, float],
        normal: Array,
        offset: float,
        slope: float,
        rounding: float,
        z: float,
    ) -> None:
        """Keep a cut with a unit normal; slope 0 for one of several constraints."""
        self.names += [name for name in weights if name not in self.names]
        n, m, r = len(self.z), len(self.names), len(self.basis)
        self.normals, self.weights = (
            padded(self.normals, (n + 1, r)),
            padded(self.weights, (n + 1, m)),
        )
        self.normals[n, : len(normal)] = normal
        for name, weight in weights.items():
            self.weights[n, self.names.index(name)] = weight
        self.gram = padded(self.gram, (n + 1, n + 1))
        self.gram[n] = self.gram[:, n] = self.normals @ self.normals[n]
        for fact, number in zip(FACTS, (offset, slope, rounding, 0.0, z), strict=True):
            setattr(self, fact, np.append(getattr(self, fact), number))

    def _select(self, keep: Mask | NDArray[np.intp]) -> None:
        """Keep only these cuts."""
        self.normals, self.weights = self.normals[keep], self.weights[keep]
        self.gram = self.gram[keep][:, keep]
        for fact in FACTS:
            setattr(self, fact, getattr(self, fact)[keep])

    def make_room(self, count: int, beside: Iterable[Array] = ()) -> Array | None:
        """Shrink a basis that is too full for more gradients to half its capacity.

        Args:
            count: Gradients to come.
            beside: Coordinates of points that must stay in the basis.

        Returns:
            The new basis in coordinates of the old one, as columns; None for no change.
        """
        if len(self.basis) + count <= self.capacity:
            return None
        points = [padded(p, (len(self.basis),)) for p in beside]
        room = min(self.capacity - count, max(self.capacity // 2, SPARE))
        most = max(1, room - len(points))
        latest = np.argsort(np.argsort(self.idle, kind="stable")) < most
        self._select(latest | (self.z > 0))
        while len(self) > most:
            self._merge_oldest()
        self._rotate(columns := _orthonormal(np.array([*self.normals, *points])))
        return columns

    def _rotate(self, columns: Array) -> None:
        """Go to a basis of what these columns span."""
        self.basis.rotate(columns)
        self.normals = self.normals @ columns
        self.d = padded(self.d, (len(columns),)) @ columns

    def _merge_oldest(self) -> None:
        """Replace the two oldest cuts by their mean under z.

        It is short where the normals cancel: what is left is blurred, and rounded.
        """
        share = np.where(self.z[:2] > 0, self.z[:2], 0.0)
        if share.sum() == 0.0:
            self._select(np.arange(len(self)) > 0)
            return
        total, share = float(share.sum()), share / share.sum()
        mixed, offset = share @ self.normals[:2], float(share @ self.offset[:2])
        length = float(np.linalg.norm(mixed))
        rounding = float(share @ self.rounding[:2])
        rounding += self._eps * abs(offset) / (length or math.inf)
        weights = dict(
            zip(self.names, (share @ self.weights[:2]).tolist(), strict=True)
        )
        self._select(np.arange(len(self)) > 1)
        if length > 0:
            scaled = {name: w / length for name, w in weights.items() if w > 0}
            facts = offset / length, 0.0, rounding / length, total * length
            self._append(scaled, mixed / length, *facts)
            order = np.roll(np.arange(len(self)), 1)  # it is the oldest
            self._select(order)

    def shift(self, move: AbstractPacked) -> None:
        """Measure displacements from another origin, ``move`` away from the last.

        ``<n, d + move> <= h`` is the same halfspace: what was valid stays valid. Cuts
        that have long had no weight are left behind.
        """
        self._select(self.idle < TOLERANCES.stale)
        self.offset = self.offset - self.normals @ self.basis.products(move)
        self.rounding = self.rounding + move.eps * move.norm()
        self.proof = 0.0
        if 2 * len(self) < len(self.basis):
            self._rotate(_orthonormal(self.normals))

    # --- solutions ----------------------------------------------------------------

    def solve(self, margins: Mapping[str, float]) -> bool:
        """Solve over the cuts, each tightened by its constraint's margin.

        Returns:
            Whether some displacement satisfies all tightened cuts, and rounding does
            not decide which. If not, ``contradicts`` says whether that is proven.
        """
        self._ray = None
        if self.excludes_all:
            return False
        self.tight = self.tightened(margins)
        self.idle = self.idle + 1.0
        solved = self.minimise(self.tight)
        self.idle[self.z > 0] = 0.0
        if solved:
            self.proof = max(self.proof, self._proven(self._loosened(), self.z))
        return solved

    def _loosened(self) -> Array:
        """Return the offsets, loosened by what rounding may have done to them."""
        loosened: Array = self.offset + TOLERANCES.bound_units * self.rounding
        return loosened

    def tightened(self, margins: Mapping[str, float]) -> Array:
        """Return the offsets less the margins of their constraints."""
        wanted = np.array([margins[name] for name in self.names])
        tight: Array = self.offset - self.weights @ wanted
        return tight

    def toward(self, y: Array, curvature: float) -> Array | None:
        """Return what minimises ``|d|^2 + curvature |d - y|^2`` over the cuts.

        None if the cuts contradict each other.
        """
        shift = padded(y, (len(self.basis),)) * (curvature / (1.0 + curvature))
        levels = self.tight - self.normals @ shift
        found = solve_nonnegative_qp(self.gram, levels, self.z)
        return None if found.ray is not None else shift - found.z @ self.normals

    def minimise(self, offsets: Array) -> bool:
        """Set z to the dual solution; whether that is a solution beyond rounding."""
        for start in (self.z, None):
            found = solve_nonnegative_qp(self.gram, offsets, start)
            self.z, self.d = found.z, -(found.z @ self.normals)
            total = float(self.z.sum())
            noise = EPSILON * total * total
            noisy = noise > TOLERANCES.blurred * float(self.d @ self.d)
            if found.ray is None and not noisy:
                return True
            weights = found.z if found.ray is None else found.ray
            if self._solve_far(offsets, weights):
                return True
        self._ray = found.ray
        return False

    def _solve_far(self, offsets: Array, weights: Array) -> bool:
        """Solve where cuts nearly cancel, from the normals and not their products.

        The Gram matrix has the square of what is left of them: from the root of the
        rounding on, nothing. False if that is no solution.
        """
        left, total = self.normals.T @ weights, float(weights.sum())
        unit = TOLERANCES.sure_units * self._sum_eps * total
        if float(np.linalg.norm(left)) <= unit:
            return False
        support = self._far_support(offsets)
        rows = self.normals[support]
        d: Any = np.linalg.lstsq(rows, offsets[support], rcond=0.0)[0]
        z: Any = np.linalg.lstsq(rows.T, -d, rcond=0.0)[0]
        far = float(np.linalg.norm(d))
        noise = TOLERANCES.bound_units * self._eps * (far + np.abs(offsets))
        if not (z >= 0).all() or (self.normals @ d - offsets > noise).any():
            return False
        self.z, self.d = np.zeros(len(self)), d
        self.z[support] = z
        return True

    def _far_support(self, offsets: Array) -> NDArray[np.intp]:
        """Return the cuts that bind, by least squares on the normals themselves.

        With ``E = [-N', -h']`` and the last unit vector e, the residual r of
        ``min |Eu - e|`` over u >= 0 has the nearest point as ``-r / r_last``, and its
        weights are in proportion to u (Lawson and Hanson, Solving Least Squares
        Problems, chapter 23). It is precise where that point is about 1 away, and so
        solved twice.
        """
        far, u = float(np.abs(offsets).max()), np.zeros(len(self))
        for _ in range(2):
            E = -np.vstack([self.normals.T, offsets / (far or 1.0)])
            e = np.append(np.zeros(len(E) - 1), 1.0)
            with suppress(RuntimeError):  # SciPy gave up after its most steps
                u = nnls(E, e)[0]
            r = E @ u - e
            far *= float(np.linalg.norm(r[:-1])) / max(-float(r[-1]), EPSILON)
        return np.flatnonzero(u)

    def displacement(self, like: AbstractPacked) -> AbstractPacked:
        """Return the solution as a vector, packed ``like`` another."""
        return self.basis.vector(self.d, like)

    def length(self) -> float:
        """Return the length of the solution."""
        return float(np.linalg.norm(self.d))

    def multipliers(self) -> dict[str, float]:
        """Return the weight of each constraint's gradients in ``-d``."""
        return dict(zip(self.names, (self.z @ self.weights).tolist(), strict=True))

    def linearisations(self, y: Array) -> dict[str, Array]:
        """Return what the cuts of each constraint say at y, in a column for each cut.

        The rows are the linearisation, the size of the numbers in it, the length of its
        gradient, and what rounding may have done to it.
        """
        levels = self.normals[:, : len(y)] @ y
        terms = np.abs(levels) + np.abs(self.offset)
        error = TOLERANCES.sure_units * self.rounding
        rows = self.slope * np.array(
            [levels - self.offset, terms, np.ones(len(self)), error]
        )
        found = {
            name: rows[:, (self.weights[:, j] > 0) & (self.slope > 0)]
            for j, name in enumerate(self.names)
        }
        for name, value in self.flat.items():
            flat = np.array([[value], [value], [0.0], [0.0]])
            found[name] = np.hstack([found.get(name, np.zeros((4, 0))), flat])
        return found

    # --- proofs -------------------------------------------------------------------

    def lower_bound(self) -> float:
        """Return a distance below which no feasible point lies, by weak duality.

        Proven for convex constraints by the untightened cuts: every z >= 0 gives one.
        Each is loosened by what rounding may have done to it, and z is best for those.
        """
        if not len(self):
            return 0.0
        h = self._loosened()
        found = solve_nonnegative_qp(self.gram, h, self.z)
        tried = (found.z,) if found.ray is None else (found.z, found.ray)
        return max(self.proof, *(self._proven(h, z) for z in tried))

    def _proven(self, h: Array, z: Array) -> float:
        """Return a distance below which no d has ``<n_i, d> <= h_i``, by weights z.

        These add up to ``<r, d> <= h'z`` with ``r = sum_i z_i n_i``, and so
        ``|d| >= -h'z / |r|``. Every normal may be off by its rounding, which counts
        where they cancel.
        """
        gain, total = -float(h @ z), float(z.sum())
        if not gain > 0:  # or it is NaN
            return 0.0
        return gain / (float(np.linalg.norm(z @ self.normals)) + self._eps * total)

    @property
    def contradicts(self) -> bool:
        """Whether the cuts of the last solution contradict each other, beyond rounding.

        Their normals cancel to the root of the rounding, so less proves only that the
        feasible points are far away compared to the cuts.
        """
        ray = self._ray
        if ray is None:
            return self.excludes_all
        sure = max(TOLERANCES.sure_share, TOLERANCES.sure_units * self._eps)
        unsure = sure * np.abs(self.tight) + TOLERANCES.sure_units * self.rounding
        return -float(self.tight @ ray) > float(unsure @ ray)

    def excludes(self, size: float) -> bool:
        """Whether the contradiction proves that no point is feasible.

        The Gram matrix cannot tell normals that cancel from those that nearly do, like
        the sides of an ellipsoid with axes of very different lengths: their weighted
        sum tells. If it is more than rounding, what they prove is a distance.
        """
        ray = self._ray
        if ray is None or not self.contradicts:
            return self.excludes_all
        left, total = float(np.linalg.norm(ray @ self.normals)), float(ray.sum())
        if left > TOLERANCES.sure_units * self._sum_eps * total:
            return self.lower_bound() > TOLERANCES.nowhere * size
        unit = TOLERANCES.bound_units * self._eps * total
        return -float(self.tight @ ray) > TOLERANCES.horizon * size * unit

    # --- plain data ---------------------------------------------------------------

    def state(self) -> dict[str, Any] | None:
        """Return the cuts as plain data; None if there is none, or one excludes all."""
        if self.basis.storage is None or self.excludes_all or not len(self):
            return None
        tables = {n: torch.from_numpy(getattr(self, n).copy()) for n in FACTS}
        for name in ("normals", "weights", "gram"):
            tables[name] = torch.from_numpy(np.ascontiguousarray(getattr(self, name)))
        vectors = self.basis.storage.state()
        return {"names": list(self.names), "vectors": vectors, **tables}

    def load_state(
        self, state: Mapping[str, Any], like: Vector, names: Collection[str]
    ) -> None:
        """Go on with the cuts of such a state, of constraints with these names."""
        tables = ("normals", "weights", "gram")
        check_names(state, "cuts", ("names", "vectors", *tables, *FACTS))
        check_list(state["names"], "names", 0, len(names))
        for name in state["names"]:
            require(name in names, name, "cuts.names", f"one of {', '.join(names)}")
        check_tensor(state["normals"], "normals", (None, None), torch.float64)
        (n, r), m = state["normals"].shape, len(state["names"])
        check_range(r, "the number of vectors", 0, self.capacity)
        for name, columns in ("weights", m), ("gram", n):
            check_tensor(state[name], name, (n, columns), torch.float64)
        for name in FACTS:
            check_tensor(state[name], name, (n,), torch.float64)
        self.names = list(state["names"])
        for name in (*tables, *FACTS):
            setattr(self, name, state[name].numpy().copy())
        self.basis = Basis(storage_of_state(state["vectors"], like, r))
        self._eps = rounding_unit(like)
        self._sum_eps = self._eps if self.basis.storage is None else self._sum_eps


def padded(numbers: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of this shape that begins with the numbers, and zeros after them.

    Example:
        >>> padded(np.ones(2), (3,)).tolist()
        [1.0, 1.0, 0.0]
    """
    if numbers.shape == shape:
        return numbers
    grown = np.zeros(shape)
    grown[tuple(map(slice, numbers.shape))] = numbers
    return grown


def _orthonormal(rows: Array) -> Array:
    """Return orthonormal columns that span these rows."""
    if not rows.size:
        return np.zeros((rows.shape[-1], 0))
    sizes = np.linalg.norm(rows, axis=1)
    rows = rows[sizes > 0] / sizes[sizes > 0, None]
    u, s, _ = np.linalg.svd(rows.T, full_matrices=False)
    columns: Array = u[:, s > TOLERANCES.independent * EPSILON]
    return columns
