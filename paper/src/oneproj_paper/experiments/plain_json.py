"""Frozen dataclasses as plain JSON, and back with every field checked.

JSON has no NaN and no infinity: such a number is written as the string "nan", "inf" or
"-inf", and read as a number again where the field is one.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import reprlib
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

Data: TypeAlias = Any
"""Whatever a file had."""


def to_plain(value: Any) -> Any:  # noqa: ANN401 - any dataclass, any JSON value
    """A dataclass, or a container of them, in plain JSON types.

    Raises:
        TypeError: Something in it has no place in JSON.

    Example:
        >>> to_plain({"caps": (0.5, math.inf), "n": 3})
        {'caps': [0.5, 'inf'], 'n': 3}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    message = f"{value!r} is a {type(value).__name__}, which JSON cannot hold."
    raise TypeError(message)


def from_plain(hint: Data, value: Data, where: str) -> Data:  # noqa: PLR0911 - one return per kind of hint
    """The value of a type hint: ``to_plain`` undone.

    Hints may be dataclasses, enums by the names of their members, ``Mapping``,
    ``tuple``, ``X | None``, ``Literal`` and the types of JSON. The strings "nan", "inf"
    and "-inf" count as numbers where one is wanted.

    Raises:
        ValueError: The data does not fit; the message says where.

    Example:
        >>> from_plain(tuple[float, ...], [1, "inf"], "seconds")
        (1.0, inf)
        >>> from_plain(int, "three", "seed")
        Traceback (most recent call last):
        ValueError: seed should be a whole number, it is 'three'
    """
    origin: Data = get_origin(hint)
    inner, kind = get_args(hint), hint
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        (other,) = (each for each in inner if each is not types.NoneType)
        return None if value is None else from_plain(other, value, where)
    if origin is Mapping:
        _check_names(value, where, value if isinstance(value, dict) else (), ())
        return {k: from_plain(inner[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is tuple:
        n = len(inner)
        fits = isinstance(value, list) and (inner[-1] is ... or len(value) == n)
        _require(fits, value, where, "a list" if inner[-1] is ... else f"a list of {n}")
        return tuple(
            from_plain(inner[0], v, f"{where}[{i}]") for i, v in enumerate(value)
        )
    if dataclasses.is_dataclass(hint):
        hints, fields = get_type_hints(hint), dataclasses.fields(hint)
        missing = dataclasses.MISSING
        needed = [f.name for f in fields if f.default is f.default_factory is missing]
        _check_names(value, where, hints, needed)
        made = {k: from_plain(hints[k], v, f"{where}.{k}") for k, v in value.items()}
        return kind(**made)
    if origin is Literal or issubclass(hint, enum.Enum):
        words = inner or [member.name for member in hint]
        fits = type(value) is str and value in words
        _require(fits, value, where, f"one of {', '.join(words)}")
        return value if inner else hint[value]
    if hint is float and value in ("nan", "inf", "-inf"):
        value = float(value)
    names = {bool: "true or false", int: "a whole number", str: "a string"}
    fits = type(value) is hint
    if hint is float and type(value) is int:
        fits = abs(value) <= 2**1023  # the largest power of 2 that a float can be
    _require(fits, value, where, names.get(hint, "a number"))
    return hint(value)


def _check_names(value: Data, where: str, known: Data, needed: Data) -> None:
    """Require a mapping that has all names that are needed, and only known ones."""
    fits = isinstance(value, dict) and all(type(name) is str for name in value)
    _require(fits, value, where, "a mapping from names")
    missing, strange = {*needed} - {*value}, {*value} - {*known}
    for word, names in ("no", missing), ("an unknown", strange):
        if names:
            message = f"{where} has {word} {', '.join(sorted(names))}"
            raise ValueError(message)


def _require(fits: bool, value: Data, where: str, wanted: str) -> None:  # noqa: FBT001 - a test's outcome
    if not fits:
        message = f"{where} should be {wanted}, it is {reprlib.repr(value)}"
        raise ValueError(message)
