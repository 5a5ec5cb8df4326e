"""The tensors that a run optimises, and a centre shaped like them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import has_torch_function

from oneproj.arguments import as_tensor, check_dense
from oneproj.distributed import is_dtensor
from oneproj.errors import InvalidProblemError
from oneproj.problem.autograd import require_autograd
from oneproj.vectors.arithmetic import Vector


def trainable(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    """Collect the tensors to optimise: floating, requiring grad, each once.

    Frozen tensors (``requires_grad=False``) are left out: they are constants of the
    problem. One tensor may be given in place of an iterable.

    Raises:
        InvalidProblemError: Nothing is left, or an entry cannot be optimised.

    Example:
        >>> layer = torch.nn.Linear(3, 2)
        >>> [tuple(p.shape) for p in trainable(layer.parameters())]
        [(2, 3), (2,)]
    """
    given = _as_tensors(parameters)
    unique = list({id(t): t for t in given if t.requires_grad}.values())
    for tensor in unique:
        _check_writable(tensor)
    if not any(tensor.numel() for tensor in unique):
        raise InvalidProblemError(_nothing_to_optimise(given))
    require_autograd(unique)
    for tensor in unique:
        _check_optimisable(tensor)
    _check_apart(unique)
    return unique


def _nothing_to_optimise(given: list[Tensor]) -> str:
    if not given:
        return (
            "There is nothing to optimise: got no tensor at all. The model has no "
            "parameters, or they were gone through before: model.parameters() can be "
            "so once. Keep list(model.parameters())."
        )
    kinds = ", ".join(sorted({str(tensor.dtype) for tensor in given}))
    return (
        f"There is nothing to optimise: got {len(given)} frozen or empty tensor(s) of "
        f"{kinds}. What should move is floating and needs requires_grad=True before "
        "the problem is built."
    )


def _as_tensors(parameters: object) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        return [parameters]
    given: list[Any] = [parameters]
    if isinstance(parameters, Iterable) and not isinstance(parameters, Mapping):
        given = list(parameters)
    for tensor in given:
        if not isinstance(tensor, Tensor):
            message = (
                f"Parameters must be tensors, but got {type(tensor).__name__}. Pass "
                "model.parameters(), a list of tensors, or one tensor; of a dict of "
                "the model's own tensors (a state_dict has copies) its values()."
            )
            raise InvalidProblemError(message)
    return given


def _check_writable(tensor: Tensor) -> None:
    """Refuse a parameter whose entries cannot be read and written one by one.

    It may be sharded over ranks, have no numbers yet, or hold one number in several
    places.
    """
    if is_dtensor(tensor):
        message = (
            f"A parameter of shape {tuple(tensor.shape)} is a DTensor, sharded over "
            "ranks (FSDP2), which is not supported yet. Keep whole parameters on every "
            "rank, or load the full weights (DTensor.full_tensor()) into a plain copy "
            "of the model, and call oneproj.project on it."
        )
        raise InvalidProblemError(message)
    if is_lazy(tensor):
        message = (
            "A parameter has no shape yet: it is that of a lazy module (LazyLinear, "
            "for example). Call the model once, on a batch, before its parameters are "
            "used."
        )
        raise InvalidProblemError(message)
    shape = tuple(tensor.shape)
    check_dense(f"A parameter of shape {shape}", tensor)
    pairs = zip(shape, tensor.stride(), strict=True)
    if any(size > 1 and not stride for size, stride in pairs):
        message = (
            f"A parameter of shape {shape} is expanded: several of its entries are one "
            "place in memory. Pass its clone(), or the tensor that it was expanded "
            "from."
        )
        raise InvalidProblemError(message)


def _check_optimisable(tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        reason = f"has dtype {tensor.dtype}, and only real floating-point ones can move"
    elif not tensor.is_leaf:
        reason = (
            "is a result, not a leaf tensor: pass the leaf that it was computed from"
        )
    elif not bool(torch.isfinite(tensor).all()):
        reason = (
            "holds NaN or inf at the start: initialise it before the problem is built"
        )
    else:
        return
    message = f"A parameter of shape {tuple(tensor.shape)} {reason}."
    raise InvalidProblemError(message)


def _check_apart(tensors: Sequence[Tensor]) -> None:
    """Refuse different parameters that have numbers in common."""
    own = [t for t in tensors if t.numel() and not has_torch_function((t,))]
    for a, b in pairwise(sorted(own, key=lambda t: (str(t.device), t.data_ptr()))):
        if a.device == b.device and _overlap(a, b):
            message = (
                f"Two parameters share memory, of shapes {tuple(a.shape)} and "
                f"{tuple(b.shape)}: what they have in common would move twice. To tie "
                "two layers, let them have one Parameter: b.weight = a.weight, not "
                "b.weight.data = a.weight.data."
            )
            raise InvalidProblemError(message)


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors, the first of which begins no later, share a byte."""
    begin, ends = a.data_ptr(), []
    for t in (a, b):
        steps = zip(t.shape, t.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in steps)
        ends.append(t.data_ptr() + (last + 1) * t.itemsize)
    if ends[0] <= b.data_ptr():
        return False
    uses = torch.zeros(max(ends) - begin, dtype=torch.uint8, device="cpu")
    for t in (a, b):
        strides = *(k * t.itemsize for k in t.stride()), 1
        shape = *t.shape, t.itemsize
        uses.as_strided(shape, strides, t.data_ptr() - begin).add_(1)
    return bool((uses > 1).any())


def as_center(center: object, parameters: Vector) -> list[Tensor] | None:
    """Copy the ball's center, which must be shaped like the parameters; None stays.

    Example:
        >>> as_center([[1.0, 2.0]], [torch.zeros(2)])
        [tensor([1., 2.])]
    """
    if center is None:
        return None
    wanted = [tuple(p.shape) for p in parameters]
    single = isinstance(center, Tensor | np.ndarray)
    parts: object = [center] if single else center
    given: list[Tensor] = []
    got: object = center
    if isinstance(parts, Iterable) and not isinstance(parts, str | Mapping):
        name = "The ball's center"
        given = [as_tensor(name, part, finite=True) for part in parts]
        got = [tuple(t.shape) for t in given]
    if got != wanted:
        message = (
            f"The ball's center must be shaped like the parameters {wanted}, but got "
            f"{got!r}. Pass one tensor per trainable parameter, or None for the origin."
        )
        raise InvalidProblemError(message)
    return [t.to(p).clone() for t, p in zip(given, parameters, strict=True)]
