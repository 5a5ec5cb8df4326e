"""Every example runs, and shows what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str) -> Any:  # noqa: ANN401 - whatever the example's main returns
    return runpy.run_path(str(EXAMPLES / name))["main"]()


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "any_optimiser.py",
        "picture.py",
        "quickstart.py",
    }


def test_quickstart_is_readmes_example(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    (block, *_) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert (EXAMPLES / "quickstart.py").read_text().endswith(f'"""\n\n{block}')
    solution = runpy.run_path(str(EXAMPLES / "quickstart.py"))["solution"]
    assert solution.feasible
    assert "KKT residual" in capsys.readouterr().out


def test_models_of_other_optimisers_become_feasible(
    capsys: pytest.CaptureFixture[str],
) -> None:
    projections = run("any_optimiser.py")
    for name, done in projections.items():
        assert done.residuals_before["source risk"] > 0, f"{name} must need it"
        assert done.residuals["source risk"] <= 0
        assert done.gradients <= 15
    assert "Cooper: residual +" in capsys.readouterr().out


def test_the_picture_shows_a_cap_that_is_kept(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "picture.py"))
    curves, solution = script["main"](steps=60)
    free, kept = curves.values()
    assert solution.feasible
    assert kept[-1][1] <= script["CAP"] < free[-1][1]
    script["draw"](curves, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
