"""Trajectories on disk: written whole or not at all, resumed bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneproj.files import replacing
from oneproj.vectors.arithmetic import Array
from oneproj_paper.laboratory.kernel import Words


@dataclass
class Trajectory:
    """Where a group of trials stands.

    Attributes:
        path: x_0..x_T of each trial, shape (T + 1, n, 2); filled up to row ``done``.
        words: the state of the random bits after ``done`` outer iterations.
        done: complete outer iterations.
        seconds: time spent on them.
    """

    path: Array
    words: Words
    done: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether all T outer iterations are made."""
        return self.done == len(self.path) - 1


def save(trajectory: Trajectory, file: Path) -> None:
    """Write a checkpoint in place of the old one, in one step."""
    # To a stream: a name would have ".npz" added.
    with replacing(file) as draft, draft.open("wb") as stream:
        np.savez(
            stream,
            path=trajectory.path,
            words=trajectory.words,
            done=trajectory.done,
            seconds=trajectory.seconds,
        )


def load(file: Path, *, outer_steps: int, trials: int) -> Trajectory | None:
    """Read a checkpoint; None when there is none of this shape."""
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as kept:
        if kept["path"].shape != (outer_steps + 1, trials, 2):
            return None
        return Trajectory(
            path=kept["path"],
            words=kept["words"],
            done=int(kept["done"]),
            seconds=float(kept["seconds"]),
        )
