"""Arithmetic of vectors, which are lists of tensors shaped like the parameters.

Inner products, norms, linear combinations and the safeguard ball. Large models are not
flattened or copied: an operation costs a few passes over memory. ``flat`` and
``unflat`` convert a small vector to a NumPy array, for scipy, and back.

A sum of k vectors that do not fit the cache, made vector by vector, reads and writes
the sum k times; made block by block it is read never and written once. New memory costs
more than either, since the system hands it out page by page: what can be written in
place is, and what is wanted only for its length is never kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Vector: TypeAlias = Sequence[Tensor]
"""A point or direction: one tensor per parameter, shapes as in the model."""

ROW = 1024
"""Squares added up in a tensor's own precision before float64 takes over."""
SMALL = 2**16
"""Tensors up to this size are converted to float64 as a whole: they fit the cache."""
PLAIN = (torch.float32, torch.float64)
"""Dtypes that torch adds up in their own precision."""
TINY = 1e-12
"""Norms below it may have lost squares that underflow in float32."""
BLOCK = 2**17
"""Numbers in a block: it and the sum so far fit the caches of a core."""
SLICE = 2**14
"""Numbers in a block of many vectors in float64, all of which are to fit."""


def snapshot(point: Vector) -> list[Tensor]:
    """Copy a point, detached from autograd.

    Example:
        >>> w = torch.ones(2)
        >>> copy = snapshot([w]); _ = w.zero_(); copy[0].tolist()
        [1.0, 1.0]
    """
    return [tensor.detach().clone() for tensor in point]


def gradients(point: Vector) -> list[Tensor]:
    """The ``.grad`` of each tensor; zeros where there is none.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> gradients([w])[0].tolist()
        [0.0, 0.0]
    """
    return [torch.zeros_like(t) if t.grad is None else t.grad for t in point]


def dimension(vector: Vector) -> int:
    """How many numbers a vector has.

    Example:
        >>> dimension([torch.ones(2, 3), torch.ones(1)])
        7
    """
    return sum(tensor.numel() for tensor in vector)


def rounding_unit(vector: Vector) -> float:
    """The largest relative rounding error among a vector's dtypes; 0 without tensors.

    Example:
        >>> rounding_unit([torch.zeros(1), torch.zeros(1, dtype=torch.float64)])
        1.1920928955078125e-07
    """
    return max((torch.finfo(tensor.dtype).eps for tensor in vector), default=0.0)


def on_devices(vector: Vector, like: Vector) -> list[Tensor]:
    """Copy a vector to the devices of the parameters.

    Example:
        >>> on_devices([torch.ones(1)], [torch.zeros(1)])
        [tensor([1.])]
    """
    return [t.to(p.device) for t, p in zip(vector, like, strict=True)]


def state_on_devices(state: Any, like: Vector) -> Any:  # noqa: ANN401 - plain data
    """Return a saved state with its vectors on the devices of others.

    Lists of tensors shaped like these are vectors.

    Example:
        >>> state_on_devices({"point": [torch.ones(1)], "k": 3}, [torch.zeros(1)])
        {'point': [tensor([1.])], 'k': 3}
    """
    if isinstance(state, Mapping):
        return {name: state_on_devices(part, like) for name, part in state.items()}
    shapes = [p.shape for p in like]
    if isinstance(state, list) and [getattr(t, "shape", None) for t in state] == shapes:
        return on_devices(state, like)
    return state


@torch.no_grad()
def assign(point: Vector, source: Vector) -> None:
    """Write ``source`` into the tensors of ``point``, in place.

    Example:
        >>> w = torch.zeros(2)
        >>> assign([w], [torch.ones(2)]); w.tolist()
        [1.0, 1.0]
    """
    torch._foreach_copy_(list(point), list(source))


