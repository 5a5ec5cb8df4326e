"""Where output goes: to outputs with few signs, and what is said when it is stopped."""

from __future__ import annotations

import builtins
import io
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from oneproj_paper.cli import app
from oneproj_paper.cli.exits import as_ctrl_c, console, last_words
from oneproj_paper.cli.reproduce import _table
from oneproj_paper.cli.tables import turned

HEADING = ("runs", "seeds", "class 0 error (%)", "runtime (s)", "feasible")
ROW = ("oneproj, one-projection,\ncuts", "2", "13.25 \u00b1 0.35", "12.06", "2 of 2")


def test_an_output_that_knows_ascii_alone_gets_plain_signs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal = console()
    terminal.print(_table("Errors", HEADING, [ROW]))
    terminal.print("2.0\u00d7 \u2013 \u2603")
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert "13.25 +-0.35 " in text
    assert "2.0x - ?" in text
    assert len({len(line) for line in text.splitlines()[1:-1]}) == 1  # a rectangle


@pytest.mark.parametrize(
    "command",
    [
        ["report", "nowhere"],
        ["reproduce", "no-such-experiment"],
        ["calibrate", "transfer-gaussian"],
        ["data", "verify", "weather"],
    ],
    ids=" ".join,
)
def test_what_went_wrong_is_on_standard_error_alone(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search("no|calibrate", result.stderr)


def test_an_output_that_was_closed_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with last_words():
        console().print("nobody reads this")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has such a device")
def test_a_full_disk_behind_the_output_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as caught, last_words():
            console().print("a result")
        full.flush()  # as Python does at its end: it goes nowhere now
    said = "The output cannot be written: No space left on device."
    assert caught.value.code == said


ENDINGS = [n for n in ("SIGTERM", "SIGHUP") if n in signal.Signals.__members__]


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal with its default action; afterwards everything is as before."""
    found = signal.Signals[request.param]
    before = {each: signal.getsignal(each) for each in (found, signal.SIGINT)}
    signal.signal(found, signal.SIG_DFL)
    yield found
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize("own", [signal.default_int_handler, signal.SIG_IGN])
def test_ended_from_outside_it_ends_as_by_ctrl_c(
    ending: signal.Signals,
    own: Any,  # noqa: ANN401 - a handler of signals
) -> None:
    signal.signal(signal.SIGINT, own)
    with pytest.raises(KeyboardInterrupt), as_ctrl_c():
        signal.raise_signal(ending)
    assert signal.getsignal(ending) is signal.SIG_DFL


def test_a_command_with_its_own_way_for_ctrl_c_goes_it(ending: signal.Signals) -> None:
    heard: list[int] = []
    with as_ctrl_c():
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
        signal.raise_signal(ending)
    assert heard == [ending]


def test_what_was_told_to_go_on_goes_on(ending: signal.Signals) -> None:
    signal.signal(ending, signal.SIG_IGN)  # as nohup does
    with as_ctrl_c():
        signal.raise_signal(ending)
    assert signal.getsignal(ending) is signal.SIG_IGN


def shown(table: Any, width: int) -> str:  # noqa: ANN401 - rich's
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


@pytest.mark.parametrize("width", [38, 60, 80])
def test_a_narrow_terminal_loses_no_number(width: int) -> None:
    text = shown(turned(_table("Errors", HEADING, [ROW, ROW])), width)
    for cell in (*HEADING, *ROW[1:]):
        assert text.count(cell) >= 2
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def refusing(name: str) -> Callable[..., Any]:
    """Ctrl-C while a module is imported, as in the first seconds of a command."""
    ordinary = builtins.__import__

    def imports(module: str, *rest: Any) -> Any:  # noqa: ANN401
        if module == name:
            raise KeyboardInterrupt
        return ordinary(module, *rest)

    return imports


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["reproduce"], "oneproj_paper.experiments.reproduce"),
        (["calibrate", "abstention-nasa"], "oneproj_paper.experiments.calibration_run"),
        (["report"], "oneproj_paper.report.write"),
    ],
)
def test_ctrl_c_while_a_command_is_imported_is_said_in_words(
    command: list[str], module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "__import__", refusing(module))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 130
    assert result.output.startswith("Stopped.")


def test_help_has_whole_lines_and_all_names() -> None:
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    text = runner.invoke(app, ["reproduce", "--help"]).output
    assert "continues after a crash or Ctrl-C. Times" in re.sub(" +", " ", text)
    text = runner.invoke(app, ["calibrate", "--help"]).output
    for name in ("gaussian", "climsim", "nasa", "credit"):
        assert f"abstention-{name}" in text
