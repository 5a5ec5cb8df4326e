"""Frozen dataclasses as plain JSON, and back with every field checked.

JSON has no NaN and no infinity: such a number is written as the string "nan", "inf" or
"-inf", and read as a number again where the field is one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from oneproj.schema import schema_of


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
    """The value of a type hint: ``to_plain`` undone, by ``oneproj.schema``.

    Args:
        kind: The type hint.
        value: What JSON had.
        where: How to call it in a message.

    Raises:
        ValueError: The value is not of that kind; the message says where.

    Example:
        >>> from_plain(tuple[float, ...], [1, "inf"], "seconds")
        (1.0, inf)
    """
    return schema_of(kind).check(value, where)
