"""``python -m benchmarks.train_battery``: many small problems, with the defaults.

Run it, keep the record, change the library, run it again, and compare the two::

    python -m benchmarks.train_battery --seeds 2 --out before.json
    python -m benchmarks.train_battery --seeds 2 --out after.json
    python -m benchmarks.train_battery --compare before.json after.json
    python -m benchmarks.train_battery --ablate patience --out ablations.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands import exits_and_place
from benchmarks.train_battery.ablations import (
    ABLATIONS,
    CHANCE,
    NOTHING,
    TABLE,
    Ablation,
    concerned,
)
from benchmarks.train_battery.compare import changes, lines, short
from benchmarks.train_battery.problems import CASES, FAMILIES
from benchmarks.train_battery.registry import Case
from benchmarks.train_battery.runs import Key, Record, make_runs, of_ablation, read_runs
from oneproj.errors import InvalidProblemError
from oneproj_paper.experiments.interrupts import abandoning


def chosen(only: str, family: str) -> list[Case]:
    """The problems whose name and family contain these words.

    Several words are separated by commas; nothing stands for all.

    Raises:
        InvalidProblemError: There is none.

    Example:
        >>> [case.name for case in chosen("iris,poly", "")]
        ['iris_one_class', 'polygon', 'convex_polynomial']
    """
    names = [word.strip() for word in only.split(",") if word.strip()]
    found = [
        case
        for case in CASES.values()
        if (not names or any(word in case.name for word in names))
        and family in case.family
    ]
    if not found:
        families = ", ".join(f.name for f in FAMILIES)
        message = (
            f"No problem has {only!r} in its name and {family!r} in its family. The "
            f"families are {families}; --list shows the names."
        )
        raise InvalidProblemError(message)
    return found


def ablated(name: str) -> list[Ablation]:
    """The mechanisms to switch off: those named, or all.

    Raises:
        InvalidProblemError: There is no such mechanism.

    Example:
        >>> [ablation.name for ablation in ablated("patience,edge")]
        ['patience', 'edge']
    """
    names = list(ABLATIONS) if name == "all" else [n for n in name.split(",") if n]
    unknown = [n for n in names if n not in ABLATIONS]
    if unknown:
        known = ", ".join(ABLATIONS)
        message = f"There is no mechanism {unknown[0]!r} to switch off. Known: {known}."
        raise InvalidProblemError(message)
    return [ABLATIONS[n] for n in names]


def keys_of(
    cases: Sequence[Case], ablations: Sequence[Ablation], seeds: int
) -> list[Key]:
    """All runs that are wanted: without ablations, then one mechanism after another.

    Example:
        >>> keys_of([CASES["polygon"]], ablated("edge"), 1)[-1]
        Key(ablation='edge', problem='polygon', seed=0)
    """
    wanted = [Key("", case.name, seed) for seed in range(seeds) for case in cases]
    for ablation in ablations:
        mine = [case for case in cases if concerned(ablation, case.build)]
        name = ablation.name
        wanted += [Key(name, case.name, s) for s in range(seeds) for case in mine]
    return list(dict.fromkeys(wanted))


def ablation_lines(record: Record, ablations: Sequence[Ablation]) -> list[str]:
    """What each mechanism is worth, as a Markdown table.

    Example:
        >>> len(ablation_lines(Record(None), ablated("edge")))
        3
    """
    rows = ["| mechanism | without it, worse | without it, better |", "|---|---|---|"]
    for ablation in ablations:
        names = (NOTHING.name, ablation.name, CHANCE.name)
        worse, better = short(
            changes(*(of_ablation(record.runs.values(), name) for name in names))
        )
        rows.append(f"| `{ablation.name}`: {ablation.what} | {worse} | {better} |")
    return rows


def _list() -> None:
    for case in CASES.values():
        typer.echo(f"{case.name} ({case.family}, {case.steps} updates): {case.about}")
    for ablation in TABLE:
        typer.echo(f"--ablate {ablation.name}: {ablation.what}")


def _report(record: Record, ablations: Sequence[Ablation]) -> None:
    if ablations:
        for row in ablation_lines(record, ablations):
            typer.echo(row)
        return
    typer.echo("| problem | seed | objective | feasible | gradients | seconds |")
    typer.echo("|---|---|---|---|---|---|")
    for r in of_ablation(record.runs.values(), ""):
        f = "-" if r.objective is None else f"{r.objective:.6g}"
        typer.echo(
            f"| {r.problem} | {r.seed} | {f} | {r.feasible} | {r.gradients} "
            f"| {r.seconds} |"
        )


def main(
    *,
    only: Annotated[str, typer.Option(help="Words in names, with commas.")] = "",
    family: Annotated[str, typer.Option(help="A word in the family's name.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every problem.")] = 2,
    jobs: Annotated[int, typer.Option(min=1, help="Processes of one thread.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The record; it is continued.")
    ] = None,
    ablate: Annotated[str, typer.Option(help="Mechanisms to switch off, or all.")] = "",
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Two records to compare.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Names, and no run.")] = False,
) -> None:
    """Run many small training problems with the defaults of solve.

    Every run is saved when it ends. After Ctrl-C the same command goes on.
    """
    with exits_and_place(out):
        if show:
            _list()
        elif compare is not None:
            before, after = (of_ablation(read_runs(file), "") for file in compare)
            lines(changes(before, after), typer.echo)
        else:
            record, off = Record(out), ablated(ablate) if ablate else []
            with abandoning():
                wanted = keys_of(chosen(only, family), off, seeds)
                make_runs(wanted, record, jobs=jobs)
            _report(record, off)


if __name__ == "__main__":
    typer.run(main)
