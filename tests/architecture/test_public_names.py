"""Tests speak through public names: those that import internals stay the fewer."""

from __future__ import annotations

import ast
import runpy
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent
API = runpy.run_path(str(HERE / "public_api.py"))
TESTS = sorted(HERE.parent.rglob("test_*.py"))
MOST_WITH_INTERNALS = 0.5
"""Share of the test files."""
ROOMS = ("oneproj.problem", "oneproj.projection", "oneproj.vectors")
"""What an author of methods, projectors and oracles imports beside the public API."""
REGISTERS = {"oneproj.methods.METHODS", "oneproj.oracles.ORACLES"}
"""What such an author adds a name to; CONTRIBUTING.md says so."""
PUBLIC = (
    {"oneproj", *ROOMS, *REGISTERS}
    | {name for name, _ in API["everything"]()}
    | {f"{room}.{n}" for room in ROOMS for n in API["promised"](import_module(room))}
)


def internals(source: str) -> list[str]:
    """The names of the library that a file imports or patches and are not public."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            imported += [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
        if isinstance(node, ast.ImportFrom):
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    ours = (name for name in imported if f"{name}.".startswith("oneproj."))
    return [name for name in ours if name not in PUBLIC]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from oneproj import solve", []),
        ("import oneproj.sets", []),
        ("from oneproj.methods import METHODS, SLSQP", []),
        ("from oneproj.vectors import dot", []),
        ("from oneproj_paper.data import cache", []),
        ("from oneproj.training import loop", ["oneproj.training.loop"]),
        ("from oneproj.vectors.qp import gram", ["oneproj.vectors.qp.gram"]),
        ("import oneproj.files", ["oneproj.files"]),
        ("from oneproj.oracles import Exact", ["oneproj.oracles.Exact"]),
        ('monkeypatch.setattr("oneproj.logs.A", 1)', ["oneproj.logs.A"]),
    ],
)
def test_internals_are_recognised(line: str, found: list[str]) -> None:
    assert internals(line) == found


def test_most_tests_import_public_names_only() -> None:
    inside = [path for path in TESTS if internals(path.read_text("utf-8"))]
    names = "\n".join(str(path.relative_to(HERE.parent)) for path in inside)
    assert len(inside) <= MOST_WITH_INTERNALS * len(TESTS), names
