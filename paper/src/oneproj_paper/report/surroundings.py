"""Where the records come from: versions and machines, and whether they are mixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oneproj_paper.experiments.record_schema import Record


@dataclass(frozen=True)
class Surroundings:
    """What the runs ran on.

    Example:
        >>> surroundings([]).mixed
        ()
    """

    lines: tuple[tuple[str, str], ...]
    """A name and its value, or its values with the number of runs of each."""
    mixed: tuple[str, ...]
    """Names whose values differ between runs."""
    warnings: tuple[str, ...]
    """What the library warned about, with the number of runs."""


def surroundings(records: Sequence[Record]) -> Surroundings:
    """Collect versions, machines and warnings over all runs.

    Example:
        >>> surroundings([]).lines
        ()
    """
    lines: dict[str, str] = {}
    mixed: list[str] = []
    parts = ([r.versions for r in records], [r.machine for r in records])
    for name, values in (pair for part in parts for pair in _values(part).items()):
        lines[name] = _shown(values)
        if len(values) > 1:
            mixed.append(name)
    warned = Counter(text for record in records for text in set(record.warnings))
    return Surroundings(
        lines=tuple(lines.items()),
        mixed=tuple(mixed),
        warnings=tuple(
            f"{text} ({n} of {len(records)} runs)" for text, n in sorted(warned.items())
        ),
    )


def _values(parts: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, Counter())[str(value)] += 1
    return found


def _shown(values: Counter[str]) -> str:
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(
        f"{value} ({n} {'run' if n == 1 else 'runs'})"
        for value, n in sorted(values.items())
    )
