"""``oneproj reproduce``: what it prints, and what its exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneproj.cli import app
from oneproj.experiments import specs, sweep
from oneproj.experiments.plan import Job
from oneproj.experiments.records import Record, read_folder

SMALL = ("abstention-gaussian", "--preset", "oneproj", "--seeds", "2")


@pytest.fixture(autouse=True)
def few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "STEPS", 20)
    monkeypatch.setattr(specs, "SHIPPED", None)


def reproduce(out: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(out)])
    return result.exit_code, result.output


def test_a_line_for_every_run_then_a_table_and_the_folder(tmp_path: Path) -> None:
    code, output = reproduce(tmp_path, *SMALL)
    assert code == 0, output
    assert output.count("feasible, ") == 4  # two methods, two seeds
    assert "ambiguity (%)" in output
    assert "2 of 2" in output
    assert "target error" not in output
    assert f"Records: {tmp_path} (4 new, 0 kept)" in output
    code, output = reproduce(tmp_path, *SMALL)
    assert (code, output.count("feasible, ")) == (0, 0)
    assert f"Records: {tmp_path} (0 new, 4 kept)" in output


def test_method_and_projector_can_be_chosen(tmp_path: Path) -> None:
    chosen = ("--method", "projected-sgd", "--projector", "dual-bisection")
    assert reproduce(tmp_path, *SMALL, *chosen)[0] == 0
    records = read_folder(tmp_path).records
    found = {(record.method, record.projector) for record in records}
    assert found == {("projected-sgd", "dual-bisection")}


def test_both_presets_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def note(jobs: list[Job], *_: object, **__: object) -> int:
        asked.extend(job.key[1:4] for job in jobs)
        return 0

    monkeypatch.setattr("oneproj.experiments.reproduce.sweep", note)
    assert reproduce(tmp_path, "abstention-gaussian", "--seeds", "1")[0] == 0
    assert asked == [
        ("paper", "one-projection", "dual-bisection"),
        ("paper", "projected-sgd", "dual-bisection"),
        ("oneproj", "one-projection", "cuts"),
        ("oneproj", "projected-sgd", "cuts"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abstention-mars",), "There is no experiment 'abstention-mars'"),
        (("abstention-nasa", "--projector", "dual-bisection"), "convex constraints"),
    ],
)
def test_what_makes_no_sense_is_said_in_words(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, output = reproduce(tmp_path, *arguments)
    assert code == 1
    assert message in output


def test_a_damaged_record_is_named_kept_and_made_again(tmp_path: Path) -> None:
    chosen = (*SMALL, "--method", "one-projection")
    assert reproduce(tmp_path, *chosen)[0] == 0
    path = next(tmp_path.rglob("seed-0001.json"))
    path.write_text("{")
    code, output = reproduce(tmp_path, *chosen)
    assert code == 0, output
    assert f"{path} is truncated or damaged" in output
    assert f"It is now {path}.damaged." in output
    assert f"Records: {tmp_path} (1 new, 1 kept)" in output
    assert path.with_name("seed-0001.json.damaged").read_text() == "{"
    code, output = reproduce(tmp_path, *chosen)
    assert "It is now" not in output


def test_ctrl_c_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run", interrupted)
    code, output = reproduce(tmp_path, *SMALL)
    assert code == 130
    assert "The same command continues" in output


def test_a_folder_that_cannot_be_written_is_found_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "run", pytest.fail)
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "deep", Path("/proc/oneproj")):
        code, output = reproduce(place, *SMALL)
        assert code == 1
        assert f"Records cannot be written to {place}" in output


def test_a_disk_that_fills_up_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sweep.write_record

    def full(record: Record, folder: Path) -> Path:
        if record.seed == 1:
            raise OSError(28, "No space left on device")
        return write(record, folder)

    monkeypatch.setattr(sweep, "write_record", full)
    code, output = reproduce(tmp_path, *SMALL, "--method", "one-projection")
    assert code == 1
    assert "No space left on device. Those that are there stay." in output
    assert len(list(tmp_path.rglob("seed-*.json"))) == 1
