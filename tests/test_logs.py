"""Loggers write what the updates saw, also across a crash and a resume."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch

import oneproj
from oneproj import Status, Update
from oneproj.logs import AbstractLog, CsvLog, RichLog, TensorBoardLog


def problem() -> oneproj.Problem:
    w = torch.tensor([0.3, -0.2], requires_grad=True)
    target = torch.tensor([3.0, 4.0])
    return oneproj.Problem(
        w,
        objective=oneproj.function(lambda: (w - target).square().sum()),
        constraints={"size, in all": oneproj.sets.Ball(1.0).on(w)},
        radius=10.0,
    )


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_csv_has_what_the_history_has(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "run.csv"
    solution = oneproj.solve(problem(), steps=20, inner_steps=5, callbacks=CsvLog(file))
    table = rows(file)
    for name, column in solution.history.items():
        assert [float(row[name]) for row in table] == column
    assert [int(row["outer"]) for row in table] == [k // 5 for k in range(1, 21)]


def test_csv_goes_on_after_a_crash(tmp_path: Path) -> None:
    whole, file = tmp_path / "whole.csv", tmp_path / "run.csv"
    oneproj.solve(problem(), steps=20, callbacks=CsvLog(whole))

    def crash(update: Update) -> None:
        if update.update == 13:
            raise ZeroDivisionError

    checkpoint = oneproj.Checkpoint(tmp_path / "run.pt", every=5)
    arguments = {"steps": 20, "checkpoint": checkpoint}
    with pytest.raises(ZeroDivisionError):
        oneproj.solve(problem(), **arguments, callbacks=[CsvLog(file), crash])
    assert len(rows(file)) == 13
    with file.open("a", encoding="utf-8") as stream:
        stream.write("1")  # killed while it wrote the row of update 14
    oneproj.solve(problem(), **arguments, callbacks=CsvLog(file))
    kept, expected = rows(file), rows(whole)
    for row in (*kept, *expected):
        del row["seconds"]
    assert kept == expected
    assert list(tmp_path.glob("*.draft")) == []


def test_csv_begins_anew_with_a_new_run_and_refuses_other_columns(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.csv"
    for steps in (20, 12):
        oneproj.solve(problem(), steps=steps, callbacks=CsvLog(file))
        assert len(rows(file)) == steps
    with pytest.raises(oneproj.InvalidProblemError, match="has the columns"):
        CsvLog(file)(Update(1, 2, 0.5, {"other": 0.0}, 0.1))


def test_every_nth_update_and_the_last(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    oneproj.solve(problem(), steps=20, callbacks=CsvLog(file, every=8))
    assert [row["update"] for row in rows(file)] == ["8", "16", "20"]
    with pytest.raises(
        oneproj.InvalidProblemError, match="every must be a whole number"
    ):
        CsvLog(file, every=0)


def numbers(file: Path) -> list[int]:
    return [int(row["update"]) for row in rows(file)]


def test_a_new_run_replaces_the_rows_before_its_own_first_one(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    oneproj.solve(problem(), steps=20, callbacks=CsvLog(file))
    oneproj.solve(problem(), steps=20, callbacks=CsvLog(file, every=8))
    assert numbers(file) == [8, 16, 20]


def test_one_log_of_two_runs_holds_the_second(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    log = CsvLog(file)
    for _ in range(2):
        oneproj.solve(problem(), steps=4, callbacks=log)
        assert numbers(file) == [1, 2, 3, 4]
    for k in (3, 4, 5, 1, 2):  # in a loop of one's own, without close()
        log(Update(k, 9, 0.5, {"size, in all": 0.0}, 0.1))
    assert numbers(file) == [1, 2]


def stop(update: Update) -> bool:
    return update.update == 13


def crash(update: Update) -> None:
    if update.update == 13:
        raise ZeroDivisionError


def test_a_run_that_ends_early_writes_its_last_update(tmp_path: Path) -> None:
    file, saved = tmp_path / "run.csv", tmp_path / "run.pt"
    call = {"steps": 20, "checkpoint": oneproj.Checkpoint(saved)}
    oneproj.solve(problem(), **call, callbacks=[CsvLog(file, every=8), stop])
    assert numbers(file) == [8, 13]
    oneproj.solve(problem(), **call, callbacks=CsvLog(file, every=8))
    assert numbers(file) == [8, 13, 16, 20]
    with pytest.raises(ZeroDivisionError):
        oneproj.solve(problem(), steps=20, callbacks=[CsvLog(file, every=8), crash])
    assert numbers(file) == [8, 13]
    short = [CsvLog(file, every=10), lambda update: update.update == 5]
    with pytest.warns(oneproj.OneprojWarning, match="selected iterate is the start"):
        oneproj.solve(problem(), steps=20, callbacks=short)
    assert numbers(file) == [5]


# --- disks ----------------------------------------------------------------------------


class Narrow(CsvLog):
    """On a disk that is full for some updates, each of which leaves half a row."""

    full: Collection[int] = ()

    def write(self, update: Update) -> None:
        if update.update in self.full:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{update.update},0.")
            raise OSError(28, "No space left on device")
        super().write(update)


def test_a_disk_that_is_full_costs_rows_and_not_the_run(tmp_path: Path) -> None:
    file, other = tmp_path / "run.csv", tmp_path / "other.csv"
    log = Narrow(file)
    log.full = (3, 4, 7)
    with pytest.warns(oneproj.OneprojWarning) as told:
        solution = oneproj.solve(problem(), steps=20, callbacks=[log, CsvLog(other)])
    assert solution.status is Status.FEASIBLE
    assert len(told) == 1, "once, however often"
    message = str(told[0].message)
    assert "run.csv') could not be written at update 3: No space left on" in message
    assert numbers(file) == [1, 2, 5, 6, *range(8, 21)], "no half of a row stays"
    assert numbers(other) == [*range(1, 21)]


def test_a_log_that_begins_late_keeps_no_row_of_another_run(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    oneproj.solve(problem(), steps=20, callbacks=CsvLog(file))

    class Late(CsvLog):
        tries = 0

        def begin(self, update: Update) -> None:
            self.tries += 1
            if self.tries < 5:
                raise OSError(28, "No space left on device")
            super().begin(update)

    with pytest.warns(oneproj.OneprojWarning, match="written at update 1: No space"):
        oneproj.solve(problem(), steps=20, callbacks=Late(file))
    assert numbers(file) == [*range(5, 21)]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("odd")])
def test_every_log_is_closed_whatever_one_of_them_raises(
    tmp_path: Path, error: Exception
) -> None:
    class Fails(AbstractLog):
        def write(self, update: Update) -> None: ...

        def close(self) -> None:
            raise error

    file = tmp_path / "run.csv"
    logs = [Fails(), CsvLog(file, every=7), lambda update: update.update == 12]
    with pytest.warns(oneproj.OneprojWarning, match="when the updates had ended"):
        solution = oneproj.solve(problem(), steps=20, callbacks=logs)
    assert solution.feasible
    assert numbers(file) == [7, 12]


@pytest.mark.parametrize("kind", [CsvLog, TensorBoardLog])
def test_a_place_without_room_for_a_log_is_refused_before_any_update(
    tmp_path: Path, kind: type[CsvLog | TensorBoardLog]
) -> None:
    (tmp_path / "file").touch()
    built, seen = problem(), list[Update]()
    logs = [seen.append, kind(tmp_path / "file" / "log")]
    with pytest.raises(
        oneproj.InvalidProblemError, match=r"Log\('.* cannot be written: Not a dir.*No"
    ):
        oneproj.solve(built, steps=20, callbacks=logs)
    assert seen == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_program_may_change_its_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read_saved: Callable[[Path], dict[str, Any]],
) -> None:
    def move(update: Update) -> None:
        if update.update == 10:
            monkeypatch.chdir(tmp_path / "b")

    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    logs = [CsvLog("run.csv"), move]
    oneproj.solve(problem(), steps=20, callbacks=logs, checkpoint="run.pt")
    assert numbers(tmp_path / "a" / "run.csv") == [*range(1, 21)]
    assert read_saved(tmp_path / "a" / "run.pt")["update"] == 20
    assert list((tmp_path / "b").iterdir()) == []


def test_rich_names_the_worst_constraint() -> None:
    console = pytest.importorskip("rich.console")
    stream = io.StringIO()
    log = RichLog(every=2, console=console.Console(file=stream, width=200))
    for k in range(1, 5):
        log(Update(k, 9, 0.5, {"a [bold]": 0.1 * k, "b": 0.25}, 0.1))
    log(Update(9, 9, 0.5, {}, 0.1, outer=3))
    assert stream.getvalue().splitlines() == [
        "update 2/9  objective 0.5  worst: b +2.50e-01  0.1 s",
        "update 4/9  objective 0.5  worst: a [bold] +4.00e-01  0.1 s",
        "update 9/9  objective 0.5  outer 3  0.1 s",
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    solution = oneproj.solve(
        problem(), steps=20, callbacks=TensorBoardLog(tmp_path, every=5)
    )
    events = EventAccumulator(str(tmp_path)).Reload()
    for tag, column in (("objective",) * 2, ("residual/size, in all", "size, in all")):
        points = [(event.step, event.value) for event in events.Scalars(tag)]
        expected = [
            (k, pytest.approx(solution.history[column][k - 1], rel=1e-6))
            for k in (5, 10, 15, 20)
        ]
        assert points == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_hides_the_points_of_an_earlier_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    oneproj.solve(problem(), steps=20, callbacks=TensorBoardLog(tmp_path))
    log = TensorBoardLog(tmp_path, every=5)
    for _ in range(2):
        oneproj.solve(problem(), steps=20, callbacks=[log, stop])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("objective")] == [5, 10, 13]


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (lambda: TensorBoardLog("logs"), "torch.utils.tensorboard", "tensorboard"),
        (RichLog, "rich.console", "progress"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, make: type, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(oneproj.OneprojError, match=rf"\"oneproj\[{extra}\]"):
        make()


@pytest.mark.parametrize("row", ["a,b\n", "\n", "1.5,2\n", "\udcff,1\n"])
def test_a_row_that_is_none_is_named(tmp_path: Path, row: str) -> None:
    file = tmp_path / "run.csv"
    oneproj.solve(problem(), steps=2, callbacks=CsvLog(file))
    with file.open("ab") as stream:
        stream.write(row.encode(errors="surrogateescape"))
    before = file.read_bytes()
    with pytest.raises(oneproj.InvalidProblemError, match="begins with no update"):
        oneproj.solve(problem(), steps=2, callbacks=CsvLog(file))
    assert file.read_bytes() == before


def test_logs_are_there_without_an_import_of_their_own() -> None:
    code = (
        "import sys, oneproj; oneproj.logs.CsvLog; "
        "loaded = {'rich', 'tensorboard'} & set(sys.modules); sys.exit(str(loaded))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stderr.strip() == "set()"


def test_a_callback_can_act_once_per_outer_iteration() -> None:
    seen: list[Update] = []
    oneproj.solve(problem(), steps=20, inner_steps=5, callbacks=seen.append)
    assert [u.update for u in seen if u.at_center] == [5, 10, 15, 20]
    assert [u.outer for u in seen if u.at_center] == [1, 2, 3, 4]
    seen.clear()
    oneproj.solve(problem(), steps=8, method="penalty-sgd", callbacks=seen.append)
    assert {(u.outer, u.at_center) for u in seen} == {(None, False)}
