"""The catalogue: what is here, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneproj_paper.data import (
    Availability,
    Entry,
    catalogue,
    climsim_source,
    climsim_tropics,
    credit_source,
    power_tables,
)


def entry(name: str) -> Entry:
    (found,) = (entry for entry in catalogue() if entry.name == name)
    return found


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"12345")


@pytest.mark.usefixtures("folder")
def test_nothing_is_here_at_first() -> None:
    for found in catalogue():
        assert found.status is Availability.MISSING
        assert (found.paths, found.size) == ((), 0)


def test_every_experiment_with_files_is_there_once() -> None:
    needed = [name for found in catalogue() for name in found.experiments]
    assert sorted(needed) == [
        "abstention-climsim",
        "abstention-credit",
        "abstention-nasa",
        "transfer-climsim",
    ]


def test_files_of_both_folders_are_found(folder: Path, cache: Path) -> None:
    put(folder, credit_source.FILE)
    put(cache, power_tables.PREPARED)
    credit, nasa = entry("credit"), entry("nasa_power")
    assert (credit.status, credit.size) == (Availability.READY, 5)
    assert credit.paths == (folder / credit_source.FILE,)
    assert nasa.status is Availability.STAND_IN
    assert nasa.paths == (cache / power_tables.PREPARED,)


def test_the_papers_own_table_comes_first(folder: Path, cache: Path) -> None:
    put(cache, power_tables.PREPARED)
    put(folder, power_tables.ARTIFACT)
    assert entry("nasa_power").status is Availability.READY


def test_a_stand_in_needs_all_of_its_files(folder: Path, cache: Path) -> None:
    put(folder, climsim_tropics.SAMPLE_FILE)
    assert entry("climsim").status is Availability.MISSING
    put(folder, climsim_tropics.GRID_FILE)
    assert entry("climsim").status is Availability.STAND_IN
    assert entry("climsim").size == 10
    put(cache, climsim_source.TABLE)
    assert entry("climsim").status is Availability.REBUILT
