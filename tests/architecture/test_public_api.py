"""The public API is what public_api.txt says, and every name of it is explained."""

from __future__ import annotations

import difflib
import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import oneproj

SCRIPT = Path(__file__).with_name("public_api.py")
RECORD = SCRIPT.with_suffix(".txt")
PUBLIC = runpy.run_path(str(SCRIPT))["everything"]()
EXPLAINED = [(n, v) for n, v in PUBLIC if inspect.isclass(v) or inspect.isroutine(v)]


def test_api_is_the_recorded_one() -> None:
    command = [sys.executable, str(SCRIPT)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded, now = RECORD.read_text().splitlines(), run.stdout.splitlines()
    changes = list(difflib.unified_diff(recorded, now, "recorded", "now", lineterm=""))
    assert not changes, "\n".join([*changes, "If this is meant: make api"])


def test_there_is_a_public_api() -> None:
    assert "oneproj.solve" in dict(PUBLIC)
    assert len(PUBLIC) == len(dict(PUBLIC))


@pytest.mark.parametrize("module", [oneproj, oneproj.sets])
def test_help_names_everything_in_the_module(module: ModuleType) -> None:
    names = [n.removeprefix(f"{module.__name__}.") for n, _ in PUBLIC]
    own = [name for name in names if "." not in name]
    told = str(inspect.getdoc(module))
    assert len(own) > 10
    assert [name for name in own if f"``{name}``" not in told] == []


@pytest.mark.parametrize(("name", "value"), EXPLAINED, ids=[n for n, _ in EXPLAINED])
def test_docstring_shows_an_example(name: str, value: object) -> None:
    # vars(), not getdoc: a docstring inherited from a base explains the base.
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text, f"{name} has no docstring"
    assert ">>> " in text, f"the docstring of {name} shows no example"


def test_modules_are_explained() -> None:
    modules = {"oneproj": oneproj} | {n: v for n, v in PUBLIC if inspect.ismodule(v)}
    assert [name for name, module in modules.items() if not module.__doc__] == []
