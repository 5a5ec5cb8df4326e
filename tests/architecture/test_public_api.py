"""The public API is what public_api.txt says, and every name of it is explained."""

from __future__ import annotations

import difflib
import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import oneproj

SCRIPT = Path(__file__).with_name("public_api.py")
RECORD = SCRIPT.with_suffix(".txt")
PUBLIC = runpy.run_path(str(SCRIPT))["public_names"](oneproj)
EXPLAINED = [(n, v) for n, v in PUBLIC if inspect.isclass(v) or inspect.isroutine(v)]


def test_api_is_the_recorded_one() -> None:
    command = [sys.executable, str(SCRIPT)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded, now = RECORD.read_text().splitlines(), run.stdout.splitlines()
    changes = list(difflib.unified_diff(recorded, now, "recorded", "now", lineterm=""))
    assert not changes, "\n".join([*changes, "If this is meant: make api"])


def test_every_name_is_listed_once() -> None:
    assert len(oneproj.__all__) == len(set(oneproj.__all__)) > 0


@pytest.mark.parametrize(("name", "value"), EXPLAINED, ids=[n for n, _ in EXPLAINED])
def test_docstring_shows_an_example(name: str, value: object) -> None:
    # vars(), not getdoc: a docstring inherited from a base explains the base.
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text, f"{name} has no docstring"
    assert ">>> " in text, f"the docstring of {name} shows no example"


@pytest.mark.parametrize(
    "name", [n for n, v in PUBLIC if inspect.ismodule(v)] or ["oneproj"]
)
def test_module_has_a_docstring(name: str) -> None:
    assert sys.modules.get(name, oneproj).__doc__
