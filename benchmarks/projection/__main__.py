"""``python -m benchmarks.projection``: run the suite, print and publish its table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.projection.ablate import ablations
from benchmarks.projection.cases import Instance
from benchmarks.projection.compare import comparison
from benchmarks.projection.page import publish
from benchmarks.projection.peers import PEERS
from benchmarks.projection.profile import draw
from benchmarks.projection.record import OURS, PLACE, Record, Run, run, run_peer
from benchmarks.projection.scale import memory_table, time_table
from benchmarks.projection.suite import all_instances
from benchmarks.projection.table import table
from oneproj.progress import progress_bar
from oneproj.projection.base import AbstractProjector
from oneproj.projection.project import ProjectorLike
from oneproj_paper.cli.exits import exits

SECONDS = 20.0
"""An instance may take this long, of processor time."""
SAVED_EVERY = 20
"""Runs between two writes of the record."""


def find_projector(name: str) -> ProjectorLike:
    """A projector by its name, or by ``package.module:Class``.

    Example:
        >>> find_projector("auto")
        'auto'
    """
    if ":" not in name:
        return name  # type: ignore[return-value]
    module, made = name.split(":")
    projector: AbstractProjector = getattr(importlib.import_module(module), made)()
    return projector


def fill(
    record: Record,
    label: str,
    instances: Sequence[Instance],
    make: Callable[[Instance], Run | None],
    *,
    again: bool = False,
) -> None:
    """Run what is not on record under a label, and save now and then."""
    runs = record.runs.setdefault(label, {})
    todo = [i for i in instances if again or i.key not in runs]
    with progress_bar(
        f"projection: {label}", max(1, len(todo)), enabled=None
    ) as advance:
        for k, instance in enumerate(todo, start=1):
            record.refer(instance)
            made = make(instance)
            if made is not None:
                runs[instance.key] = made
            if k % SAVED_EVERY == 0:
                record.save()
            advance(k)
    if todo:
        record.save()


def main(  # noqa: PLR0917 - typer reads the options from it
    label: Annotated[str, typer.Option(help="Name of our runs.")] = OURS,
    projector: Annotated[str, typer.Option(help="Name or module:Class.")] = "auto",
    family: Annotated[str, typer.Option(help="Families that contain this.")] = "",
    only: Annotated[str, typer.Option(help="Instances that contain this.")] = "",
    record: Annotated[Path, typer.Option(help="The file of results.")] = PLACE,
    limit: Annotated[float, typer.Option(help="Seconds per instance.")] = SECONDS,
    peer: Annotated[
        list[str] | None,
        typer.Option(help=f"Run a peer too, repeatable: {', '.join(PEERS)}."),
    ] = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(help="For --ablate, --time, --memory: see switches.py."),
    ] = None,
    *,
    kept_aside: Annotated[bool, typer.Option(help="The final third instead.")] = False,
    again: Annotated[bool, typer.Option(help="Repeat our runs on record.")] = False,
    show: Annotated[bool, typer.Option(help="Run nothing, show the record.")] = False,
    each: Annotated[bool, typer.Option(help="Print every instance.")] = False,
    ablate: Annotated[bool, typer.Option(help="Mechanisms off, one by one.")] = False,
    compare: Annotated[Path | None, typer.Option(help="With this record.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the profile here.")] = None,
    page: Annotated[bool, typer.Option(help="Rewrite docs/projection.")] = False,
    time: Annotated[bool, typer.Option(help="Time over its gradients.")] = False,
    memory: Annotated[bool, typer.Option(help="Peak, in parameter copies.")] = False,
) -> None:
    """Run what is not on record yet, and print the table.

    With --kept-aside this is the third that no one tunes on, which docs/projection
    shows. --time and --memory measure larger models instead; --ablate switches
    mechanisms of the projector off; --compare, --plot and --page read the record.
    """
    with exits(stopped="Stopped. What is on record stays."):
        if time or memory:
            print((memory_table if memory else time_table)(switch or []))
            return
        chosen = [
            i
            for i in all_instances()
            if family in i.family and only in i.key and i.kept_aside == kept_aside
        ]
        kept = Record(record)
        if ablate:
            ablations(chosen, switch or [], limit, record=kept)
            return
        if compare is not None:
            print(comparison(kept, Record(compare), chosen, label))
            return
        if not show and not plot:
            made = find_projector(projector)
            fill(kept, label, chosen, lambda i: run(i, made, limit), again=again)
            for name in peer or []:
                fill(kept, name, chosen, partial(run_peer, name=name, limit=limit))
        print_results(kept, chosen, each=label if each else None)
        if plot:
            draw(kept, chosen, plot)
        if page:
            publish(kept, [i for i in all_instances() if i.kept_aside])


def print_results(
    record: Record, instances: Sequence[Instance], *, each: str | None = None
) -> None:
    """Print the table, before it every run of a label if one is given."""
    for instance in instances if each else []:
        key = instance.key
        print(key, record.nearest(key), record.runs.get(each or "", {}).get(key))
    print(table(record, instances, list(record.runs)))


if __name__ == "__main__":
    typer.run(main)
