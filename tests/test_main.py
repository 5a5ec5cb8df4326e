"""The command line's door: both ways in, and what is said where it is not installed."""

from __future__ import annotations

import importlib.metadata
import os
import runpy
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj import waking
from oneproj.__main__ import NEEDED, main
from oneproj.cli import app

ROOT = Path(__file__).parents[1]


def run_module(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """As ``python -m oneproj`` does; returns what the program exits with."""
    monkeypatch.setattr(sys, "argv", ["__main__.py", *arguments])
    monkeypatch.delitem(sys.modules, "oneproj.__main__", raising=False)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("oneproj", run_name="__main__")
    return caught.value.code


def test_the_module_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(monkeypatch, "--help") == 0
    assert "Usage: oneproj [OPTIONS] COMMAND" in capsys.readouterr().out


def test_the_script_and_the_module_are_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"oneproj": "oneproj.__main__:main"}


@pytest.mark.parametrize("package", sorted(NEEDED))
def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("oneproj.cli")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    expected = f"The command line needs {package}. Try: pip install oneproj[cli]"
    assert run_module(monkeypatch) == expected  # which Python prints, with exit code 1


def pressed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with a torch in whose place somebody presses Ctrl-C, and then waits."""
    lines = "import os, signal, time", "os.kill(os.getpid(), signal.SIGINT)"
    (folder / "torch.py").write_text("\n".join((*lines, "time.sleep(20)")))
    path = os.pathsep.join((str(folder), str(ROOT / "src")))
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        # A shell's background job ignores Ctrl-C, and would hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        capture_output=True,
        text=True,
        check=False,
    )


def test_ctrl_c_while_torch_is_imported_ends_a_command_in_words(tmp_path: Path) -> None:
    done = pressed(tmp_path, "-m", "oneproj", "report")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Stopped before anything began.\n"
    script = tmp_path / "oneproj"  # as an installer writes it
    script.write_text("from oneproj.__main__ import main\nmain()\n")
    assert pressed(tmp_path, str(script)).returncode == 130


def test_a_program_that_imports_the_library_has_its_own_ctrl_c(tmp_path: Path) -> None:
    done = pressed(tmp_path, "-c", "import oneproj")
    assert "KeyboardInterrupt" in done.stderr
    assert "Stopped" not in done.stderr


def test_a_command_that_has_begun_has_an_ordinary_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, waking._leave)
        assert run_module(monkeypatch, "--version") == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_missing_module_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "oneproj.cli", None)
    with pytest.raises(ModuleNotFoundError, match=r"oneproj\.cli"):
        main()


def test_the_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"oneproj": "4.5.6"}.__getitem__)
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, "oneproj 4.5.6\n")


def test_a_version_that_is_not_known_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert "oneproj (not installed" in result.output