def dot(a: Vector, b: Vector) -> float:
    """Inner product, accumulated in float64 across tensors.

    Example:
        >>> dot([torch.ones(2), torch.ones(1)], [torch.ones(2), torch.ones(1)])
        3.0
    """
    # Each product is formed in float64 so that Gram matrices of nearly parallel
    # gradients keep their small eigenvalues.
    x, y = _flat(a), _flat(b)
    if x is not None and y is not None and len(a) == len(b):
        return torch.dot(x.double(), y.double()).item()
    return math.fsum(
        torch.dot(x.double(), y.double()).item()
        for u, v in zip(a, b, strict=True)
        for x, y in zip(_blocks(u), _blocks(v), strict=True)
    )


def _blocks(tensor: Tensor) -> Sequence[Tensor]:
    """The entries in blocks whose float64 copies fit the cache."""
    return torch.split(tensor.detach().flatten(), SMALL)


def _flat(vector: Vector) -> Tensor | None:
    """A copy in one flat tensor if it is small, so that one call handles all."""
    few = sum(map(Tensor.numel, vector)) <= SMALL
    alone = few and len({tensor.device for tensor in vector}) == 1
    return torch.cat([t.flatten() for t in vector]).detach() if alone else None


def norm(a: Vector) -> float:
    """Euclidean norm over all tensors, for one read of memory.

    In large tensors, ``ROW`` squares at a time are added in their own precision
    (float32 at least); all other sums are float64. The error is a few rounding units,
    whatever the size of the model.

    Example:
        >>> norm([torch.tensor([3.0]), torch.tensor([4.0])])
        5.0
    """
    flat = _flat(a)
    if flat is not None:
        length = torch.linalg.vector_norm(flat, dtype=torch.float64).item()
    elif pieces := [piece for tensor in a for piece in _row_norms(tensor.detach())]:
        norms = torch._foreach_norm(pieces, 2, dtype=torch.float64)
        length = math.hypot(*torch.stack(list(norms)).tolist())
    else:
        return 0.0
    return length if TINY < length < math.inf else _rescaled_norm(a)


def relative_distance(distance: float, origin: Vector) -> float:
    """A distance as a share of the norm of the parameters where it begins.

    Example:
        >>> start, nothing = [torch.tensor([3.0, 4.0])], [torch.zeros(2)]
        >>> relative_distance(0.5, start), relative_distance(0.5, nothing)
        (0.1, inf)
    """
    length = norm(origin)
    if length == 0.0:
        return math.inf if distance > 0 else 0.0
    return distance / length


def _rescaled_norm(a: Vector) -> float:
    """The norm of a vector whose squares overflow or underflow, tensor by tensor."""
    lengths = []
    for tensor in a:
        wide = tensor.detach().flatten().double()
        largest = float(wide.abs().max()) if wide.numel() else 0.0
        if not math.isfinite(largest):
            return largest
        if largest > 0:
            relative = float(torch.linalg.vector_norm(wide / largest))
            lengths.append(largest * relative)
    return math.hypot(*lengths)


def _row_norms(tensor: Tensor) -> list[Tensor]:
    """Short tensors that together have the same norm, from one parallel read."""
    if tensor.numel() <= SMALL:
        return [tensor] if tensor.numel() else []
    flat = tensor.reshape(-1)
    whole = flat.numel() - flat.numel() % ROW
    wide = torch.promote_types(flat.dtype, torch.float32)
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1, dtype=wide)
    return [rows] if whole == flat.numel() else [rows, flat[whole:]]


@torch.no_grad()
def difference(a: Vector, b: Vector) -> list[Tensor]:
    """The vector ``a - b``, as new tensors.

    Example:
        >>> difference([torch.tensor([3.0])], [torch.tensor([1.0])])
        [tensor([2.])]
    """
    return list(torch._foreach_sub([t.detach() for t in a], [t.detach() for t in b]))


def distance(a: Vector, b: Vector) -> float:
    """Euclidean distance between two points.

    Example:
        >>> distance([torch.tensor([3.0])], [torch.tensor([1.0])])
        2.0
    """
    return norm(difference(a, b))


def offset(point: Vector, center: Vector | None) -> Vector:
    """The point minus a ball's centre; the point itself if the centre is None.

    Example:
        >>> offset([torch.tensor([3.0])], [torch.tensor([1.0])])
        [tensor([2.])]
    """
    return point if center is None else difference(point, center)


