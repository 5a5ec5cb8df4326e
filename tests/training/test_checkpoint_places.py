"""Where a checkpoint cannot be written: refused at once, or warned of and survived."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

import oneproj
from oneproj import Status, Update

FULL = OSError(28, "No space left on device")


def problem() -> oneproj.Problem:
    w = torch.zeros(2, requires_grad=True)
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - 3.0).square().sum()),
        constraints={"size": oneproj.function(lambda: w.square().sum()) <= 1.0},
        radius=10.0,
    )


def solve(built: oneproj.Problem, **arguments: Any) -> oneproj.Solution:  # noqa: ANN401
    resume, path = arguments.pop("resume", False), arguments.pop("checkpoint", None)
    if path is not None:
        arguments["checkpoint"] = oneproj.Checkpoint(path, every=10, resume=resume)
    return oneproj.solve(built, **({"steps": 60} | arguments))


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.parametrize(
    "place",
    ["file/run.pt", "x" * 300, "a\0b.pt", "/proc/oneproj/run.pt"],
    ids=["in a file", "too long", "not a name", "not a disk"],
)
def test_a_bad_place_is_refused_before_any_update(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    built, seen = problem(), list[Update]()
    with pytest.raises(
        oneproj.CheckpointError, match=r"cannot be written: .*No update"
    ):
        solve(built, checkpoint=tmp_path / place, callbacks=seen.append)
    assert seen == []
    assert built.parameters[0].tolist() == [0.0, 0.0]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_refused_before_any_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(monkeypatch)
    seen: list[Update] = []
    with pytest.raises(oneproj.CheckpointError, match="No space left on device"):
        solve(problem(), checkpoint=tmp_path / "run.pt", callbacks=seen.append)
    assert seen == []
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_warned_of_once_and_the_run_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_saved: Callable[[Path], dict[str, Any]],
) -> None:
    plain, built, file = problem(), problem(), tmp_path / "run.pt"
    solve(plain)

    def later(update: Update) -> None:
        if update.update == 25:
            fill(monkeypatch)

    with pytest.warns(oneproj.OneprojWarning) as warned:
        solution = solve(built, checkpoint=file, callbacks=later)
    (told,) = [str(warning.message) for warning in warned]
    assert "could not be replaced after update 30: No space left on device" in told
    assert "lose what came after update 20" in told
    assert warned[0].filename == __file__
    assert solution.status is Status.FEASIBLE
    assert torch.equal(built.parameters[0], plain.parameters[0])
    assert read_saved(file)["update"] == 20
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.undo()
    again = problem()
    solve(again, checkpoint=file, resume=True)
    assert torch.equal(again.parameters[0], plain.parameters[0])


def test_a_disk_that_fails_again_is_warned_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = torch.save, list[int]()

    def flaky(state: object, stream: BinaryIO) -> None:
        saved.append(1)
        if len(saved) in {2, 4}:  # the first is before any update
            raise FULL
        save(state, stream)

    monkeypatch.setattr(torch, "save", flaky)
    with pytest.warns(oneproj.OneprojWarning) as told:
        solve(problem(), steps=30, checkpoint=tmp_path / "run.pt")
    assert ["after update 10" in str(told[0].message), len(told)] == [True, 2]
    assert "after update 30" in str(told[1].message)


def test_what_the_disk_said_is_not_hidden_by_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Narrow:
        """A file on a disk with little room."""

        def __init__(self, stream: BinaryIO) -> None:
            self._stream, self._room = stream, 2000

        def write(self, data: bytes) -> int:
            self._room -= len(data)
            if self._room < 0:
                raise FULL
            return self._stream.write(data)

        def flush(self) -> None:
            self._stream.flush()

    save = torch.save

    def narrow(state: object, stream: BinaryIO) -> None:
        save(state, Narrow(stream))

    monkeypatch.setattr(torch, "save", narrow)
    with pytest.raises(
        oneproj.CheckpointError, match="cannot be written: No space left on device"
    ):
        solve(problem(), checkpoint=tmp_path / "run.pt")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.pt"
    solve(problem(), checkpoint=file)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(oneproj.CheckpointError, match="cannot be read: Permission"):
        solve(problem(), checkpoint=file, resume=True)


@pytest.mark.parametrize("content", [{"update": 3}, {}, {"outline": {}}, [1, 2]])
def test_a_whole_file_of_something_else_is_refused(
    tmp_path: Path, content: object, rewrite_saved: Callable[[Path, object], None]
) -> None:
    file = tmp_path / "run.pt"
    solve(problem(), checkpoint=file)
    rewrite_saved(file, content)
    built = problem()
    with pytest.raises(oneproj.CheckpointError, match="not that of a run"):
        solve(built, checkpoint=file, resume=True)
    assert built.parameters[0].tolist() == [0.0, 0.0]


def test_a_whole_file_that_torch_cannot_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.pt"

    def save(_: object, stream: BinaryIO) -> None:
        stream.write(b"no pickle")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save)
        solve(problem(), checkpoint=file)
    with pytest.raises(oneproj.CheckpointError, match="is complete, but torch"):
        solve(problem(), checkpoint=file, resume=True)


def test_auto_takes_a_method_that_can_be_saved(tmp_path: Path) -> None:
    file, built = tmp_path / "run.pt", problem()
    assert solve(problem(), method="auto").settings["method"] == "slsqp"
    whole = solve(built, method="auto", checkpoint=file)
    assert whole.settings["method"] == "one-projection"
    assert whole.settings["why"].endswith("a run of SLSQP cannot be saved")
    file.unlink()
    stop = {"callbacks": lambda update: update.update == 25}
    solve(problem(), method="auto", checkpoint=file, **stop)
    again = problem()
    resumed = solve(again, method="auto", checkpoint=file, resume=True)
    assert resumed.settings["method"] == "one-projection"
    assert torch.equal(again.parameters[0], built.parameters[0])


def test_a_part_of_a_large_tensor_is_saved_alone(tmp_path: Path) -> None:
    w = torch.zeros(10**6)[:2].requires_grad_()
    goal = oneproj.function(lambda: (w - 3.0).square().sum())
    built = oneproj.Problem(w, goal, {"size": oneproj.sets.Ball(1.0).on(w)})
    file = tmp_path / "run.pt"
    solve(built, checkpoint=file)
    assert file.stat().st_size < 10**5
    built.parameters[0].data.zero_()
    solve(built, checkpoint=file, resume=True)
    assert 0.99 < w.norm().item() <= 1.0
