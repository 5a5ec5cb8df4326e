"""``reproduce --jobs 2`` killed at random moments and started again.

Run as a script for more of it, through the command line: ``test_killed.py 10``.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from oneproj_paper.experiments import specs
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import read_folder, write_record
from oneproj_paper.experiments.reproduce import reproduce
from oneproj_paper.report.write import write_report

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs process groups")

WORKER = Path(__file__).with_name("killed_worker.py")
COMMAND = (
    sys.executable,
    "-c",
    "from oneproj_paper.cli import app; app()",
    *("reproduce", "abstention-gaussian", "--method", "one-projection"),
    *("--seeds", "6", "--jobs", "2", "--out"),
)
UPDATES, SEEDS = 30, 12
PATIENCE = 600.0
POLL = 0.01
LONGEST = 0.3  # seconds from a sign of progress to the signal
TIMES = ("seconds", "runtime")


def count(folder: Path) -> int:
    return len(list(folder.glob("*/*/*/*/seed-*.json")))


def numbers(record: Record) -> dict[str, Any]:
    """All but the times."""
    plain = {k: v for k, v in asdict(record).items() if k not in TIMES}
    plain["history"] = {k: v for k, v in record.history.items() if k != "seconds"}
    return plain


def read(folder: Path) -> list[Record]:
    """Every one of the records is whole."""
    records, damaged = read_folder(folder)
    assert damaged == []
    return records


def report(folder: Path, out: Path) -> dict[str, bytes]:
    """The report of a folder: the page and every figure and table, byte by byte.

    No two runs take the same time, and a report shows times: runtimes, their ratios and
    the bars. So the records get times that follow from their numbers of updates, and
    whatever else is in the folder stays. All other bytes are then to be the same.
    """
    runs = shutil.copytree(folder, out / "runs")
    for record in read(runs):
        updates = record.history["update"]
        same = replace(
            record,
            seconds=dict.fromkeys(record.seconds, 0.001 * record.updates),
            runtime=0.002 * record.updates,
            history={**record.history, "seconds": tuple(0.001 * u for u in updates)},
        )
        write_record(same, runs)
    written = write_report(runs, out / "report.html")
    files = [written.page, *written.files.rglob("*.*")]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """A command in a process group of its own, so that nothing else is hit."""
    return subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(command: list[str]) -> None:
    with start(command) as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output.decode()


@contextlib.contextmanager
def interrupted(
    command: list[str], folder: Path, after: int, send: Callable[[int], None]
) -> Iterator[subprocess.Popen[bytes]]:
    """Send a signal once so many records are there."""
    with start(command) as process:
        until = time.monotonic() + PATIENCE
        while count(folder) < after and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(POLL)
        with contextlib.suppress(ProcessLookupError):
            send(process.pid)
        yield process
        # Workers that a killed parent left behind end by themselves; do not wait.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def survive(
    make: Callable[[Path], list[str]],
    complete: Callable[[Path], object],
    folder: Path,
    *,
    kills: int,
    seed: int,
) -> Counter[str]:
    """Kill a sweep again and again; all its records come out, and as if untouched.

    So does the report that is made of them. Only the process that was started is
    killed: its workers are left over.
    """
    whole, broken = folder / "whole", folder / "broken"
    chance, seen = random.Random(seed), Counter[str]()  # noqa: S311 - no secrets
    complete(whole)
    expected = [numbers(record) for record in read(whole)]
    kept: dict[Path, bytes] = {}
    for _ in range(kills):
        after = min(len(kept) + chance.randrange(3), len(expected) - 1)

        def kill(child: int) -> None:
            time.sleep(LONGEST * chance.random())
            os.kill(child, signal.SIGKILL)

        with interrupted(make(broken), broken, after, kill) as process:
            process.wait(timeout=PATIENCE)
        seen["killed"] += process.returncode == -signal.SIGKILL
        records = read(broken)
        assert all(path.read_bytes() == text for path, text in kept.items())
        kept = {
            broken / r.key.path: (broken / r.key.path).read_bytes() for r in records
        }
        seen["halfway"] += 0 < len(records) < len(expected)
        if len(records) == len(expected):
            assert [numbers(record) for record in records] == expected
            for path in kept:
                path.unlink()
            kept = {}
    complete(broken)
    assert [numbers(record) for record in read(broken)] == expected
    assert not list(broken.rglob("*.draft"))
    pages = [report(each, folder / f"report-{each.name}") for each in (whole, broken)]
    assert pages[0] == pages[1]
    seen["files of the report"] = len(pages[0])
    return seen


def worker(out: Path) -> list[str]:
    """A sweep of short runs."""
    return [sys.executable, str(WORKER), str(UPDATES), str(SEEDS), str(out)]


def test_killed_and_started_again_makes_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "STEPS", UPDATES)
    monkeypatch.setattr(specs, "SHIPPED", None)

    def complete(out: Path) -> None:
        reproduce(
            ["abstention-gaussian"],
            seeds=SEEDS,
            presets=["oneproj"],
            methods=["one-projection"],
            out=out,
        )

    seen = survive(worker, complete, tmp_path, kills=2, seed=0)
    assert seen["killed"] > 0
    assert seen["halfway"] > 0


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    def press(child: int) -> None:
        os.killpg(child, signal.SIGINT)  # a terminal tells the workers as well

    with interrupted(worker(tmp_path), tmp_path, 1, press) as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output.decode()
    assert f"The same command continues in {tmp_path}" in output.decode()
    assert "Traceback" not in output.decode()
    assert 0 < len(read(tmp_path)) < SEEDS


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 10

    def command(out: Path) -> list[str]:
        return [*COMMAND, str(out)]

    def run_command(out: Path) -> None:
        finish(command(out))

    with tempfile.TemporaryDirectory() as temporary:
        found = survive(command, run_command, Path(temporary), kills=times, seed=1)
    told = f"the same records and the same report after {times} kills: {dict(found)}\n"
    sys.stdout.write(told)
