"""The files around the code agree with each other."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import oneproj

ROOT = Path(__file__).parents[2]
PROJECT, PAPER = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for folder in ("", "paper")
)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LEAST_ROWS = 15


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def pins() -> dict[str, str]:
    """The pinned version of each package, by its normalised name."""
    lines = read("constraints.txt").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return dict(pairs)


def requirements() -> set[str]:
    """Every package that the two pyproject.toml name, with its bounds."""
    extras = PROJECT["optional-dependencies"].values()
    listed = [*PROJECT["dependencies"], *(r for extra in extras for r in extra)]
    listed += PAPER["dependencies"]
    return {r for r in listed if not r.startswith("oneproj[")}


@pytest.mark.parametrize("requirement", sorted(requirements()))
def test_requirement_is_pinned_within_its_bound(requirement: str) -> None:
    name, lower = requirement.split(">=")
    pinned = [int(part) for part in re.findall(r"\d+", pins()[name])]
    assert pinned >= [int(part) for part in lower.split(".")]


@pytest.mark.skipif(
    Path(sys.prefix) != ROOT / ".venv",
    reason="not the environment that the Makefile made",
)
def test_environment_holds_no_unpinned_package() -> None:
    # The virtual environment brings pip itself; everything else came through us.
    own = {"oneproj", "oneproj-paper", "pip"}
    installed = {
        re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version.split("+")[0]
        for d in metadata.distributions()
    }
    strangers = {
        name: version
        for name, version in installed.items()
        if name not in own and pins().get(name) != version
    }
    assert strangers == {}


def test_citation_names_this_version() -> None:
    citation = read("CITATION.cff")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert PAPER["version"] == PROJECT["version"]


def test_the_package_knows_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        installed = metadata.version("oneproj")
    except metadata.PackageNotFoundError:
        pytest.skip("oneproj is not installed here")
    assert oneproj.__version__ == installed

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = runpy.run_path(str(ROOT / "src" / "oneproj" / "__init__.py"))
    assert found["__version__"] == "unknown: oneproj is not installed"


def test_changelog_opens_with_unreleased_changes() -> None:
    headings = re.findall(r"^## .*$", read("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "## [Unreleased]"


@pytest.mark.parametrize("page", PAGES)
def test_every_make_verb_on_a_page_exists(page: str) -> None:
    verbs = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    text = read(page)
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", text, re.MULTILINE))
    assert {a or b for a, b in named} <= verbs


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_every_verb() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    assert len(phony) == 1
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],  # noqa: S607 - found above
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[0] for line in shown.splitlines()] == phony[0].split()


def test_every_test_that_make_names_exists() -> None:
    named = re.findall(r"\b(?:paper/)?tests/[\w/.]+", read("Makefile"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_continuous_integration_repeats_tests_with_other_rounding() -> None:
    verbs = re.findall(r"^make (\S+)$", read(".ci/run"), re.MULTILINE)
    assert verbs == ["check", "test", "test-isa"]


def test_the_house_has_every_module() -> None:
    rows = re.findall(r"^\|[ 0-9]+\|([^|]*)\|", read("CONTRIBUTING.md"), re.MULTILINE)
    shown = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    library = ROOT / "src" / "oneproj"
    modules = {path.stem for path in library.glob("[a-z]*") if path.name != "py.typed"}
    assert shown == modules


def test_every_file_in_the_table_of_changes_exists() -> None:
    page = read("CONTRIBUTING.md")
    table = page.split("## Where does my change go?")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| ", table, re.MULTILINE)) > LEAST_ROWS
    named = re.findall(r"`([\w/]+(?:\.(?:py|md)|/))`(?: \(`([\w.]+)`\))?", table)
    folders = ROOT / "src" / "oneproj", ROOT / "tests", ROOT
    for path, symbol in named:
        found = [folder / path for folder in folders if (folder / path).exists()]
        assert found, path
        if symbol:
            assert symbol.split(".")[-1] in found[0].read_text("utf-8"), symbol


def test_every_file_of_the_library_is_on_the_page() -> None:
    page, library = read("CONTRIBUTING.md"), ROOT / "src" / "oneproj"
    files = [path for path in library.rglob("*.py") if path.stem != "__init__"]
    names = [path.relative_to(library).as_posix() for path in files]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_contributing_shows_the_map() -> None:
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", read("CONTRIBUTING.md"))
    shown = read(picture)
    modules = set(re.findall(r">(\w+)\.py<", shown))
    known = {path.stem for path in (ROOT / "src" / "oneproj").rglob("*.py")}
    assert modules - known == set()
