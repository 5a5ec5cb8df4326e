"""The file of a checkpoint: whole or refused, replaced in one step, safe to load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import oneproj
from oneproj.training.checkpoints import (
    MAGIC,
    VERSION,
    read_checkpoint,
    write_checkpoint,
)

Make = Callable[[], oneproj.Problem]


@pytest.fixture
def saved(tmp_path: Path, nearest_in_ball: Make) -> Path:
    file = tmp_path / "saved.pt"
    oneproj.solve(nearest_in_ball(), steps=20, checkpoint=file)
    return file


def test_every_truncation_is_refused_with_words(saved: Path, tmp_path: Path) -> None:
    whole, cut = saved.read_bytes(), tmp_path / "cut.pt"
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(len(whole), (200,), generator=generator).tolist()
    for size in [*range(120), *random, len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(
            oneproj.CheckpointError, match=r"truncated or damaged|not a checkpoint"
        ):
            read_checkpoint(cut)


def test_every_damaged_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    whole, bad = saved.read_bytes(), tmp_path / "bad.pt"
    generator = torch.Generator().manual_seed(1)
    for position in torch.randint(len(whole), (200,), generator=generator).tolist():
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        bad.write_bytes(flipped)
        with pytest.raises(oneproj.CheckpointError):
            read_checkpoint(bad)


def test_another_format_and_another_file_are_refused(
    saved: Path, tmp_path: Path
) -> None:
    here, other = str(VERSION).encode(), tmp_path / "other.pt"
    for then in (1, VERSION - 1, VERSION + 1):  # from before, and from later on
        line = MAGIC + str(then).encode()
        other.write_bytes(saved.read_bytes().replace(MAGIC + here, line, 1))
        with pytest.raises(
            oneproj.CheckpointError,
            match=rf"has format {then}, this version of the library reads format "
            rf"{VERSION}.*Finish the run with the version that began it, or delete",
        ):
            read_checkpoint(other)
    torch.save({"w": torch.ones(2)}, other)
    with pytest.raises(oneproj.CheckpointError, match="not a checkpoint of this lib"):
        read_checkpoint(other)


def test_a_checkpoint_names_no_class_and_no_module(tmp_path: Path) -> None:
    file, words = tmp_path / "run.pt", set[str]()

    def look(state: object) -> None:
        if isinstance(state, str):
            words.add(state)
        items = [*state, *state.values()] if isinstance(state, dict) else state
        if isinstance(items, list | tuple):
            for item in items:
                look(item)

    w = torch.zeros(2, requires_grad=True)
    for curvature in ("convex", None):
        w.data.fill_(2.0)
        size = oneproj.function(lambda: w.square().sum(), curvature=curvature)
        built = oneproj.Problem(w, oneproj.function(w.sum), {"size": size <= 1.0})
        file.unlink(missing_ok=True)
        oneproj.solve(built, steps=2, method="projected-sgd", checkpoint=file)
        look(read_checkpoint(file)["method"])
    assert "size" in words
    assert not [word for word in words if "oneproj" in word or "." in word]


def test_a_failed_write_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.pt"
    write_checkpoint(file, {"update": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(file, {"update": 2})
    assert read_checkpoint(file) == {"update": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_keeps_the_whole_checkpoint_that_is_being_replaced(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.pt"
    write_checkpoint(file, {"update": 1})
    before = file.read_bytes()
    with file.open("rb") as reader:
        write_checkpoint(file, {"update": 2, "more": "x" * 1000})
        assert reader.read() == before
    assert read_checkpoint(file)["update"] == 2


def test_what_could_not_be_loaded_safely_is_not_saved(
    tmp_path: Path, nearest_in_ball: Make
) -> None:
    class Eager(torch.optim.lr_scheduler.ConstantLR):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            super().__init__(optimizer)
            self.secret = print

    message = r"\['scheduler'\]\['secret'\] is a builtin_function_or_method"
    with pytest.raises(oneproj.CheckpointError, match=message):
        oneproj.solve(nearest_in_ball(), decay=Eager, checkpoint=tmp_path / "run.pt")


def test_a_folder_is_not_a_checkpoint(tmp_path: Path, nearest_in_ball: Make) -> None:
    for place in (tmp_path, oneproj.Checkpoint(tmp_path)):
        with pytest.raises(oneproj.CheckpointError, match=r"is a folder.*run\.pt"):
            oneproj.solve(nearest_in_ball(), steps=4, checkpoint=place)