@torch.no_grad()
def combine(weights: Sequence[float], vectors: Sequence[Vector]) -> list[Tensor]:
    """The linear combination ``sum_k weights[k] * vectors[k]``.

    Example:
        >>> combine([2.0, -1.0], [[torch.ones(1)], [torch.ones(1)]])
        [tensor([1.])]
    """
    total = [torch.empty_like(t) for t in vectors[0]]
    for y, first, *others in _aligned([total, *vectors]):
        torch.mul(first, weights[0], out=y)
        for weight, part in zip(weights[1:], others, strict=True):
            y.add_(part, alpha=weight)
    return total


@torch.no_grad()
def project_ball_(point: Vector, radius: float, center: Vector | None) -> float:
    """Project a point onto the safeguard ball in place; return the distance outside.

    ``P_B(z) = c + min(1, R / |z - c|) (z - c)``; a centre of None is the origin. The
    return value is ``max(0, |z - c| - R)`` as it was before, NaN for a point with NaN.
    An infinite radius costs nothing: the point is not even read.

    Example:
        >>> z = torch.tensor([3.0, 4.0])
        >>> project_ball_([z], 1.0, None), z.tolist()
        (4.0, [0.6000000238418579, 0.800000011920929])
    """
    if math.isinf(radius):
        return 0.0
    tensors = list(point)
    length = norm(offset(tensors, center))
    if not length > radius:
        return length if math.isnan(length) else 0.0
    shrink = radius / length
    if center is None:
        torch._foreach_mul_(tensors, shrink)
    else:
        torch._foreach_lerp_(tensors, list(center), 1.0 - shrink)
    return length - radius


def is_finite(vector: Vector) -> bool:
    """Whether every entry of every tensor is finite, for one read of memory.

    Example:
        >>> is_finite([torch.tensor([1.0, float("nan")])])
        False
    """
    for tensor in vector:
        # A finite sum has finite terms. One that is not may have overflowed.
        finite = math.isfinite(tensor.detach().sum().item())
        if not finite and not bool(torch.isfinite(tensor).all()):
            return False
    return True


def flat(vector: Vector) -> Array:
    """All entries as one float64 array.

    Example:
        >>> flat([torch.ones(1, 2), torch.zeros(1)]).tolist()
        [1.0, 1.0, 0.0]
    """
    parts = [tensor.detach().cpu().double().reshape(-1).numpy() for tensor in vector]
    joined: Array = np.concatenate(parts)
    return joined


def unflat(entries: Array, like: Vector) -> list[Tensor]:
    """The entries as tensors, shaped and placed like the given ones.

    Example:
        >>> unflat(np.arange(3.0), [torch.ones(1, 2), torch.zeros(1)])
        [tensor([[0., 1.]]), tensor([2.])]
    """
    sizes = [tensor.numel() for tensor in like]
    parts = torch.split(torch.from_numpy(np.array(entries)), sizes)
    return [p.reshape(t.shape).to(t) for p, t in zip(parts, like, strict=True)]


@torch.no_grad()
def combine_into(
    point: Vector, origin: Vector, weights: Sequence[float], vectors: Sequence[Vector]
) -> None:
    """Write ``origin + sum_k weights[k] * vectors[k]`` into the tensors of ``point``.

    Example:
        >>> w, v = torch.zeros(2), torch.tensor([1.0, 2.0])
        >>> combine_into([w], [torch.ones(2)], [2.0, -1.0], [[v], [torch.ones(2)]])
        >>> w.tolist()
        [2.0, 4.0]
    """
    for y, x, *parts in _aligned([point, origin, *vectors]):
        torch.add(x, _sum(weights, parts), out=y)


