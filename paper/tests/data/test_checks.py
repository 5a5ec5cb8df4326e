"""Verifying what is here: damage is found, in both folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import checks, power_tables, verify
from oneproj_paper.data.cached_files import replacing
from oneproj_paper.data.credit_source import COLUMNS, FILE, LABEL

HEADER = ",".join(["", LABEL, *COLUMNS])
ROW = "1,{}" + ",1" * len(COLUMNS)
GOOD = "\n".join([HEADER, ROW.format(0), ROW.format(1)]) + "\n"
WEATHER = (
    ",".join((*power_tables.COLUMNS, power_tables.LABEL))
    + "\n1,2,3,4,5,6,0\n1,2,3,4,5,6,1\n"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneproj_paper.data.credit_source.COUNTS", (1, 1))


def put(path: Path, text: str) -> Path:
    with replacing(path) as partial:
        partial.write_text(text)
    return path


@pytest.mark.usefixtures("folder")
def test_nothing_here_is_nothing_to_find() -> None:
    assert verify() == ()


def test_what_is_right_is_ok(folder: Path, cache: Path) -> None:
    paths = [
        put(folder / FILE, GOOD),
        put(cache / FILE, GOOD),
        put(cache / power_tables.PREPARED, WEATHER),
    ]
    found = verify()
    assert [f.path for f in found] == paths
    assert all(f.ok for f in found)
    assert [f.path for f in verify("nasa_power")] == paths[2:]


def test_a_damaged_file_in_the_cache_is_found_by_its_checksum(
    folder: Path, cache: Path
) -> None:
    put(folder / FILE, GOOD)
    # The counts stay right: only the checksum can tell.
    put(cache / FILE, GOOD).write_text(GOOD.replace("1,1,1,1\n", "1,1,1,9\n", 1))
    own, cached = verify("credit")
    assert own.ok
    assert not cached.ok
    assert "SHA-256" in str(cached.problem)


def test_the_users_own_file_is_judged_by_its_rows(folder: Path) -> None:
    (folder / "credit").mkdir()
    (folder / FILE).write_text(GOOD + ROW.format(0) + "\n")
    (found,) = verify()
    assert "holds 3 rows" in str(found.problem)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [n for c in checks.CHECKS.values() for n in c])
@pytest.mark.parametrize("rubbish", [b"", b"rubbish", b"\xa5\xff\x00\x1f" * 99])
def test_every_reader_notices_rubbish(name: str, rubbish: bytes, cache: Path) -> None:
    path = cache / name
    path.parent.mkdir(parents=True)
    path.write_bytes(rubbish)
    (found,) = verify()
    assert (found.path, found.ok) == (path, False)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="There are: credit, nasa_power"):
        verify("weather")
