"""Imports point down only, and the core needs none of the optional packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("src", "paper/src", "")
OPTIONAL_PACKAGES = (
    *("accelerate", "lightning", "matplotlib", "rich", "sklearn", "tensorboard"),
    "transformers",
)


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy of the library that lies under ``root``."""
    code = (
        f"import sys; sys.path[:0] = {[str(root / name) for name in PLACES]!r}; "
        "from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the library and its contracts, to break."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "paper/src", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold() -> None:
    run = lint_imports(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        (
            "src/oneproj/problem/problem.py",
            "from oneproj import solve",
            "oneproj.problem is not allowed",
        ),
        ("src/oneproj/errors.py", "import oneproj", "oneproj.errors is not allowed"),
        ("src/oneproj/errors.py", "import oneproj_paper", "oneproj is not allowed"),
        (
            "paper/src/oneproj_paper/data/find.py",
            "import benchmarks",
            "oneproj_paper is not allowed",
        ),
        (
            "src/oneproj/theory/constants.py",
            "import torch",
            "oneproj.theory is not allowed",
        ),
        (
            "paper/src/oneproj_paper/report/formats.py",
            "import torch",
            "oneproj_paper.report is not allowed",
        ),
        ("src/oneproj/homeless.py", "", "homeless"),
    ],
)
def test_each_contract_can_break(
    copy: Path, module: str, line: str, broken: str
) -> None:
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")
    run = lint_imports(copy)
    assert run.returncode == 1, run.stdout + run.stderr
    assert broken in run.stdout


def test_core_imports_without_any_extra() -> None:
    # None in sys.modules makes an import fail as if the package were not installed.
    hide = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL_PACKAGES!r}))"
    command = [sys.executable, "-c", f"{hide}; import oneproj"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_hidden_packages_are_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    names = everything.removeprefix("oneproj[").removesuffix("]").split(",")
    wanted = {r.split(">=")[0] for name in names for r in extras[name]}
    imported = {"scikit-learn": "sklearn"}
    assert {imported.get(name, name) for name in wanted} == set(OPTIONAL_PACKAGES)
