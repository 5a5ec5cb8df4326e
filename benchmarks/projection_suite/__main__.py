"""``python -m benchmarks.projection_suite``: run the suite and print its table."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.projection_suite import (
    convex,
    hock_schittkowski,
    networks,
    with_sets,
)
from benchmarks.projection_suite.cases import Instance
from benchmarks.projection_suite.record import Record, run
from benchmarks.projection_suite.table import table
from oneproj.projection.base import AbstractProjector
from oneproj.projection.project import ProjectorLike

PLACE = Path(__file__).with_name("record.json")
SECONDS = 20.0
"""An instance may take this long."""
SAVED_EVERY = 20
"""Runs between two writes of the record."""


def all_instances() -> list[Instance]:
    """The whole suite, in a fixed order.

    Example:
        >>> len(all_instances()) >= 250
        True
    """
    modules = (hock_schittkowski, convex, with_sets, networks)
    return [instance for module in modules for instance in module.instances()]


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


def main(  # noqa: PLR0917 - typer reads the options from it
    label: Annotated[str, typer.Option(help="Name of the runs.")] = "current",
    projector: Annotated[str, typer.Option(help="Name or module:Class.")] = "auto",
    family: Annotated[str, typer.Option(help="Families that contain this.")] = "",
    only: Annotated[str, typer.Option(help="Instances that contain this.")] = "",
    record: Annotated[Path, typer.Option(help="The file of results.")] = PLACE,
    limit: Annotated[float, typer.Option(help="Seconds per instance.")] = SECONDS,
    *,
    kept_aside: Annotated[bool, typer.Option(help="The final third instead.")] = False,
    again: Annotated[bool, typer.Option(help="Repeat runs on record.")] = False,
    each: Annotated[bool, typer.Option(help="Print every instance.")] = False,
    show: Annotated[bool, typer.Option(help="Only print the table.")] = False,
) -> None:
    """Run what is not on record yet, and print the table."""
    instances = [
        i
        for i in all_instances()
        if family in i.family and only in i.key and i.kept_aside == kept_aside
    ]
    kept = Record(record)
    runs = kept.runs.setdefault(label, {})
    for k, instance in enumerate(instances if not show else []):
        kept.refer(instance)
        if again or instance.key not in runs:
            runs[instance.key] = run(instance, find_projector(projector), limit)
        if k % SAVED_EVERY == 0:
            kept.save()
        if each:
            print(instance.key, kept.nearest(instance.key), runs[instance.key])
    if not show:
        kept.save()
    print(table(kept, instances, list(kept.runs)))


if __name__ == "__main__":
    typer.run(main)
