"""The command line's door: both ways in, and what is said where it is not installed."""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj.__main__ import NEEDED, main
from oneproj.cli import app
from oneproj.extras import install

ROOT = Path(__file__).parents[1]


def run_module(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """As ``python -m oneproj`` does; returns what the program exits with."""
    monkeypatch.setattr(sys, "argv", ["__main__.py", *arguments])
    monkeypatch.delitem(sys.modules, "oneproj.__main__", raising=False)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("oneproj", run_name="__main__")
    return caught.value.code


def test_the_module_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(monkeypatch, "--help") == 0
    assert "Usage: oneproj [OPTIONS] COMMAND" in capsys.readouterr().out


def test_the_script_and_the_module_are_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"oneproj": "oneproj.__main__:main"}


@pytest.mark.parametrize("package", sorted(NEEDED))
def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("oneproj.cli")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    expected = f"The command line needs {package}. Try: {install('cli')}"
    assert run_module(monkeypatch) == expected  # which Python prints, with exit code 1


def test_another_missing_module_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "oneproj.cli", None)
    with pytest.raises(ModuleNotFoundError, match=r"oneproj\.cli"):
        main()


def test_the_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"oneproj": "4.5.6"}.__getitem__)
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, "oneproj 4.5.6\n")


def test_a_version_that_is_not_known_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert "oneproj (not installed" in result.output
