"""A data folder of the test's own, and the real one where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oneproj.data import find

REAL = os.environ.get(find.VARIABLE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that ONEPROJ_DATA names, and an empty cache beside it."""
    monkeypatch.setattr(find, "cache_folder", lambda: tmp_path / "cache")
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv(find.VARIABLE, str(own))
    return own


@pytest.fixture
def real_data() -> None:
    """Skips where the real files are not there."""
    if REAL is None:
        pytest.skip(f"{find.VARIABLE} is not set: the real files are not here")
