"""Frozen dataclasses as plain JSON, and back with every field checked.

JSON has no NaN and no infinity: such a number is written as the string "nan", "inf" or
"-inf", and read as a number again where the field is one.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NON_FINITE = ("nan", "inf", "-inf")


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


def from_plain(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - of that kind
    """The value of a type hint: ``to_plain`` undone.

    Hints may be dataclasses, ``Mapping``, ``tuple``, ``X | None``, ``Literal``, and the
    types of JSON. A field that a dataclass does not have is an error, and so is one
    that is missing and has no default.

    Args:
        kind: The type hint.
        value: What JSON had.
        where: How to call it in a message.

    Raises:
        ValueError: The value is not of that kind; the message says where.

    Example:
        >>> from_plain(tuple[float, ...], [1, "inf"], "seconds")
        (1.0, inf)
        >>> from_plain(int, "three", "seed")
        Traceback (most recent call last):
        ValueError: seed should be a whole number, it is 'three'
    """
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin = get_origin(kind)
    if origin is not None:
        return _generic(kind, origin, value, where)
    if kind is float:
        return _number(value, where)
    name = {bool: "true or false", int: "a whole number", str: "a string"}[kind]
    _require(type(value) is kind, value, where, name)
    return value


def _dataclass(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
    _require(isinstance(value, dict), value, where, "an object")
    hints = get_type_hints(kind)
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING
    }
    if missing := sorted(needed - value.keys()):
        message = f"{where} has no {', '.join(missing)}"
        raise ValueError(message)
    if strange := sorted(value.keys() - hints.keys()):
        message = f"{where} has an unknown {', '.join(strange)}"
        raise ValueError(message)
    return kind(
        **{
            name: from_plain(hints[name], item, f"{where}.{name}")
            for name, item in value.items()
        }
    )


def _generic(kind: Any, origin: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
    arguments = get_args(kind)
    if origin in (Union, types.UnionType):
        (other,) = (each for each in arguments if each is not types.NoneType)
        return None if value is None else from_plain(other, value, where)
    if origin is Literal:
        _require(value in arguments, value, where, f"one of {', '.join(arguments)}")
        return value
    if origin is Mapping:
        _require(isinstance(value, dict), value, where, "an object")
        items = value.items()
        return {k: from_plain(arguments[1], v, f"{where}.{k}") for k, v in items}
    _require(isinstance(value, list), value, where, "a list")
    if arguments[-1] is not Ellipsis:
        fits = len(value) == len(arguments)
        _require(fits, value, where, f"a list of {len(arguments)}")
    return tuple(
        from_plain(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value)
    )


def _number(value: Any, where: str) -> float:  # noqa: ANN401 - whatever JSON had
    if isinstance(value, str) and value in NON_FINITE:
        return float(value)
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    _require(fits, value, where, "a number")
    return float(value)


def _require(fits: bool, value: object, where: str, what: str) -> None:  # noqa: FBT001 - a test's outcome
    if not fits:
        message = f"{where} should be {what}, it is {value!r}"
        raise ValueError(message)
