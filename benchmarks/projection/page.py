"""The generated parts of docs/projection/projection.md, from the record.

The page holds prose, and between ``<!-- generated: name -->`` and ``<!-- end -->``
what this module writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.projection import profile
from benchmarks.projection.cases import Instance
from benchmarks.projection.peers import BUDGET, PEERS, STOPPED
from benchmarks.projection.record import LATE, OURS, Record
from benchmarks.projection.table import ALL, Summary, number, summaries
from oneproj.errors import InvalidProblemError
from oneproj.files import write_text

FOLDER = Path(__file__).parents[2] / "docs" / "projection"
PAGE, PLOT = "projection.md", "profile.svg"
CLEARLY = 1.2
"""Ratio of median gradients from which one tool is said to take fewer."""
EMPTY, NARROW = "empty", "narrow dtypes"
"""Families on which peers are not compared by distance, or do not run."""


def publish(
    record: Record, instances: Sequence[Instance], folder: Path = FOLDER
) -> None:
    """Rewrite the generated parts of the page, and the plot beside it."""
    page = folder / PAGE
    write_text(page, filled(page.read_text(), record, instances))
    profile.draw(record, instances, folder / PLOT)


def filled(text: str, record: Record, instances: Sequence[Instance]) -> str:
    """A page with its generated parts made anew.

    Raises:
        InvalidProblemError: The page names a part that does not exist.
    """
    rows = {
        (s.family, s.label): s
        for s in summaries(record, instances, profile.labels_of(record, instances))
    }
    parts = {
        "summary": _summary(rows, record, instances),
        "reached": _table(rows, _reached),
        "gradients": _table(rows, _gradients),
        "caption": _caption(record, instances),
        "others": _others(rows),
        "stopped": _stopped(record, instances),
    }

    def made(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in parts:
            message = (
                f"The page asks for the generated part {name!r}, which does not exist. "
                f"There are {', '.join(parts)}."
            )
            raise InvalidProblemError(message)
        return f"<!-- generated: {name} -->\n{parts[name]}\n<!-- end -->"

    pattern = r"<!-- generated: (\w+) -->\n.*?<!-- end -->"
    return re.sub(pattern, made, text, flags=re.DOTALL)


Rows = dict[tuple[str, str], Summary]


def _summary(rows: Rows, record: Record, instances: Sequence[Instance]) -> str:
    ours = [s for (family, label), s in rows.items() if label == OURS and family != ALL]
    real = [s for s in ours if s.family != EMPTY]
    problems, well = sum(s.problems for s in real), sum(s.well for s in real)
    near, false = sum(s.near for s in real), sum(s.false for s in ours)
    every = rows[ALL, OURS]
    missed = sum(_missed(record, i.key) for i in instances)
    reached = (
        f"- Problems that have a feasible point: {problems}. The projection ends "
        f"feasible on {well} ({well / problems:.1%}), and within 0.1 % of the best "
        f"distance known on {near} ({near / problems:.1%})."
    )
    lines = [
        reached,
        f"- On {missed} it is not feasible where a peer is.",
        f"- False claims of feasibility, of emptiness or of a lower bound: {false}.",
        f"- Gradients: median {number(every.median)}, mean {number(every.mean)}.",
    ]
    if (EMPTY, OURS) in rows:
        empty = rows[EMPTY, OURS]
        lines.append(
            f"- Of {empty.problems} problems without a feasible point, {empty.well} "
            f"end with that answer, after {number(empty.median)} gradients (median)."
        )
    return "\n".join(lines)


def _missed(record: Record, key: str) -> bool:
    run = record.runs[OURS].get(key)
    if run is None or run["feasible"]:
        return False
    return any(runs.get(key, {}).get("feasible") for runs in record.runs.values())


def _table(rows: Rows, cell: Callable[[Summary], str]) -> str:
    labels = list(dict.fromkeys(label for _, label in rows))
    lines = [
        f"| family | problems | {' | '.join(labels)} |",
        "|---" * (2 + len(labels)) + "|",
    ]
    for family in dict.fromkeys(family for family, _ in rows):
        found = [rows.get((family, label)) for label in labels]
        problems = max(s.problems for s in found if s is not None)
        cells = [
            "-"
            if s is None
            else cell(s)
            if s.problems == problems
            else f"{cell(s)} of {s.problems}"
            for s in found
        ]
        lines.append(f"| {family} | {problems} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _reached(s: Summary) -> str:
    return f"{s.well} / {s.near}" if s.family != EMPTY else f"{s.well}"


def _gradients(s: Summary) -> str:
    return f"{number(s.median)} ({number(s.mean)})"


def _caption(record: Record, instances: Sequence[Instance]) -> str:
    found = profile.factors(record, instances)
    words = "; ".join(
        f"{label} {profile.share(values, 1.0):.0%} with the fewest gradients, "
        f"{profile.share(values, 1e9):.0%} in all"
        for label, values in found.items()
    )
    return f"*{len(found[OURS])} problems. Solved: {words}.*"


def _stopped(record: Record, instances: Sequence[Instance]) -> str:
    """How many runs of each peer a limit ended."""
    parts = []
    shown = profile.labels_of(record, instances)
    for label in shown:
        runs = [record.runs[label].get(i.key, {}) for i in instances]
        ended = [r for r in runs if r.get("error") in {STOPPED, LATE}]
        if ended:
            early = sum(r.get("gradients", 0) < BUDGET for r in ended)
            parts.append(f"{label} {len(ended)}, of these {early} by the time")
    missing = [name for name in PEERS if name not in shown]
    left_out = f" Not run, or not completely: {', '.join(missing)}." if missing else ""
    return f"Runs stopped by a limit: {'; '.join(parts) or 'none'}.{left_out}"


def _others(rows: Rows) -> str:
    """Where a peer is better: a line for each."""
    lines = []
    for (family, label), peer in rows.items():
        ours = rows.get((family, OURS))
        if label == OURS or ours is None or family in {ALL, EMPTY, NARROW}:
            continue
        few = (peer.median or 0.0) * CLEARLY <= (ours.median or 0.0)
        if peer.near > ours.near:
            lines.append(
                f"- {family}: {label} solves {peer.near} of {peer.problems}, "
                f"this library {ours.near}."
            )
        elif peer.near == ours.near and few:
            lines.append(
                f"- {family}: {label} solves as many with {number(peer.median)} "
                f"gradients (median) in place of {number(ours.median)}."
            )
    return "\n".join(lines) or "No family of the suite."
