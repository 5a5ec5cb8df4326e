"""What the pages show, runs: their Python blocks, in order, as one script."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from oneproj.methods import METHODS

ROOT = Path(__file__).parents[1]
MOST_LINES = 100
NEEDS = {"docs/own_loop/frameworks.md": ("lightning", "transformers", "peft")}
"""Packages that a page shows and that may not be installed."""
THEIR_WARNINGS = (
    "`isinstance(treespec, LeafSpec)` is deprecated:FutureWarning",  # Lightning's
    "`is_gradient_checkpointing` is deprecated:FutureWarning",  # peft's
    "The 'train_dataloader' does not have many workers:UserWarning",  # as cores are
    "The 'val_dataloader' does not have many workers:UserWarning",
)
"""What those packages warn of whatever a page does: the starts of the messages."""


def python_blocks(page: str) -> str:
    """Blank out everything but the Python blocks, so that line numbers stay true."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.strip().startswith("```"):
            inside = line.strip() == "```python"
            kept.append("")
        else:
            kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/learn/learn.md",
        "docs/own_loop/frameworks.md",
        "docs/own_loop/own_loop.md",
        "docs/rates/new_data.md",
        "docs/rates/rates.md",
        "docs/recipes/recipes.md",
        "paper/README.md",
    ],
)
def test_page_runs(page: str, tmp_path: Path) -> None:
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    code = python_blocks((ROOT / page).read_text())
    assert code.strip(), f"{page} shows no Python"
    script = tmp_path / f"{Path(page).stem}.py"
    script.write_text(code)
    ignored = [f"-Wignore:{message}" for message in THEIR_WARNINGS if page in NEEDS]
    command = [sys.executable, "-Werror", *ignored, str(script)]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < MOST_LINES


def test_readme_names_every_method_and_every_extra() -> None:
    page = (ROOT / "README.md").read_text()
    rivals = METHODS.keys() - {"auto", "one-projection"}
    assert [name for name in rivals if f'"{name}"' not in page] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "test", "all"}
    assert [name for name in extras if f"`{name}`" not in page] == []
    assert f"Python {project['requires-python'].removeprefix('>=')} or later" in page


def test_every_page_that_readme_links_is_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert "docs/reproduction/reproduction.md" in links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_only_python_blocks_are_kept() -> None:
    page = "a\n```python\nx = 1\n```\nb\n```sh\nls\n```\n```python\ny = 2\n```\n"
    assert python_blocks(page) == "\n\nx = 1\n\n\n\n\n\n\ny = 2\n\n"
