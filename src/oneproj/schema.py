"""State that is saved and read back, and checks of what a file holds.

``Resumable`` saves and loads named attributes of an object. ``check_like`` compares
data with an example: what a new run of the same problem would save. That is the one
check of a whole checkpoint; the other functions are its parts. Nothing in a file can
name a class or a function.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

Data: TypeAlias = Any  # whatever a file had
Limits: TypeAlias = tuple[float, float]
INF = math.inf
FINITE: Limits = (-INF, INF)
LARGEST = 1e30  # no step size or other setting is larger; the largest float32 is 3e38
MAX_DEPTH = 50  # containers within containers that a file may hold


@runtime_checkable
class HasState(Protocol):
    """What optimisers, schedulers and the like have."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, by name."""

    def load_state_dict(self, state_dict: Any, /) -> Any:  # noqa: ANN401 - plain data
        """Continue from such a state."""


class Resumable:
    """An object whose state is its attributes named in ``STATE``.

    Attributes that have a state of their own, such as optimisers, save and load it. The
    others are plain data: numbers, strings, tensors and containers of them. Nothing is
    copied, in either direction.

    Example:
        >>> class Counter(Resumable):
        ...     STATE = ("_made",)
        ...     def __init__(self): self._made = 0
        >>> counter = Counter()
        >>> counter.load_state_dict({"made": 3}); counter.state_dict()
        {'made': 3}
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    """Names of attributes; in the state they have no underscore in front."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, by name."""
        parts = {name: vars(self)[name] for name in self.STATE}
        return {
            name.lstrip("_"): part.state_dict() if isinstance(part, HasState) else part
            for name, part in parts.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from such a state."""
        for name in self.STATE:
            saved, part = state[name.lstrip("_")], vars(self)[name]
            if isinstance(part, HasState):
                part.load_state_dict(saved)
            else:
                vars(self)[name] = saved


class SchemaError(ValueError):
    """Data that does not fit; the message says where and why.

    Example:
        >>> check_range(-5, "update", 0)
        Traceback (most recent call last):
        oneproj.schema.SchemaError: update should be a whole number >= 0, it is -5
    """


def require(fits: bool, value: object, where: str, wanted: str) -> None:  # noqa: FBT001 - a test's outcome
    """Raise unless a value fits.

    Raises:
        SchemaError: It does not; the message shows what was wanted and what there is.

    Example:
        >>> require(1 == 1, 1, "x", "one")
    """
    if not fits:
        found = reprlib.repr(value)
        if type(value) is Tensor:
            found = f"a {value.dtype} tensor of shape {tuple(value.shape)}"
        message = f"{where} should be {wanted}, it is {found}"
        raise SchemaError(message)


def check_plain(value: Data, where: str, depth: int = 0) -> Data:
    """Require numbers, strings, tensors and containers of them; returns the data.

    Example:
        >>> check_plain({"a": [1, None]}, "state")
        {'a': [1, None]}
        >>> check_plain({"a": [print]}, "state")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: state['a'][0] is a builtin_function_or_method
    """
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if depth > MAX_DEPTH or not isinstance(value, Mapping | list | tuple):
        kind = f"a {type(value).__name__}"
        message = f"{where} is {kind if depth <= MAX_DEPTH else 'nested too deeply'}"
        raise SchemaError(message)
    for name, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        check_plain(name, f"a name in {where}", depth + 1)
        check_plain(item, f"{where}[{name!r}]", depth + 1)
    return value


def check_like(value: Data, like: Data, where: str) -> None:
    """Compare data with an example of it.

    Tensors need the shape and the dtype of the example, lists its length, mappings its
    names. Numbers and tensors must be finite where the example is. What is None or
    empty in a mapping of the example may be anything plain, and so may mappings from
    numbers (an optimiser's memory).

    Raises:
        SchemaError: The data differs in form; the message says where.

    Example:
        >>> check_like({"total": 7.5, "kept": [1]}, {"total": 0.0, "kept": []}, "state")
        >>> check_like({"total": "7"}, {"total": 0.0}, "state")
        Traceback (most recent call last):
        oneproj.schema.SchemaError: state.total should be a number ..., it is '7'
    """
    if isinstance(like, Tensor):
        finite = like.is_meta or bool(torch.isfinite(like).all())
        within = FINITE if finite else None
        check_tensor(value, where, like.shape, like.dtype, within)
    elif isinstance(like, bool | str):
        require(type(value) is type(like), value, where, f"a {type(like).__name__}")
    elif isinstance(like, int | float):
        limit = LARGEST if math.isfinite(like) else INF
        check_range(value, where, -limit, limit)
    elif isinstance(like, Mapping) and all(isinstance(name, str) for name in like):
        check_names(value, where, like)
        for name, item in like.items():
            empty = isinstance(item, list | tuple | Mapping) and not item
            if item is not None and not empty:
                check_like(value[name], item, f"{where}.{name}")
    elif isinstance(like, list | tuple):
        check_list(value, where, len(like), len(like))
        for i, item in enumerate(like):
            check_like(value[i], item, f"{where}[{i}]")
    elif like is None:
        require(value is None, value, where, "None")


def check_range(value: Data, where: str, least: float, most: float = INF) -> Data:
    """Require a number within limits, a whole one if the lower limit is an ``int``.

    It has to be finite, unless both limits are infinite. Returns it.

    Example:
        >>> check_range(3, "update", 0, 9)
        3
    """
    whole = type(least) is int
    limits = [f">= {least}"] * (least > -INF) + [f"<= {most}"] * (most < INF)
    fits = type(value) is int or (type(value) is float and not whole)
    fits = fits and (not limits or (least <= value <= most and abs(value) < INF))
    kind = "a whole number" if whole else "a number"
    require(fits, value, where, f"{kind} {' and '.join(limits)}".rstrip())
    return value


def check_tensor(
    value: Data,
    where: str,
    shape: Sequence[int | None],
    dtype: torch.dtype | None = None,
    within: Limits | None = FINITE,
) -> None:
    """Require a dense tensor, its entries finite and within limits.

    None stands for any length, any floating dtype, or any entries.

    Example:
        >>> check_tensor(torch.ones(3), "w", (2,), torch.float32)
        Traceback (most recent call last):
        oneproj.schema.SchemaError: w should be a torch.float32 tensor of shape (2,)...
    """
    fits = type(value) is Tensor and value.layout is torch.strided
    fits = fits and (value.dtype == dtype if dtype else value.is_floating_point())
    fits = fits and len(value.shape) == len(shape)
    fits = fits and all(b in (a, None) for a, b in zip(value.shape, shape, strict=True))
    require(fits, value, where, f"a {dtype or 'floating'} tensor of shape {(*shape,)}")
    if within is not None:
        inside = torch.isfinite(value) & (value >= within[0]) & (value <= within[1])
        fits = bool(inside.all())
        require(fits, "not", where, f"finite and within {within} in every entry")


def check_list(value: Data, where: str, least: int, most: float) -> None:
    """Require a list or tuple of some length.

    Example:
        >>> check_list([1, 2], "pair", 2, 2)
    """
    fits = type(value) in (list, tuple) and least <= len(value) <= most
    wanted = f"a list of {least}" if most == least else f"a list of {least} to {most}"
    require(fits, value, where, wanted)


def check_names(value: Data, where: str, known: Data, needed: Data = None) -> None:
    """Require a mapping with known names, all of them unless fewer are needed.

    Example:
        >>> check_names({}, "sampler", ["drawn"])
        Traceback (most recent call last):
        oneproj.schema.SchemaError: sampler has no drawn
    """
    fits = isinstance(value, dict) and all(type(name) is str for name in value)
    require(fits, value, where, "a mapping from names")
    missing = sorted(set(known if needed is None else needed) - value.keys())
    for word, names in ("no", missing), ("an unknown", sorted({*value} - {*known})):
        if names:
            message = f"{where} has {word} {', '.join(names)}"
            raise SchemaError(message)
