"""What is shown while runs are under way."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from oneproj_paper.experiments import live
from oneproj_paper.experiments.records import Key

KEY = Key("abstention-nasa", "paper", "one-projection", "cuts", 3)


def test_a_run_shows_itself_until_it_is_done(tmp_path: Path) -> None:
    tell = live.pulse(tmp_path, KEY, 500)
    tell(1)
    ((label, done, total),) = live.running(tmp_path)
    assert (label, done, total) == (" ".join([*KEY[:4], "seed 3"]), 1, 500)
    tell(2)  # too soon to be worth a file
    assert live.running(tmp_path)[0][1] == 1
    tell(500)
    assert live.running(tmp_path) == []


def test_a_file_that_is_half_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("label\n3")
    (tmp_path / "b").write_text("label\n3 5")
    assert live.running(tmp_path) == [("label", 3, 5)]


def test_a_folder_on_another_machine_is_no_error(tmp_path: Path) -> None:
    live.pulse(tmp_path / "elsewhere", KEY, 500)(1)
    live.pulse(None, KEY, 500)(1)


def test_on_a_terminal_there_are_bars_and_lines_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()

    def console(**_: object) -> Console:
        return Console(file=screen, force_terminal=True, width=120)

    monkeypatch.setattr("rich.console.Console", console)
    with live.watching(2, enabled=None, say=pytest.fail) as watcher:
        assert watcher.folder is not None
        live.pulse(watcher.folder, KEY, 500)(25)
        watcher.advance("one is done")
    shown = screen.getvalue()
    assert "one is done" in shown
    assert "25/500" in shown
    assert "1/2" in shown
    assert not watcher.folder.exists()


def test_without_a_terminal_there_are_lines_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: list[str] = []
    with live.watching(2, enabled=None, say=lines.append) as watcher:
        assert watcher.folder is None
        watcher.advance("one is done")
    assert lines == ["one is done"]
    assert capsys.readouterr().err == ""
