"""Every example runs, and shows what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneproj

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str) -> Any:  # noqa: ANN401 - whatever the example's main returns
    return runpy.run_path(str(EXAMPLES / name))["main"]()


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "adult.py",
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
    printed = capsys.readouterr().out
    assert "KKT residual" in printed
    (status,) = re.findall(r"^status +(.*)$", printed, re.MULTILINE)
    assert status == oneproj.Status.FEASIBLE.value, "a success reads as one"


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


def adult_rows(count: int, seed: int, end: str) -> str:
    """Rows in the format of UCI Adult; income depends on education, hours and sex."""
    rng, lines = np.random.default_rng(seed), []
    for _ in range(count):
        education, hours = int(rng.integers(1, 17)), int(rng.integers(10, 80))
        sex = "Male" if rng.random() < 0.6 else "Female"
        chance = 0.4 * education + 0.05 * hours + (sex == "Male") + 2 * rng.normal()
        income = ">50K" if chance > 7.5 else "<=50K"
        work = "?" if rng.random() < 0.1 else "Private"
        lines.append(
            f"{rng.integers(17, 90)}, {work}, {rng.integers(10**4, 10**6)}, HS-grad, "
            f"{education}, Divorced, Sales, Husband, White, {sex}, 0, 0, {hours}, "
            f"United-States, {income}{end}"
        )
    return "\n".join(lines) + "\n"


def test_adult_is_read_and_treated_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "adult"
    folder.mkdir()
    (folder / "adult.data").write_text(adult_rows(900, 0, ""))
    comment = "|1x3 Cross validator\n"
    (folder / "adult.test").write_text(comment + adult_rows(700, 1, "."))
    monkeypatch.setenv("ONEPROJ_DATA", str(tmp_path))
    script = runpy.run_path(str(EXAMPLES / "adult.py"))
    X, y = script["load"]()
    assert X.shape == (1600, 14)
    assert y.dtype == bool
    assert 0.2 < y.mean() < 0.8
    found = script["main"](steps=40)
    assert found["fair gap"] < found["plain gap"]
    assert found["fair accuracy"] > 0.6
    assert found["false positive rate"] <= 0.05
    assert "positive rate: Male - Female" in capsys.readouterr().out
