"""Parameter-size vectors for arithmetic, and displacements from an origin.

A short vector is packed into one array: a sum or a product of a few numbers takes a
fifth of the time in NumPy that it takes in tensors, and one array less than several
tensors. Beside the gradient of a small model that is the difference between a tenth of
the time and as much again. Long vectors stay lists of tensors, without a copy.

A space has an origin, and turns points into packed displacements and back. A move is a
displacement in the form in which it is known. A storage keeps packed vectors for their
inner products: short ones as the rows of a matrix in float64, long ones without a copy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from oneproj.schema import Data, check_like, check_tensor
from oneproj.vectors.arithmetic import (
    Array,
    Vector,
    assign,
    combine,
    combine_into,
    combined_norm,
    dimension,
    dot,
    norm,
    on_devices,
    products,
    remainder,
    rotate,
    rounding_unit,
)
from oneproj.vectors.qp import EPSILON

SHORT = 2**14
"""Numbers in a vector up to which copying it costs less than looping over vectors."""
TINY, HUGE = 1e-150, 1e150
"""Lengths whose squares are numbers like others."""


class AbstractPacked(ABC):
    """A vector that is added to and multiplied with others like it."""

    eps: float
    """The rounding unit of the numbers that it was made of."""
    sum_eps: float
    """The rounding unit of sums of such vectors."""

    @abstractmethod
    def dot(self, other: Self) -> float:
        """The inner product, in float64."""

    @abstractmethod
    def norm(self) -> float:
        """The length."""

    @abstractmethod
    def minus(self, other: Self) -> Self:
        """The difference, as a new vector."""

    @abstractmethod
    def times(self, weight: float) -> Self:
        """A multiple, as a new vector."""

    @abstractmethod
    def add(self, other: Self, weight: float) -> None:
        """Add a multiple of another vector, in place."""

    @abstractmethod
    def scale(self, weight: float) -> None:
        """Multiply it with a number, in place."""


class Short(AbstractPacked):
    """A vector in one array of float64.

    Example:
        >>> import numpy as np
        >>> a = Short(np.ones(3), eps=2**-52)
        >>> a.dot(a), a.minus(a).numbers.tolist()
        (3.0, [0.0, 0.0, 0.0])
    """

    def __init__(self, numbers: Array, eps: float) -> None:
        """Keep the numbers, made of others with this rounding unit."""
        self.numbers, self.eps = numbers, eps
        self.sum_eps = EPSILON

    def dot(self, other: Self) -> float:
        return float(self.numbers.dot(other.numbers))

    def norm(self) -> float:
        length = math.sqrt(self.numbers.dot(self.numbers))
        return length if TINY < length < HUGE else math.hypot(*self.numbers.tolist())

    def minus(self, other: Self) -> Self:
        return type(self)(self.numbers - other.numbers, self.eps)

    def times(self, weight: float) -> Self:
        return type(self)(weight * self.numbers, self.eps)

    def add(self, other: Self, weight: float) -> None:
        self.numbers += weight * other.numbers

    def scale(self, weight: float) -> None:
        self.numbers *= weight


class Long(AbstractPacked):
    """A vector in its own tensors, without a copy.

    Example:
        >>> a = Long([torch.ones(2), torch.ones(1)])
        >>> a.dot(a), a.minus(a).tensors
        (3.0, [tensor([0., 0.]), tensor([0.])])
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        """Keep the tensors."""
        self.tensors = tensors
        self.eps = self.sum_eps = rounding_unit(tensors)

    def dot(self, other: Self) -> float:
        return dot(self.tensors, other.tensors)

    def norm(self) -> float:
        return norm(self.tensors)

    def minus(self, other: Self) -> Self:
        return type(self)(list(torch._foreach_sub(self.tensors, other.tensors)))

    def times(self, weight: float) -> Self:
        return type(self)([weight * t for t in self.tensors])

    def add(self, other: Self, weight: float) -> None:
        torch._foreach_add_(self.tensors, other.tensors, alpha=weight)

    def scale(self, weight: float) -> None:
        torch._foreach_mul_(self.tensors, weight)


def is_short(vector: Vector) -> bool:
    """Whether vectors like this one are packed in arrays.

    Example:
        >>> is_short([torch.zeros(3)])
        True
    """
    on_cpu = all(t.device.type == "cpu" for t in vector)
    return on_cpu and dimension(vector) <= SHORT


