"""The benchmark programs: Ctrl-C and a full disk end in a sentence and a code."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from benchmarks import overhead, robust
from benchmarks.overhead import Shape
from benchmarks.variations import VARIATIONS
from oneproj import files, solve

TINY = Shape(width=8, heads=2, layers=1, length=6, sequences=12, batch_size=3)
Run = Callable[..., tuple[int, str]]
RECORDS = ["step", "overhead", "train", "robust"]


@pytest.fixture
def run(run_program: Callable[..., Result]) -> Run:
    def finished(name: str, *arguments: object) -> tuple[int, str]:
        result = run_program(name, *arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output.replace("\n", " ")

    return finished


def pressing(solves: list[str]) -> Callable[..., Any]:
    """``solve`` with Ctrl-C in its third update."""

    def press(update: Any) -> None:  # noqa: ANN401
        if update.update == 3:
            signal.raise_signal(signal.SIGINT)

    def pressed(problem: Any, **arguments: Any) -> Any:  # noqa: ANN401
        solves.append("begun")
        return solve(problem, callbacks=press, **arguments)

    return pressed


@pytest.mark.parametrize("bench", [robust, overhead])
def test_half_a_run_is_in_no_record(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bench: Any,  # noqa: ANN401
) -> None:
    solves: list[str] = []
    monkeypatch.setattr(bench, "solve", pressing(solves))
    monkeypatch.setattr(overhead, "Shape", partial(replace, TINY))
    make = partial(robust.robust_record, VARIATIONS[:1])
    monkeypatch.setattr(robust, "robust_record", make)
    count = "--steps" if bench is robust else "--updates"
    name = bench.__name__.rpartition(".")[2]
    code, output = run(name, count, 10, "--out", tmp_path / "record.json")
    assert (code, len(solves)) == (130, 1), output
    assert "Stopped. Nothing was written." in output
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture(params=RECORDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_instead(
    monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[..., Any]
) -> None:
    module = import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, f"{name}_record", make)


def test_ctrl_c_ends_with_a_sentence_and_its_code(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    make_instead(monkeypatch, name, interrupted)
    code, output = run(name, "--out", tmp_path / "record.json")
    assert code == 130
    assert "Stopped." in output


def test_a_place_that_cannot_be_written_is_found_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made: list[str] = []
    make_instead(monkeypatch, name, lambda *_, **__: made.append(name))
    file = tmp_path / "file"
    file.touch()
    code, output = run(name, "--out", file / "record.json")
    assert (code, made) == (1, [])
    assert str(file) in output.replace(" ", "")
    assert "choose another place" in output


def test_a_disk_that_fills_up_loses_no_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    make = partial(robust.robust_record, VARIATIONS[:1])

    def made(**arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        record = make(**arguments)
        monkeypatch.setattr(files, "force", full)
        return record

    monkeypatch.setattr(robust, "robust_record", made)
    out = tmp_path / "record.json"
    code, output = run("robust", "--steps", 5, "--seeds", 1, "--out", out)
    assert code == 1
    assert "| network |" in output
    assert "No space left on device" in output
    assert list(tmp_path.iterdir()) == []
