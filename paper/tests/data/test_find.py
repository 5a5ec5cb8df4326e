"""Where files are looked for, and what is said when they are nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oneproj.errors import InvalidProblemError
from oneproj_paper.data import find as module
from oneproj_paper.data.find import cache_folder, find
from oneproj_paper.errors import DataNotFoundError

NAME = "credit/table.csv"


def put(folder: Path) -> Path:
    path = folder / NAME
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_the_users_folder_comes_before_the_cache(folder: Path) -> None:
    put(module.cache_folder())
    own = put(folder)
    assert find(NAME, data="credit") == own


def test_the_cache_is_second(folder: Path) -> None:
    del folder  # it is empty
    cached = put(module.cache_folder())
    assert find(NAME, data="credit") == cached


def test_the_cache_serves_without_the_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder)  # not named any more
    monkeypatch.delenv(module.VARIABLE)
    cached = put(module.cache_folder())
    assert find(NAME, data="credit") == cached


def test_a_missing_file_is_named_with_both_places(folder: Path) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        find(NAME, data="credit")
    message = str(caught.value)
    places = (str(folder), str(module.cache_folder()))
    for part in (
        NAME,
        *places,
        "`oneproj-paper data prepare credit`",
        "set ONEPROJ_DATA",
    ):
        assert part in message
    assert "is not set" not in message


def test_the_message_says_when_the_variable_is_not_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.delenv(module.VARIABLE)
    with pytest.raises(DataNotFoundError, match="ONEPROJ_DATA is not set"):
        find(NAME, data="credit")


@pytest.mark.parametrize("name", ["a file", "nothing"])
def test_a_variable_that_names_no_folder_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "a file").touch()
    put(module.cache_folder())  # not even then: the user meant another one
    monkeypatch.setenv(module.VARIABLE, str(folder / name))
    what = "is a file" if name == "a file" else "does not exist"
    with pytest.raises(InvalidProblemError, match=rf"ONEPROJ_DATA .*{name}' {what}"):
        find(NAME, data="credit")


def test_a_folder_that_cannot_be_read_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InvalidProblemError, match="cannot be read by you"):
        find(NAME, data="credit")


def test_a_folder_of_that_name_is_not_a_file(folder: Path) -> None:
    (folder / NAME).mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        find(NAME, data="credit")


def test_a_cache_that_cannot_be_written_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.delenv("ONEPROJ_OFFLINE")

    def download() -> Path:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(DataNotFoundError, match=r"failed: .*Permission denied"):
        find(NAME, data="credit", download=download)


def test_the_cache_belongs_to_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.CACHE_VARIABLE, raising=False)
    assert "oneproj" in cache_folder().parts


@pytest.mark.skipif(os.name != "posix", reason="asks the users of POSIX")
def test_without_a_home_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*_: object) -> str:
        message = "no home"
        raise RuntimeError(message)

    monkeypatch.delenv(module.CACHE_VARIABLE, raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", homeless)
    with pytest.raises(InvalidProblemError, match=r"no home\. Set ONEPROJ_CACHE to a"):
        cache_folder()


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "data").mkdir()
    monkeypatch.setenv(module.CACHE_VARIABLE, "~/cache")
    monkeypatch.setenv(module.VARIABLE, "~/data")
    assert module.folders() == [tmp_path / "data", tmp_path / "cache"]


def test_the_cache_can_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.CACHE_VARIABLE, str(tmp_path / "large"))
    assert cache_folder() == tmp_path / "large"
