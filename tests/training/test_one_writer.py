"""Two processes never write one checkpoint: the second is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import oneproj

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks of POSIX")

SECONDS = 60.0
"""To wait at most for the other process."""
OTHER = """
import sys, time
from pathlib import Path
import torch, oneproj

w = torch.tensor([0.3, -0.2], requires_grad=True)
target = torch.tensor([3.0, 4.0])
loss = oneproj.function(lambda: (w - target).square().sum())
ball = {"size": oneproj.sets.Ball(1.0).on(w)}  # as in ``nearest_in_ball``
problem = oneproj.Problem(w, loss, ball, radius=10.0)
file, go_on = Path(sys.argv[1]), Path(sys.argv[2])

def wait(update):
    if update.update == 5:
        print("running", flush=True)
        while not go_on.exists():
            time.sleep(0.01)

saving = oneproj.Checkpoint(file, every=1)
solution = oneproj.solve(problem, steps=10, checkpoint=saving, callbacks=wait)
print(solution.status.name, flush=True)
"""


@contextmanager
def another_process(file: Path, go_on: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a run that is saved to a file."""
    command = [sys.executable, "-c", OTHER, str(file), str(go_on)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


Make = Callable[[], oneproj.Problem]


def test_a_second_process_is_refused_and_the_first_goes_on(
    tmp_path: Path, nearest_in_ball: Make
) -> None:
    file, go_on = tmp_path / "run.pt", tmp_path / "go on"
    link = tmp_path / "link.pt"
    link.symlink_to(file)
    with another_process(file, go_on) as first:
        whole = file.read_bytes()
        for place in (file, link):
            begun: list[int] = []
            with pytest.raises(oneproj.CheckpointError, match="another process"):
                oneproj.solve(
                    nearest_in_ball(),
                    steps=10,
                    callbacks=lambda update, begun=begun: begun.append(update.update),
                    checkpoint=oneproj.Checkpoint(place),
                )
            assert not begun
            assert file.read_bytes() == whole
        go_on.touch()
        printed, _ = first.communicate(timeout=SECONDS)
        assert printed == "FEASIBLE\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("go on", "link.pt", "run.pt"),
    ], "nothing else is left"


def test_what_a_killed_process_held_is_free(
    tmp_path: Path, nearest_in_ball: Make
) -> None:
    file = tmp_path / "run.pt"
    with another_process(file, tmp_path / "never") as first:
        first.kill()
        first.wait(SECONDS)
    began = time.monotonic()
    saving = oneproj.Checkpoint(file)
    assert oneproj.solve(nearest_in_ball(), steps=10, checkpoint=saving).feasible
    assert time.monotonic() - began < SECONDS
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_one_process_may_write_one_run_after_the_other(
    tmp_path: Path, nearest_in_ball: Make
) -> None:
    saving = oneproj.Checkpoint(tmp_path / "run.pt")

    def fail(update: oneproj.Update) -> None:
        raise ZeroDivisionError(update.update)

    with pytest.raises(ZeroDivisionError):
        oneproj.solve(nearest_in_ball(), steps=10, checkpoint=saving, callbacks=fail)
    for _ in range(2):
        assert oneproj.solve(nearest_in_ball(), steps=10, checkpoint=saving).feasible
