"""``--ablate``: switch one mechanism off at a time, and say what it is worth."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from benchmarks.projection.cases import Instance
from benchmarks.projection.record import NEAR, Record, Run, run
from benchmarks.projection.switches import overridden
from oneproj.projection.cuts import Cuts

HOME = "oneproj.projection.cuts"
TOLERANCES = "oneproj.projection.tolerances"
FACTOR = 4.0
"""A constant that matters shows it when it is so many times as large or as small."""

MECHANISMS: dict[str, str] = {
    "curvature of the Lagrangian": "oneproj.projection.local_model:MOVES=0",
    "stop where a gradient gains little": "min_gain=0.0",
    "the sets' own nearest point first": f"{HOME}:project_onto_sets=NONE",
    "from outside into the sets": f"{HOME}:move_into_sets=NONE",
    "recognise linear functions": f"{HOME}:seems_linear_within_sets=NONE",
}
"""Name to the switch that turns it off; NONE is a function that does nothing."""


def nothing(*_: object, **__: object) -> None:
    """Take the place of a mechanism that may return None.

    Example:
        >>> nothing(1, what=2)
    """


def tolerance_switches() -> dict[str, str]:
    """Every number of the projector's ``Tolerances``, four times as large and as small.

    None where there is no such class.
    """
    if find_spec(TOLERANCES) is None:
        return {}
    values = importlib.import_module(TOLERANCES).TOLERANCES
    made = {}
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for sign, changed in (("x", value * FACTOR), ("/", value / FACTOR)):
            exact = max(1, round(changed)) if isinstance(value, int) else changed
            name = f"{field.name} {sign} {FACTOR:g}"
            made[name] = f"{TOLERANCES}:TOLERANCES.{field.name}={exact!r}"
    return made


def ablations(
    instances: Sequence[Instance],
    switches: Sequence[str],
    limit: float,
    *,
    record: Record,
    say: Callable[[str], None] = print,
) -> None:
    """Run the instances with every switch, and say a line for each.

    Args:
        instances: The problems.
        switches: What to switch; nothing for all mechanisms and tolerances.
        limit: Seconds per instance.
        record: Its best distances are used; nothing is added to it.
        say: Called with the heading, then with every line as it is known.
    """
    named = {switch: switch for switch in switches}
    named = named or MECHANISMS | tolerance_switches()
    texts = {n: s.replace("NONE", f"{__name__}:nothing") for n, s in named.items()}
    for text in texts.values():  # what cannot be set is refused before the work
        with overridden([text]) as options:
            Cuts(**options)
    before = _runs(instances, [], limit)
    width = max(map(len, ("(all on)", *named)))
    titles = ("feasible", "lost", "won", "farther", "nearer", "gradients")
    say(f"{'without'.ljust(width)}  {'  '.join(titles)}")
    say(f"{'(all on)'.ljust(width)}  {_feasible(before)} of {len(before)}")
    for name, text in texts.items():
        cells = difference(before, _runs(instances, [text], limit), record)
        padded = [c.rjust(len(t)) for c, t in zip(cells, titles, strict=True)]
        say(f"{name.ljust(width)}  {'  '.join(padded)}")


def _feasible(runs: dict[str, Run]) -> int:
    return sum(run["feasible"] for run in runs.values())


def _runs(
    instances: Sequence[Instance], switches: Sequence[str], limit: float
) -> dict[str, Run]:
    with overridden(switches) as options:
        return {i.key: run(i, Cuts(**options), limit) for i in instances}


def difference(
    before: dict[str, Run], after: dict[str, Run], record: Record
) -> tuple[str, ...]:
    """Feasible, lost and won instances; farther and nearer ones; gradients in percent.

    Farther and nearer begin at 0.1 % of the best distance known; gradients are those
    of all instances that end feasible both times.
    """
    both = [k for k in before if before[k]["feasible"] and after[k]["feasible"]]
    lost = sum(before[k]["feasible"] and not after[k]["feasible"] for k in before)
    won = sum(after[k]["feasible"] and not before[k]["feasible"] for k in before)
    farther = nearer = 0
    for key in both:
        a, b = before[key]["distance"], after[key]["distance"]
        unit = NEAR * (record.nearest(key) or min(a, b)) + 1e-9
        farther, nearer = farther + (b > a + unit), nearer + (a > b + unit)
    old, new = (sum(r[k]["gradients"] for k in both) for r in (before, after))
    change = f"{(new - old) / max(old, 1):+.0%}"
    return str(_feasible(after)), str(lost), str(won), str(farther), str(nearer), change
