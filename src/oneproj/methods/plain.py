"""Objects of this library as plain containers, and back: a pickle that runs no code.

A projector that is used again and again carries what it learned in objects of its own.
A checkpoint holds numbers, strings, tensors and containers only, so every object is
written as the name of its class and its attributes, and made again from them without
calling anything. Only classes of this library are made. What belongs to the problem,
its parameters and constraints, is written by name: the resumed run has its own.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneproj.errors import CheckpointError

OWN = "oneproj"
PLAIN = (type(None), bool, int, float, str)
CONTAINERS = {"list": list, "tuple": tuple, "set": set}


class _Stranger:
    """Stands for a part of a problem that was replaced since: equal to nothing."""


def flatten(value: object, known: Mapping[str, object], foreign: type) -> Any:  # noqa: ANN401 - plain
    """A value in plain containers.

    Args:
        value: Made of numbers, strings, tensors, arrays, containers and objects of
            this library.
        known: What to write by its name.
        foreign: Instances that are not known are forgotten: no other object is them.

    Raises:
        CheckpointError: Something else is in it; the message names it.

    Example:
        >>> w = torch.ones(2)
        >>> kept = {"w": [w], "n": np.arange(2.0)}
        >>> state = flatten(kept, {"parameter 0": w}, foreign=enum.Enum)
        >>> state
        ('dict', [['w', ('list', [('known', 'parameter 0')])],
                  ['n', ('array', tensor([0., 1.], dtype=torch.float64), 'C')]])
        >>> rebuild(state, {"parameter 0": torch.zeros(1)})
        {'w': [tensor([0.])], 'n': array([0., 1.])}
    """
    names = {id(item): name for name, item in known.items()}
    return _Flattener(names, foreign).flat(value)


class _Flattener:
    """Writes an object once, however often it is met."""

    def __init__(self, names: dict[int, str], foreign: type) -> None:
        self._names, self._foreign = names, foreign
        self._met: dict[int, int] = {}

    def flat(self, value: object) -> Any:  # noqa: ANN401 - plain
        if id(value) in self._names:
            return ("known", self._names[id(value)])
        if isinstance(value, Tensor) and value.device.type != "cpu":
            return ("tensor", value, str(value.device))  # a file is read to the CPU
        if isinstance(value, Tensor) or type(value) in PLAIN:
            return value
        if isinstance(value, self._foreign):
            return ("stranger",)
        if isinstance(value, np.ndarray):
            return _flat_array(value)
        return self._flat_container(value)

    def _flat_container(self, value: object) -> Any:  # noqa: ANN401, PLR0911 - one return per kind
        kind = type(value).__name__
        if isinstance(value, np.generic):
            return value.item()
        if type(value) in CONTAINERS.values():
            return (kind, [self.flat(item) for item in value])  # type: ignore[attr-defined]
        if isinstance(value, dict):
            return ("dict", [[self.flat(k), self.flat(v)] for k, v in value.items()])
        module, where = type(value).__module__, type(value).__qualname__
        if (
            module.partition(".")[0] != OWN
            or isinstance(value, type)
            or callable(value)
        ):
            message = (
                f"The state of this run cannot be saved: it holds a {kind} of "
                f"{module!r}, and a checkpoint holds numbers, arrays, tensors and "
                "objects of this library only, so that loading one runs no code."
            )
            raise CheckpointError(message)
        if isinstance(value, enum.Enum):
            return ("member", module, where, value.name)
        if isinstance(value, tuple):
            return ("named", module, where, [self.flat(item) for item in value])
        if id(value) in self._met:
            return ("again", self._met[id(value)])
        self._met[id(value)] = len(self._met)
        attributes = {name: self.flat(item) for name, item in vars(value).items()}
        return ("object", module, where, attributes)


def _flat_array(array: np.ndarray[Any, Any]) -> tuple[str, Tensor, str]:
    # The order in memory is kept: sums over it are then the same to the last bit.
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    rows = array if order == "C" else array.T
    return ("array", torch.from_numpy(np.array(rows, order="C")), order)


def rebuild(state: Any, known: Mapping[str, object]) -> Any:  # noqa: ANN401 - any value
    """The value of such a state, with the ``known`` objects of this run."""
    return _Builder(known).build(state)


class _Builder:
    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = known
        self._made: list[object] = []

    def build(self, state: Any) -> Any:  # noqa: ANN401, PLR0911 - one return per kind
        if not isinstance(state, tuple):
            return state
        kind, *rest = state
        if kind == "known":
            return self._known[rest[0]]
        if kind == "stranger":
            return _Stranger()
        if kind == "array":
            array = rest[0].numpy()
            return array if rest[1] == "C" else array.T
        if kind == "tensor":
            return rest[0].to(rest[1])
        if kind == "again":
            return self._made[rest[0]]
        if kind in (*CONTAINERS, "dict"):
            return self._build_container(kind, rest[0])
        return self._build_own(kind, *rest)

    def _build_container(self, kind: str, items: list[Any]) -> object:
        if kind == "dict":
            return {self.build(key): self.build(item) for key, item in items}
        return CONTAINERS[kind](self.build(item) for item in items)

    def _build_own(self, kind: str, module: str, where: str, content: Any) -> object:  # noqa: ANN401 - plain
        made = _class(module, where)
        if kind == "member":
            return made[content]  # type: ignore[index]  # an enum
        if kind == "named":
            return tuple.__new__(made, [self.build(item) for item in content])
        value: object = object.__new__(made)
        self._made.append(value)
        vars(value).update({n: self.build(item) for n, item in content.items()})
        return value


def _class(module: str, where: str) -> type:
    if module.partition(".")[0] != OWN:
        message = f"A checkpoint names a class of {module!r}, which is not loaded."
        raise CheckpointError(message)
    try:
        found: Any = importlib.import_module(module)
        for name in where.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        message = (
            f"A checkpoint names {where!r} of {module!r}, which this version of the "
            "library does not have. Finish the run with the version that began it."
        )
        raise CheckpointError(message) from error
    if not isinstance(found, type):
        message = f"A checkpoint names {where!r} of {module!r}, which is no class."
        raise CheckpointError(message)
    return found
