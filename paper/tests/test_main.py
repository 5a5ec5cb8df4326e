"""The command line's door: the script and the module."""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj_paper.cli import app

ROOT = Path(__file__).parents[1]


def run_module(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """As ``python -m oneproj_paper`` does; returns what the program exits with."""
    monkeypatch.setattr(sys, "argv", ["__main__.py", *arguments])
    monkeypatch.delitem(sys.modules, "oneproj_paper.__main__", raising=False)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("oneproj_paper", run_name="__main__")
    return caught.value.code


def test_the_module_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(monkeypatch, "--help") == 0
    assert "Usage: oneproj-paper [OPTIONS] COMMAND" in capsys.readouterr().out


def test_the_script_and_the_module_are_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"oneproj-paper": "oneproj_paper.__main__:main"}


def test_the_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.metadata, "version", {"oneproj-paper": "4.5.6"}.__getitem__
    )
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, "oneproj-paper 4.5.6\n")


def test_a_version_that_is_not_known_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert "oneproj-paper (not installed" in result.output
