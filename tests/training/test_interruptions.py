"""Killed after random updates and started again: the same final bits.

Run as a script for more of it: ``make interrupt``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")

WORKER = Path(__file__).with_name("interrupt_worker.py")
SIGNALS = (signal.SIGINT, signal.SIGKILL)
UPDATES = 190  # a signal comes after at most so many of the worker's 200
LONGEST = 0.03  # and at most so many seconds later: the time of some more updates
PATIENCE = 120.0  # seconds to wait for an update on a busy machine


class Trainer:
    """The worker's parent, which starts one process after another."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def begin(self, method: str, folder: Path) -> int:
        assert self._server.stdin is not None
        line = f"{method} {folder / 'run.pt'} {folder / 'answer.pt'}\n"
        self._server.stdin.write(line)
        self._server.stdin.flush()
        return self._read()

    def end(self) -> int:
        """Wait until the process is gone; returns its exit code."""
        return self._read()

    def _read(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())


@contextlib.contextmanager
def trainer() -> Iterator[Trainer]:
    command = [sys.executable, str(WORKER)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        yield Trainer(server)


def finish(train: Trainer, method: str, folder: Path) -> dict[str, object]:
    train.begin(method, folder)
    assert train.end() == 0
    answer: dict[str, object] = torch.load(folder / "answer.pt", weights_only=True)
    return answer


def saved_updates(file: Path) -> int:
    """The number of the update that a checkpoint was written after; it is whole."""
    _, digest, content = file.read_bytes().split(b"\n", 2)
    assert hashlib.sha256(content).hexdigest().encode() == digest
    update: int = torch.load(io.BytesIO(content), weights_only=True)["update"]
    return update


def same(a: object, b: object) -> bool:
    """Whether two nested states agree bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def wait_for(update: int, folder: Path) -> None:
    """Wait until a checkpoint of that update, or the answer, is written."""
    limit, file = time.monotonic() + PATIENCE, folder / "run.pt"
    while time.monotonic() < limit and not (folder / "answer.pt").exists():
        if file.exists() and saved_updates(file) >= update:
            return
        time.sleep(1e-3)


def survive(
    train: Trainer, method: str, folder: Path, *, kills: int, seed: int
) -> Counter[str]:
    """Send ``kills`` signals after random updates; counts what became of each run."""
    whole, broken = folder / "whole", folder / "broken"
    whole.mkdir()
    broken.mkdir()
    generator, seen = torch.Generator().manual_seed(seed), Counter[str]()
    expected = finish(train, method, whole)
    for _ in range(kills):
        kind = SIGNALS[int(torch.randint(2, (), generator=generator))]
        update = int(torch.randint(UPDATES, (), generator=generator))
        child = train.begin(method, broken)
        wait_for(update, broken)
        time.sleep(LONGEST * float(torch.rand((), generator=generator)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, kind)
        train.end()
        seen[kind.name] += 1
        if (broken / "run.pt").exists():
            seen["resumed"] += saved_updates(broken / "run.pt") > 0
        if (broken / "answer.pt").exists():  # done too early: begin anew
            seen["completed"] += 1
            assert same(finish(train, method, broken), expected)
            for file in broken.iterdir():
                file.unlink()
    assert same(finish(train, method, broken), expected)
    return seen


@pytest.fixture(scope="module")
def train() -> Iterator[Trainer]:
    with trainer() as running:
        yield running


@pytest.mark.parametrize("method", ["one-projection", "projected-sgd"])
def test_killed_and_resumed_ends_with_the_same_bits(
    train: Trainer, tmp_path: Path, method: str
) -> None:
    seen = survive(train, method, tmp_path, kills=4, seed=0)
    assert seen["resumed"] > 0
    assert seen["SIGINT"] > 0
    assert seen["SIGKILL"] > 0


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as temporary, trainer() as worker:
        found = survive(worker, "one-projection", Path(temporary), kills=count, seed=1)
    sys.stdout.write(f"the same bits after {count} signals: {dict(found)}\n")