class AbstractSpace(ABC):
    """Packs vectors, and goes from points to displacements and back.

    No tensor that it is given requires a gradient.
    """

    def __init__(self, origin: list[Tensor]) -> None:
        """Keep the origin."""
        self.origin = origin

    @abstractmethod
    def pack(self, vector: Vector) -> AbstractPacked:
        """A vector for arithmetic; it is not to be changed meanwhile."""

    @abstractmethod
    def size_of_origin(self) -> float:
        """The norm of the origin."""

    @abstractmethod
    def displacement(self, point: Vector) -> AbstractPacked:
        """A point, seen from the origin; in float64 if it is short.

        From far away the rounding of a displacement in float32 is more than the
        residuals near the answer, and cuts whose offsets have it contradict each other.
        """

    @abstractmethod
    def length(self, point: Vector) -> float:
        """The distance of a point from the origin."""

    @abstractmethod
    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        """Write the origin plus a displacement into the tensors of a point."""


class _ShortSpace(AbstractSpace):
    """One row of numbers, and the tensors that share its memory.

    One call copies between it and all tensors of a vector. For a small model the calls
    are the cost: three of them per evaluation would take a tenth of a gradient's time.
    """

    def __init__(self, origin: list[Tensor]) -> None:
        super().__init__(origin)
        sizes = [t.numel() for t in origin]
        flat = torch.zeros(sum(sizes), dtype=torch.float64, device="cpu")
        self._parts = [
            part.view(t.shape)
            for part, t in zip(flat.split_with_sizes(sizes), origin, strict=True)
        ]
        self._numbers: Array = flat.numpy()
        self._eps = rounding_unit(origin)
        self._from = self.pack(origin).numbers

    def pack(self, vector: Vector) -> Short:
        torch._foreach_copy_(self._parts, list(vector))
        return Short(self._numbers.copy(), self._eps)

    def size_of_origin(self) -> float:
        return Short(self._from, self._eps).norm()

    def displacement(self, point: Vector) -> Short:
        torch._foreach_copy_(self._parts, list(point))
        return Short(self._numbers - self._from, self._eps)

    @np.errstate(over="ignore")  # the norm knows what to do
    def length(self, point: Vector) -> float:
        return self.displacement(point).norm()

    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        if isinstance(displacement, Short):
            np.add(self._from, displacement.numbers, out=self._numbers)
            torch._foreach_copy_(list(point), self._parts)


class _LongSpace(AbstractSpace):
    """Points and displacements in their own tensors, without a copy."""

    def pack(self, vector: Vector) -> Long:
        return Long(list(vector))

    def size_of_origin(self) -> float:
        return norm(self.origin)

    def displacement(self, point: Vector) -> Long:
        return self.pack(point).minus(Long(self.origin))

    def length(self, point: Vector) -> float:
        return combined_norm([1.0, -1.0], [point, self.origin])

    def write(self, displacement: AbstractPacked, point: Vector) -> None:
        if isinstance(displacement, Long):
            _write_sum(self.origin, displacement.tensors, point)


def _write_sum(origin: Vector, displacement: Vector, point: Vector) -> None:
    """Write the origin plus a displacement into the tensors of a point."""
    moving = list(point)
    torch._foreach_copy_(moving, list(origin))
    torch._foreach_add_(moving, list(displacement))


def space_around(origin: list[Tensor]) -> AbstractSpace:
    """The space whose origin is a point without a gradient, which is kept.

    Example:
        >>> space, w = space_around([torch.ones(2)]), torch.zeros(2)
        >>> space.write(space.pack([torch.tensor([0.5, 2.0])]), [w]); w
        tensor([1.5000, 3.0000])
        >>> space.displacement([w]).norm() ** 2
        4.25
    """
    return _ShortSpace(origin) if is_short(origin) else _LongSpace(origin)


class AbstractMove(ABC):
    """A displacement from the origin, which need not exist as a vector."""

    length: float

    @abstractmethod
    def apply(self, space: AbstractSpace, point: Vector) -> None:
        """Write the origin plus the displacement into tensors without a gradient."""


class Packed(AbstractMove):
    """A displacement that is packed."""

    def __init__(self, displacement: AbstractPacked) -> None:
        self._displacement, self.length = displacement, displacement.norm()

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        space.write(self._displacement, point)


class Arrived(AbstractMove):
    """A displacement that is known by where it led."""

    def __init__(self, there: Vector, length: float) -> None:
        self._there, self.length = there, length

    def apply(self, space: AbstractSpace, point: Vector) -> None:
        del space
        assign(point, self._there)


P = TypeVar("P", bound=AbstractPacked)


