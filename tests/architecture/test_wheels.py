"""What is installed: the library alone, and the paper's package beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"oneproj": ROOT, "oneproj_paper": ROOT / "paper"}


def run(*command: str | Path, path: Path | None = None, folder: Path) -> str:
    environment = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of each package, built without a network."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    found = {}
    for name, project in PACKAGES.items():
        out = tmp_path_factory.mktemp(name)
        run("-m", "hatchling", "build", "-t", "wheel", "-d", out, folder=project)
        (found[name],) = out.glob("*.whl")
    return found


def installed(tmp_path: Path, *wheels: Path) -> Path:
    """A folder that holds what an installer would put into site-packages."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_its_own_package_and_nothing_else(
    wheels: dict[str, Path], name: str
) -> None:
    with zipfile.ZipFile(wheels[name]) as archive:
        files = archive.namelist()
    folders = {file.partition("/")[0] for file in files}
    assert {f for f in folders if not f.endswith(".dist-info")} == {name}
    source = PACKAGES[name] / "src"
    own = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert {file for file in files if file.endswith(".py")} == own


def test_the_library_alone_solves_the_example(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    site = installed(tmp_path, wheels["oneproj"])
    example = ROOT / "examples" / "quickstart.py"  # it asserts feasibility
    program = "import oneproj, runpy, sys; print(oneproj.__file__); "
    program += "runpy.run_path(sys.argv[1], run_name='__main__')"
    shown = run("-c", program, example, path=site, folder=tmp_path)
    assert shown.startswith(str(site))
    assert "old risk" in shown


def test_the_second_wheel_adds_the_command(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    site = installed(tmp_path, *wheels.values())
    (entry,) = site.glob("oneproj_paper-*.dist-info/entry_points.txt")
    assert "oneproj-paper = oneproj_paper.__main__:main" in entry.read_text()
    shown = run("-m", "oneproj_paper", "--help", path=site, folder=tmp_path)
    for verb in ("reproduce", "report", "theory", "data", "calibrate"):
        assert verb in shown
