"""Optional packages are asked for by the name of their extra."""

from __future__ import annotations

import sys

import pytest

from oneproj import OneprojError
from oneproj.logs import require


def test_a_package_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.delitem(sys.modules, "rich.progress", raising=False)
    with pytest.raises(OneprojError, match=r"install \"oneproj\[progress\]"):
        require("rich.progress", "progress")