@torch.no_grad()
def combined_norm(weights: Sequence[float], vectors: Sequence[Vector]) -> float:
    """The length of ``sum_k weights[k] * vectors[k]``, which is not formed.

    Half precision, in which a difference of near vectors is mostly rounding, is left
    for single.

    Example:
        >>> combined_norm([1.0, -1.0], [[torch.tensor([3.0])], [torch.tensor([1.0])]])
        2.0
    """
    lengths = [
        torch.linalg.vector_norm(_sum(weights, _single(parts)), dtype=torch.float64)
        for parts in _aligned(vectors)
    ]
    length = math.hypot(*(float(part) for part in lengths))
    if TINY < length < math.inf:
        return length
    return norm(combine(weights, vectors))


@torch.no_grad()
def products(vector: Vector, others: Sequence[Vector]) -> list[float]:
    """The inner product with each of the others, formed and added in float64.

    Example:
        >>> products([torch.tensor([3.0])], [[torch.tensor([2.0])]])
        [6.0]
    """
    parts: list[list[float]] = [[] for _ in others]
    for first, *rest in _aligned([vector, *others]):
        x = first.reshape(-1).double()
        for found, part in zip(parts, rest, strict=True):
            found.append(float(torch.dot(x, part.reshape(-1).double())))
    return [math.fsum(found) for found in parts]


@torch.no_grad()
def remainder(
    vector: Vector,
    weights: Sequence[float],
    others: Sequence[Vector],
    *,
    in_place: bool = False,
) -> tuple[list[Tensor], list[float]]:
    """``vector - sum_k weights[k] * others[k]``; its products, and last its square.

    Each block is multiplied while it is in the cache. In place, the vector's own memory
    has the remainder afterwards.

    Example:
        >>> x, y = [torch.tensor([3.0])], [torch.tensor([1.0])]
        >>> remainder(x, [2.0], [y])
        ([tensor([1.])], [1.0, 1.0])
    """
    left = list(vector) if in_place else [torch.empty_like(t) for t in vector]
    parts: list[list[float]] = [[] for _ in range(len(others) + 1)]
    for y, first, *rest in _aligned([left, vector, *others]):
        wide = (
            y if y.dtype == torch.float64 else torch.empty_like(y, dtype=torch.double)
        )
        wide.copy_(first)
        for weight, part in zip(weights, rest, strict=True):
            wide.add_(part, alpha=-weight)
        y.copy_(wide)  # in few bits it is rounded once
        x = y.reshape(-1).double()
        for found, part in zip(parts, (*rest, y), strict=True):
            found.append(float(torch.dot(x, part.reshape(-1).double())))
    return left, [math.fsum(found) for found in parts]


@torch.no_grad()
def rotate(vectors: Sequence[Vector], turn: Array) -> None:
    """Write combinations of vectors into the first of them, block by block.

    Args:
        vectors: As many as a row of ``turn`` has weights.
        turn: A row of weights for each combination, at most as many as vectors.

    Example:
        >>> a, b = torch.tensor([1.0]), torch.tensor([2.0])
        >>> rotate([[a], [b]], torch.tensor([[1.0, 3.0]]).double().numpy())
        >>> a
        tensor([7.])
    """
    for parts in _aligned(vectors, SLICE):
        weights = torch.as_tensor(turn).to(parts[0].device, torch.float64)
        rows = torch.stack([part.reshape(-1) for part in parts]).double()
        turned = weights @ rows
        for part, row in zip(parts, turned, strict=False):
            part.copy_(row.view(part.shape))


def _aligned(
    vectors: Sequence[Vector], block: int | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """The same block of every vector, for one block after the other.

    What is not contiguous, or on a device that has its own idea of speed, is one block.
    """
    block = BLOCK if block is None else block
    for tensors in zip(*vectors, strict=True):
        whole = tuple(t.detach() for t in tensors)
        long = whole[0].numel() > block and whole[0].device.type == "cpu"
        if long and all(t.is_contiguous() for t in whole):
            yield from zip(*(t.view(-1).split(block) for t in whole), strict=True)
        else:
            yield whole


def _single(parts: Sequence[Tensor]) -> list[Tensor]:
    """The parts, in single precision at least."""
    return [p.to(torch.promote_types(p.dtype, torch.float32)) for p in parts]


def _sum(weights: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    total = weights[0] * parts[0]
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        total.add_(part, alpha=weight)
    return total
