"""Data as text: columns for a reader, plain types for JSON."""

from __future__ import annotations

import dataclasses
import enum
import html
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

Rows: TypeAlias = Sequence[tuple[str, ...]]
"""A table, the first row as a heading."""


def table(rows: Rows) -> list[str]:
    """Lay rows out in columns, the first row as a heading.

    Example:
        >>> table([("a", "b"), ("1", "2")])
        ['a  b', '-  -', '1  2']
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in (rows[0], rule, *rows[1:])
    ]


def as_text(parts: Sequence[Rows | str]) -> str:
    """Write tables and sentences below each other, with a blank line before a table.

    Example:
        >>> print(as_text([[("a",), ("1",)], "A note.", [("b",), ("2",)]]))
        a
        -
        1
        A note.
        <BLANKLINE>
        b
        -
        2
    """
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        else:
            lines += [*([""] if lines else []), *table(part)]
    return "\n".join(lines)


def as_html(parts: Sequence[Rows | str]) -> str:
    """Write tables and sentences as HTML, for a notebook; every text is escaped.

    Example:
        >>> as_html([[("a",), ("<1>",)], "b"]).partition("<tbody>")[2]
        '<tr><td>&lt;1&gt;</td></tr></tbody></table><p>b</p>'
    """
    written = []
    for part in parts:
        if isinstance(part, str):
            written.append(f"<p>{html.escape(part)}</p>")
            continue
        body = "".join(_html_row(row, "td") for row in part[1:])
        head = _html_row(part[0], "th")
        written.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    return "".join(written)


def _html_row(cells: Sequence[str], tag: str) -> str:
    inside = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def jsonable(value: Any) -> Any:  # noqa: ANN401 - any dataclass, any JSON value
    """A value in plain JSON types; what JSON has not becomes a string.

    Example:
        >>> import torch
        >>> jsonable({"gap": math.inf, "n": (1, 2), "point": torch.zeros(2, 3)})
        {'gap': 'inf', 'n': [1, 2], 'point': 'a tensor of shape (2, 3)'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return _leaf(value)


class Plain:
    """A dataclass that ``to_dict`` turns into plain JSON types, for ``json.dump``.

    Numbers that are not finite become strings, and tensors their shapes.

    Example:
        >>> @dataclasses.dataclass
        ... class Gap(Plain):
        ...     value: float
        >>> Gap(math.inf).to_dict()
        {'value': 'inf'}
    """

    def to_dict(self) -> dict[str, Any]:
        """The fields, by name."""
        found: dict[str, Any] = jsonable(self)
        return found


class Readable(Plain, ABC):
    """A plain dataclass that prints as tables, and in a notebook as HTML."""

    @abstractmethod
    def _parts(self) -> list[Rows | str]:
        """The tables and sentences to show."""

    def __str__(self) -> str:
        """A readable table."""
        return as_text(self._parts())

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return as_html(self._parts())


def _leaf(value: object) -> bool | float | str | None:
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, Tensor):  # a point, as large as the model: not for JSON
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | str):
        return value
    # The abstract numbers, so that NumPy's scalars stay numbers.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)
