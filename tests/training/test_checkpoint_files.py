"""The file of a checkpoint: whole or refused, replaced in one step, safe to load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

import oneproj
from oneproj import Update

Make = Callable[[], oneproj.Problem]
Refuse = Callable[[Path], None]


@pytest.fixture
def saved(tmp_path: Path, nearest_in_ball: Make) -> Path:
    file = tmp_path / "saved.pt"
    oneproj.solve(nearest_in_ball(), steps=20, checkpoint=file)
    return file


@pytest.fixture
def resume(nearest_in_ball: Make) -> Refuse:
    """Goes on from a file."""
    problem = nearest_in_ball()

    def run(file: Path) -> None:
        oneproj.solve(problem, steps=20, checkpoint=oneproj.Checkpoint(file))

    return run


def test_every_truncation_is_refused_with_words(
    saved: Path, tmp_path: Path, resume: Refuse
) -> None:
    whole, cut = saved.read_bytes(), tmp_path / "cut.pt"
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(len(whole), (200,), generator=generator).tolist()
    for size in [*range(120), *random, len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(
            oneproj.CheckpointError, match=r"truncated or damaged|not a checkpoint"
        ):
            resume(cut)


def test_every_damaged_byte_is_noticed(
    saved: Path, tmp_path: Path, resume: Refuse
) -> None:
    whole, bad = saved.read_bytes(), tmp_path / "bad.pt"
    generator = torch.Generator().manual_seed(1)
    for position in torch.randint(len(whole), (200,), generator=generator).tolist():
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        bad.write_bytes(flipped)
        with pytest.raises(oneproj.CheckpointError):
            resume(bad)


def test_another_format_and_another_file_are_refused(
    saved: Path, tmp_path: Path, resume: Refuse
) -> None:
    first, _, rest = saved.read_bytes().partition(b"\n")
    magic, version = first[: first.rindex(b" ") + 1], int(first.split()[-1])
    other = tmp_path / "other.pt"
    for then in (1, version - 1, version + 1):  # from before, and from later on
        other.write_bytes(magic + str(then).encode() + b"\n" + rest)
        with pytest.raises(
            oneproj.CheckpointError,
            match=rf"has format {then}, this version of the library reads format "
            rf"{version}.*Finish the run with the version that began it, or delete",
        ):
            resume(other)
    torch.save({"w": torch.ones(2)}, other)
    with pytest.raises(oneproj.CheckpointError, match="not a checkpoint of this lib"):
        resume(other)


def test_a_checkpoint_names_no_class_and_no_module(
    tmp_path: Path, read_saved: Callable[[Path], dict[str, Any]]
) -> None:
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
        look(read_saved(file)["method"])
    assert "size" in words
    assert not [word for word in words if "oneproj" in word or "." in word]


def test_a_reader_keeps_the_whole_checkpoint_that_is_being_replaced(
    tmp_path: Path, nearest_in_ball: Make
) -> None:
    file, opened = tmp_path / "run.pt", list[tuple[BinaryIO, bytes]]()

    def look(update: Update) -> None:
        if update.update == 5:
            opened.append((file.open("rb"), file.read_bytes()))

    saving = oneproj.Checkpoint(file, every=2)
    oneproj.solve(nearest_in_ball(), steps=9, checkpoint=saving, callbacks=look)
    ((reader, before),) = opened
    with reader:
        assert reader.read() == before
    assert file.read_bytes() != before


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
