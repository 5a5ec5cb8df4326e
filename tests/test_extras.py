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


def test_the_estimators_name_their_extra() -> None:
    # None in sys.modules makes an import fail as if the package were not installed.
    code = "import sys; sys.modules['sklearn'] = None; import oneproj.learn"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "OneprojError: This needs 'sklearn'" in run.stderr
    assert 'pip install "oneproj[learn]"' in run.stderr


def test_the_library_does_not_import_scikit_learn() -> None:
    code = "import sys, oneproj; sys.exit('sklearn' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=False).returncode == 0
