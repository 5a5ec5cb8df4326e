"""``oneproj bench projection``: what one projection costs, and what others take for it.

The bars, for ``"cuts"`` on networks: at most 15 full constraint gradients from a random
start and 8 from a near one; a fiftieth of the augmented Lagrangian's; 5 times as fast
as SLSQP from 10^3 parameters on; at most 1.3 times the time of the gradients it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from oneproj.bench.instances import LINEAR_SIZE, STARTS, Instance, Start, make_instance
from oneproj.bench.measure import Spread, alternate, paired_ratio, surroundings
from oneproj.bench.rivals import Answer, judge, rivals
from oneproj.progress import progress_bar

SIZES = (LINEAR_SIZE, 10**3, 10**5)
MOST_GRADIENTS = {"random": 15, "near": 8}
FEWER, FASTER, OVERHEAD = 50.0, 5.0, 1.3
FASTER_FROM = 10**3
MINE = "cuts"
ALONE = "its gradients alone"
"""As many gradients as cuts used, at the start: what its time is held against."""


@dataclass(frozen=True)
class Row:
    """One rival on one problem; ``reason`` says why there is nothing else."""

    size: int
    start: Start
    rival: str
    reason: str | None
    answer: Answer | None = None
    seconds: Spread | None = None
    ratio: Spread | None = None
    """Its time over that of cuts, repeat by repeat."""


@dataclass(frozen=True)
class Bar:
    """A promise about cuts, and what was measured."""

    size: int
    start: Start
    what: str
    value: float
    bound: float
    at_least: bool
    met: bool


def projection_record(
    sizes: Sequence[int] = SIZES,
    *,
    repeats: int = 5,
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run every rival at every size from both starts; the record is plain JSON.

    Args:
        sizes: Numbers of parameters; 18 has linear scores, others are networks.
        repeats: Timed rounds, in which all rivals take turns.
        seed: Of data and starts.
        progress: As in ``oneproj.progress.progress_bar``.
    """
    before = surroundings()
    problems = [(size, start) for size in sizes for start in STARTS]
    rows: list[Row] = []
    bars: list[Bar] = []
    total, done = len(problems) * repeats, 0
    with progress_bar("bench projection", total, enabled=progress) as advance_to:

        def advance() -> None:
            nonlocal done
            done += 1
            advance_to(done)

        for size, start in problems:
            generator = torch.Generator().manual_seed(seed)
            instance = make_instance(size, start, generator)
            found = compare(instance, start, repeats=repeats, advance=advance)
            rows += found
            bars += judge_bars({row.rival: row for row in found})
    return {
        "benchmark": "projection",
        "surroundings": before,
        "settings": {"dtype": "float64", "repeats": repeats, "seed": seed},
        "rows": [asdict(row) for row in rows],
        "bars": [asdict(bar) for bar in bars],
    }


def compare(
    instance: Instance, start: Start, *, repeats: int, advance: Callable[[], object]
) -> list[Row]:
    """Time all rivals on one problem, taking turns."""
    size, answers = instance.size, {}
    tasks: dict[str, Callable[[], object]] = {}
    reasons = {}
    for name, run in rivals(instance).items():
        if isinstance(run, str):
            reasons[name] = run
            continue
        answers[name] = judge(instance, run())
        tasks[name] = run
    looks = answers[MINE].gradients or 0

    def alone() -> None:
        instance.reset()
        for _ in range(looks):
            for constraint in instance.constraints.values():
                constraint.value_and_gradient(instance.parameters)

    tasks[ALONE] = alone
    times = alternate(tasks, repeats=repeats, advance=advance)
    timed = [
        Row(
            size=size,
            start=start,
            rival=name,
            reason=None,
            answer=answers.get(name),
            seconds=Spread.of(taken),
            ratio=paired_ratio(taken, times[MINE]),
        )
        for name, taken in times.items()
    ]
    return timed + [Row(size, start, name, why) for name, why in reasons.items()]


def judge_bars(rows: Mapping[str, Row]) -> list[Bar]:
    """Hold cuts against the bars; only networks have them."""
    mine = rows[MINE]
    if mine.size == LINEAR_SIZE or mine.answer is None:
        return []
    used = float(mine.answer.gradients or 0)
    most = float(MOST_GRADIENTS[mine.start])
    measured = [("gradients", used, most, False)]
    paper = rows["augmented-lagrangian"].answer
    if paper is not None and paper.gradients is not None:
        fewer = paper.gradients / used
        measured.append(("augmented Lagrangian's gradients", fewer, FEWER, True))
    slsqp, alone = rows["SLSQP"].ratio, rows[ALONE].ratio
    if slsqp is not None and mine.size >= FASTER_FROM:
        measured.append(("SLSQP's time", slsqp.median, FASTER, True))
    if alone is not None:
        measured.append(("time per gradient", 1 / alone.median, OVERHEAD, False))
    return [
        Bar(
            size=mine.size,
            start=mine.start,
            what=what,
            value=value,
            bound=bound,
            at_least=at_least,
            met=value >= bound if at_least else value <= bound,
        )
        for what, value, bound, at_least in measured
    ]
