"""Optional packages are asked for by the name of their extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oneproj import OneprojError
from oneproj.logs import RichLog


def test_a_package_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.delitem(sys.modules, "rich.console", raising=False)
    with pytest.raises(OneprojError, match=r"install \"oneproj\[progress\]"):
        RichLog()


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("sklearn", "oneproj.learn", "learn"),
        ("lightning", "oneproj.integrations.lightning", "lightning"),
        ("transformers", "oneproj.integrations.transformers", "transformers"),
    ],
)
def test_a_module_names_its_extra(package: str, module: str, extra: str) -> None:
    # None in sys.modules makes an import fail as if the package were not installed.
    code = f"import sys; sys.modules[{package!r}] = None; import {module}"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"OneprojError: This needs '{package}" in run.stderr
    assert f'pip install "oneproj[{extra}]"' in run.stderr


def test_the_library_does_not_import_what_an_extra_brings() -> None:
    brought = {"sklearn", "lightning", "transformers", "accelerate", "peft"}
    code = f"import sys, oneproj; sys.exit({brought!r} & set(sys.modules) != set())"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=False).returncode == 0
