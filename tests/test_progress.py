"""The progress bar: off unless someone watches or asks, and only where rich is."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import threading
from contextlib import redirect_stderr
from typing import Any

import pytest
import torch

import oneproj
from oneproj import InvalidProblemError, Update
from oneproj.logs import RichLog
from oneproj.progress import progress_bar, progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich reads beside isatty, the same for whoever runs the tests."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def shown(stderr: io.StringIO, *, enabled: bool | None) -> str:
    with (
        redirect_stderr(stderr),
        progress_bar("training", 10, enabled=enabled) as advance_to,
    ):
        advance_to(5)
        advance_to(10)
    return stderr.getvalue()


@pytest.mark.parametrize("enabled", [None, True])
def test_a_terminal_sees_the_bar(
    capsys: pytest.CaptureFixture[str], *, enabled: bool | None
) -> None:
    text = shown(Terminal(), enabled=enabled)
    assert "training" in text
    assert "100%" in text
    assert capsys.readouterr().out == "", "standard output belongs to the user"


def test_a_terminal_can_be_spared_the_bar() -> None:
    assert shown(Terminal(), enabled=False) == ""


def test_a_file_gets_no_bar_unless_it_is_asked_for() -> None:
    assert shown(io.StringIO(), enabled=None) == ""
    text = shown(io.StringIO(), enabled=True)
    assert "training" in text
    assert "100%" in text


def test_without_rich_the_bar_is_left_out_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert shown(Terminal(), enabled=None) == ""
    assert shown(Terminal(), enabled=False) == ""
    with pytest.raises(InvalidProblemError, match=r"needs rich\. Try: pip install"):
        shown(Terminal(), enabled=True)


@pytest.mark.parametrize("enabled", [True, False])
def test_an_error_in_the_block_comes_through(*, enabled: bool) -> None:
    message = "as it was raised"
    with (
        redirect_stderr(Terminal()),
        pytest.raises(KeyboardInterrupt, match=message),
        progress_bar("training", 10, enabled=enabled),
    ):
        raise KeyboardInterrupt(message)


def said(stderr: io.StringIO, *, enabled: bool | None, after: float) -> str:
    with (
        redirect_stderr(stderr),
        progress_line("projecting", enabled=enabled, after=after) as say,
    ):
        say("3 gradients")
        say("4 gradients")
    return stderr.getvalue()


@pytest.mark.parametrize("enabled", [None, True])
def test_a_line_appears_when_it_takes_long(*, enabled: bool | None) -> None:
    text = said(Terminal(), enabled=enabled, after=0.0)
    assert "projecting: 4 gradients" in text
    assert said(Terminal(), enabled=enabled, after=60.0) == "", "it did not take long"


def test_a_line_is_left_out_where_a_bar_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(Terminal(), enabled=False, after=0.0) == ""
    assert said(io.StringIO(), enabled=None, after=0.0) == ""
    assert "4 gradients" in said(io.StringIO(), enabled=True, after=0.0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidProblemError, match="needs rich"):
        said(Terminal(), enabled=True, after=0.0)


def interrupted(stderr: io.StringIO) -> None:
    with (
        redirect_stderr(stderr),
        progress_line("projecting", enabled=True, after=0.0) as say,
    ):
        say("3 gradients")
        raise KeyboardInterrupt


def test_a_line_ends_with_an_error() -> None:
    stderr = Terminal()
    with pytest.raises(KeyboardInterrupt):
        interrupted(stderr)
    assert "\x1b[?25h" in stderr.getvalue(), "the cursor is shown again"


class Writes:
    """An object that can write, and nothing else."""

    def write(self, text: str) -> int:
        return len(text)


class Broken(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe", text)


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream",
    [None, Writes(), Broken(), closed()],
    ids=["none", "bare", "broken", "closed"],
)
@pytest.mark.parametrize("enabled", [None, True])
def test_where_stderr_takes_nothing_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, stream: object, *, enabled: bool | None
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("training", 10, enabled=enabled) as advance_to:
        advance_to(10)
    with progress_line("projecting", enabled=enabled, after=0.0) as say:
        say("half of it")
    RichLog(every=1)(Update(1, 9, 0.5, {}, 0.1))


def test_a_reader_that_goes_away_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    w = torch.zeros(2, requires_grad=True)
    goal = oneproj.function(lambda: (w - 3).square().sum())
    problem = oneproj.Problem(w, goal, {"size": oneproj.sets.Ball(1.0).on(w)})

    def leave(update: Update) -> None:
        if update.update == 3:
            os.close(reader)
            threading.Event().wait(0.15)  # rich draws ten times a second

    unbuffered = io.TextIOWrapper(os.fdopen(writer, "wb", 0), write_through=True)
    with unbuffered as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        solution = oneproj.solve(problem, steps=20, progress=True, callbacks=leave)
        monkeypatch.undo()
    assert solution.feasible


def test_a_bar_in_ascii_stays_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii"))
    with progress_bar("training", 10, enabled=True) as advance_to:
        advance_to(10)
    sys.stderr.flush()
    assert b"training ---" in raw.getvalue()


@pytest.mark.parametrize("enabled", ["a", 2, []])
def test_what_is_neither_yes_nor_no_is_refused(enabled: Any) -> None:  # noqa: ANN401 - anything
    with (
        pytest.raises(InvalidProblemError, match="progress must be True, False or Non"),
        progress_bar("training", 10, enabled=enabled),
    ):
        pass