class AbstractStorage(ABC, Generic[P]):
    """Vectors that are kept for their inner products."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def append(self, vector: P) -> None:
        """Keep a vector."""

    @abstractmethod
    def products(self, vector: P) -> Array:
        """The product of a vector with each of those that are kept."""

    @abstractmethod
    def remainder(
        self, vector: P, weights: Array, *, in_place: bool = False
    ) -> tuple[P, Array, float]:
        """``vector - sum_i weights[i] * vector_i``, its products, and its square.

        In place, a long vector's own memory has it afterwards.
        """

    @abstractmethod
    def combination(self, weights: Array) -> P:
        """``sum_i weights[i] * vector_i``, of one vector at least.

        There may be more vectors than weights; the last ones then do not count.
        """

    @abstractmethod
    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        """Write the space's origin plus that sum into the tensors of a point."""

    @abstractmethod
    def rotate(self, turn: Array) -> None:
        """Replace the vectors by combinations of them, one for each row of weights."""

    @abstractmethod
    def state(self) -> Tensor | list[Vector]:
        """The vectors as tensors: the rows of one, or lists shaped like parameters."""


class _ShortStorage(AbstractStorage[Short]):
    """The rows of a matrix, which doubles when it is full."""

    def __init__(self, rows: Array, eps: float) -> None:
        self._matrix, self._count, self._eps = rows, len(rows), eps

    def __len__(self) -> int:
        return self._count

    def append(self, vector: Short) -> None:
        n = self._count
        if n == len(self._matrix):
            grown = np.zeros((max(2 * n, 8), len(vector.numbers)))
            grown[:n] = self._matrix
            self._matrix = grown
        self._matrix[n] = vector.numbers
        self._count += 1

    def products(self, vector: Short) -> Array:
        found: Array = self._matrix[: self._count].dot(vector.numbers)
        return found

    def remainder(
        self, vector: Short, weights: Array, *, in_place: bool = False
    ) -> tuple[Short, Array, float]:
        del in_place  # a short one takes little memory
        left = vector.minus(self.combination(weights))
        return left, self.products(left), left.dot(left)

    def combination(self, weights: Array) -> Short:
        return Short(weights.dot(self._matrix[: len(weights)]), self._eps)

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        space.write(self.combination(weights), point)

    def rotate(self, turn: Array) -> None:
        self._matrix[: len(turn)] = turn.dot(self._matrix[: self._count])
        self._count = len(turn)

    def state(self) -> Tensor:
        return torch.from_numpy(self._matrix[: self._count].copy())


class _LongStorage(AbstractStorage[Long]):
    """The vectors, and one read of each per product or combination."""

    def __init__(self) -> None:
        self._vectors: list[Vector] = []

    def __len__(self) -> int:
        return len(self._vectors)

    def append(self, vector: Long) -> None:
        self._vectors.append(vector.tensors)

    def products(self, vector: Long) -> Array:
        return np.array(products(vector.tensors, self._vectors))

    def remainder(
        self, vector: Long, weights: Array, *, in_place: bool = False
    ) -> tuple[Long, Array, float]:
        left, (*found, square) = remainder(
            vector.tensors, weights.tolist(), self._vectors, in_place=in_place
        )
        return Long(left), np.array(found), square

    def combination(self, weights: Array) -> Long:
        return Long(combine(*self._used(weights)))

    def write(self, weights: Array, space: AbstractSpace, point: Vector) -> None:
        combine_into(point, space.origin, *self._used(weights))

    def rotate(self, turn: Array) -> None:
        rotate(self._vectors, turn)
        del self._vectors[len(turn) :]

    def state(self) -> list[Vector]:
        return [list(vector) for vector in self._vectors]

    def _used(self, weights: Array) -> tuple[list[float], list[Vector]]:
        # The first one is there for the shapes, should all weights be zero.
        used = [i for i, weight in enumerate(weights) if weight != 0 or i == 0]
        return [float(weights[i]) for i in used], [self._vectors[i] for i in used]


def storage_like(vector: AbstractPacked) -> AbstractStorage[Any]:
    """An empty storage for vectors like this one.

    Example:
        >>> one = Short(np.ones(3), eps=2**-52)
        >>> storage = storage_like(one); storage.append(one)
        >>> storage.products(one).tolist()
        [3.0]
    """
    if isinstance(vector, Short):
        return _ShortStorage(np.zeros((0, len(vector.numbers))), vector.eps)
    return _LongStorage()


def storage_of_state(state: Data, like: Vector, count: int) -> AbstractStorage[Any]:
    """The storage of such a state, on the devices of a vector ``like`` those in it.

    Raises:
        SchemaError: It does not hold ``count`` vectors like that one.

    Example:
        >>> stored = storage_of_state(torch.ones(2, 3).double(), [torch.zeros(3)], 2)
        >>> stored.products(Short(np.ones(3), eps=2**-52)).tolist()
        [3.0, 3.0]
    """
    if is_short(like):
        check_tensor(state, "vectors", (count, dimension(like)), torch.float64)
        return _ShortStorage(np.array(state.numpy()), rounding_unit(like))
    check_like(state, [like] * count, "vectors")
    storage = _LongStorage()
    for vector in state:
        storage.append(Long(on_devices(vector, like)))
    return storage
