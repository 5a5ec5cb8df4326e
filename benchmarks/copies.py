"""How many copies of the parameters an optimiser holds: counted, not claimed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from torch import Tensor
from torch.optim import Optimizer


def held_copies(optimizer: Optimizer) -> float:
    """Bytes of the tensors an optimiser holds, over the bytes of its parameters.

    Everything reachable from its attributes counts: its state, the state of an
    optimiser inside it, buffers kept anywhere else. Memory seen through two tensors
    counts once; the parameters and their gradients belong to the model.

    Example:
        >>> import torch
        >>> w = torch.ones(8, requires_grad=True)
        >>> sgd = torch.optim.SGD([w], lr=0.1, momentum=0.9)
        >>> w.sum().backward(); sgd.step(); held_copies(sgd)
        1.0
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters if p.grad is not None]
    model = _memory(parameters)
    held = _memory(list(_tensors(optimizer, set())))
    own = held.keys() - model.keys() - _memory(gradients).keys()
    return sum(held[address] for address in own) / sum(model.values())


def _memory(tensors: list[Tensor]) -> dict[int, int]:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _tensors(value: object, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(key, seen)
            yield from _tensors(item, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _tensors(item, seen)
    elif isinstance(value, Optimizer):
        yield from _tensors(vars(value), seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name), seen)
