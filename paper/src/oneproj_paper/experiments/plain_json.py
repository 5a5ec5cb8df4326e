"""Frozen dataclasses as plain JSON, which ``oneproj.schema.from_plain`` reads back.

JSON has no NaN and no infinity: such a number is written as the string "nan", "inf" or
"-inf", and read as a number again where the field is one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


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
