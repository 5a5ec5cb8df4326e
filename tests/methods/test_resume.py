"""137 steps, save, load in a new process, the rest: the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

WORKER = Path(__file__).with_name("resume_worker.py")


def work(first: int, last: int, load_from: str, save_to: Path) -> dict[str, Any]:
    command = [sys.executable, str(WORKER), str(first), str(last)]
    subprocess.run([*command, load_from, str(save_to)], check=True)
    saved: dict[str, Any] = torch.load(save_to, weights_only=True)
    return saved


def same(a: object, b: object) -> bool:
    """Whether two nested states agree bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("stop", [137, 280])
def test_resume_in_a_new_process_is_bit_for_bit(tmp_path: Path, stop: int) -> None:
    # 137 stops inside an outer iteration; 280 after x_J was kept.
    whole = work(0, 300, "-", tmp_path / "whole.pt")
    first = work(0, stop, "-", tmp_path / "first.pt")
    assert not same(first["model"], whole["model"]), "the stop must not be the end"
    rest = work(stop, 300, str(tmp_path / "first.pt"), tmp_path / "rest.pt")
    assert same(rest, whole)
