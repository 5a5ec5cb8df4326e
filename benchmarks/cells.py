"""The cells that the tables of the benchmarks have in common."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text


def spread(ratio: Mapping[str, float]) -> Text:
    """A median and, in brackets, its quartiles.

    Example:
        >>> spread({"median": 1.04, "lower": 1.0, "upper": 1.123}).plain
        '1.04 [1.00, 1.12]'
    """
    return Text(f"{ratio['median']:.2f} [{ratio['lower']:.2f}, {ratio['upper']:.2f}]")


def verdict(text: str, *, met: bool) -> Text:
    """A bar, and whether it is met.

    Example:
        >>> verdict("<= 1.1", met=False).plain
        '<= 1.1 MISSED'
    """
    return Text(f"{text} met", "green") if met else Text(f"{text} MISSED", "bold red")
