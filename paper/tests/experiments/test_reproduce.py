"""Many runs: the same numbers whoever computes, and nothing is done twice or lost."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import joblib
import pytest

from oneproj.errors import OneprojError
from oneproj_paper.data import find
from oneproj_paper.errors import DataNotFoundError, RecordError
from oneproj_paper.experiments import reproduce as module
from oneproj_paper.experiments import specs, sweep
from oneproj_paper.experiments.plan import Job
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.records import from_json, read_folder, to_json
from oneproj_paper.experiments.reproduce import Reproduction, reproduce
from oneproj_paper.experiments.sweep import RunLocks

EXPERIMENT = "abstention-gaussian"
TIMES = ("seconds", "runtime", "machine")


@pytest.fixture(autouse=True)
def few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the library's own preset have 20 updates, not those of a calibration.

    Workers are told.
    """
    monkeypatch.setattr(specs, "STEPS", 20)
    monkeypatch.setattr(specs, "SHIPPED", None)


def make(out: Path, seeds: int = 3, **options: Any) -> Reproduction:  # noqa: ANN401
    given: dict[str, Any] = {
        "experiments": [EXPERIMENT],
        "seeds": seeds,
        "presets": ["oneproj"],
        "methods": ["one-projection"],
    }
    return reproduce(**(given | options), out=out)


def numbers(record: Record) -> dict[str, Any]:
    """All but the times."""
    plain = dataclasses.asdict(record)
    plain["history"] = {k: v for k, v in record.history.items() if k != "seconds"}
    return {name: value for name, value in plain.items() if name not in TIMES}


def test_no_more_processes_start_than_runs_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary, asked = joblib.Parallel, []

    def parallel(**settings: Any) -> Any:  # noqa: ANN401
        asked.append(settings["n_jobs"])
        return ordinary(**settings)

    monkeypatch.setattr(joblib, "Parallel", parallel)
    assert make(tmp_path, seeds=1, jobs=500).made == 1
    assert asked == [1]


@pytest.mark.parametrize("progress", [True, False])
def test_one_bar_is_shown_or_a_line_for_every_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, progress: bool
) -> None:
    lines: list[str] = []
    make(tmp_path, seeds=2, progress=progress, say=lines.append)
    shown = capfd.readouterr().err
    assert len(lines) == (0 if progress else 2)
    assert ("runs" in shown and "100%" in shown) is progress


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Records of three seeds, made one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs, "STEPS", 20)
        patch.setattr(specs, "SHIPPED", None)
        out = tmp_path_factory.mktemp("whole")
        assert make(out, jobs=1).made == 3
        yield out


def check_same(out: Path, whole: Path) -> None:
    made, expected = read_folder(out).records, read_folder(whole).records
    assert [numbers(record) for record in made] == [numbers(r) for r in expected]


def test_two_processes_make_the_same_numbers(tmp_path: Path, whole: Path) -> None:
    assert make(tmp_path, jobs=2).made == 3
    check_same(tmp_path, whole)


def test_a_dask_cluster_makes_the_same_numbers(tmp_path: Path, whole: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        assert make(tmp_path).made == 3
    check_same(tmp_path, whole)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # threads are about
def test_a_backend_without_a_stream_of_results_will_do(
    tmp_path: Path, whole: Path
) -> None:
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        assert make(tmp_path).made == 3
    check_same(tmp_path, whole)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    assert make(tmp_path, seeds=1).made == 1
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.json")}
    again = make(tmp_path, seeds=2)
    assert (again.made, len(again.records)) == (1, 2)
    assert all(path.read_bytes() == text for path, text in before.items())


def test_a_crash_keeps_what_is_finished(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sweep.write_record

    def crash(record: Record, folder: Path) -> Path:
        if record.seed == 1:
            message = "power cut"
            raise RuntimeError(message)
        return write(record, folder)

    monkeypatch.setattr(sweep, "write_record", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        make(tmp_path)
    assert [record.seed for record in read_folder(tmp_path).records] == [0]
    monkeypatch.undo()
    monkeypatch.setattr(specs, "STEPS", 20)
    monkeypatch.setattr(specs, "SHIPPED", None)
    assert make(tmp_path).made == 2
    check_same(tmp_path, whole)


def test_a_run_that_fails_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sweep.run

    def fail(spec: specs.Spec, seed: int, **options: Any) -> Record:  # noqa: ANN401
        if seed == 1:
            message = "no luck"
            raise RuntimeError(message)  # any error, not only ours
        return run(spec, seed, **options)

    monkeypatch.setattr(sweep, "run", fail)
    lines: list[str] = []
    with pytest.raises(OneprojError, match=r"1 of 3 runs failed(.|\n)*no luck"):
        make(tmp_path, say=lines.append)
    assert [record.seed for record in read_folder(tmp_path).records] == [0, 2]
    assert [line for line in lines if line.startswith("failed")] == [
        "failed: abstention-gaussian oneproj one-projection cuts seed 1"
    ]


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:100], lambda _: "[1]", lambda text: text.replace("seed", "s")],
    ids=["truncated", "no record", "wrong shape"],
)
def test_a_damaged_record_is_set_aside_and_made_again(
    tmp_path: Path, whole: Path, damage: Callable[[str], str]
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    path = next(tmp_path.rglob("seed-0001.json"))
    text = damage(path.read_text())
    path.write_text(text)
    lines: list[str] = []
    again = make(tmp_path, say=lines.append)
    assert (again.made, len(again.records)) == (1, 3)
    assert [each.place.name for each in again.damaged] == ["seed-0001.json"]
    assert any(str(path) in line and "It is now" in line for line in lines)
    check_same(tmp_path, whole)
    (aside,) = tmp_path.rglob("*.damaged")
    assert aside.read_text() == text  # nothing is deleted
    assert make(tmp_path).damaged == ()


def test_a_damaged_record_of_another_run_stays_and_is_named(
    tmp_path: Path, whole: Path
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    path = next(tmp_path.rglob("seed-0002.json"))
    path.write_text("{")
    lines: list[str] = []
    done = make(tmp_path, seeds=2, say=lines.append)
    assert (done.made, len(done.records), len(done.damaged)) == (0, 2, 1)
    assert path.read_text() == "{"
    (line,) = lines
    assert line.startswith(f"{path} is truncated or damaged")
    assert line.endswith("its run is not asked for.")


def test_a_damaged_record_stays_where_its_run_cannot_be_made(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    first, second = (next(tmp_path.rglob(f"seed-000{n}.json")) for n in (0, 1))
    first.write_text("{")
    record = from_json(second.read_text())
    newer = dict(record.versions) | {"oneproj": f"9.{record.versions['oneproj']}"}
    second.write_text(to_json(dataclasses.replace(record, versions=newer)))
    monkeypatch.setattr(sweep, "run", pytest.fail)
    with pytest.raises(RecordError, match=r"made with oneproj 9\."):
        make(tmp_path)
    assert first.read_text() == "{"


def test_records_of_other_data_are_not_mixed(tmp_path: Path) -> None:
    make(tmp_path, seeds=1)
    (path,) = tmp_path.rglob("*.json")
    record = from_json(path.read_text())
    other = dataclasses.replace(record.data, stand_in=not record.data.stand_in)
    path.write_text(to_json(dataclasses.replace(record, data=other)))
    with pytest.raises(RecordError, match="was made of other data"):
        make(tmp_path, seeds=2)


def test_records_of_other_settings_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, seeds=1)
    monkeypatch.setattr(specs, "STEPS", 30)
    with pytest.raises(RecordError, match="updates = 20, now 30"):
        make(tmp_path, seeds=2)


def test_what_is_cut_is_completed_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs.Spec, "is_slow", property(lambda _: True))
    cut = make(tmp_path, extrapolate_from=5)
    assert [record.extrapolated_from for record in cut.records] == [5]
    whole = make(tmp_path, extrapolate_from=0, seeds=2)
    assert [record.extrapolated_from for record in whole.records] == [None, None]
    kept = make(tmp_path, extrapolate_from=5)
    assert (kept.made, kept.records[0].complete) == (0, True)


@pytest.fixture
def without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "not here; run `oneproj-paper data prepare nasa`"
        raise DataNotFoundError(message)

    settings = dataclasses.replace(module.PAPER["abstention-nasa"], load=refuse)
    few = {"abstention-nasa": settings, EXPERIMENT: module.PAPER[EXPERIMENT]}
    monkeypatch.setattr(module, "PAPER", few)
    monkeypatch.setenv(find.VARIABLE, str(tmp_path))


@pytest.mark.usefixtures("without_data")
def test_without_its_data_an_experiment_is_skipped(tmp_path: Path) -> None:
    lines: list[str] = []
    done = make(tmp_path, 1, experiments=None, say=lines.append)
    assert [record.experiment for record in done.records] == [EXPERIMENT]
    assert list(done.skipped) == ["abstention-nasa"]
    assert any("skipped: not here; run `oneproj-paper data" in line for line in lines)


@pytest.mark.usefixtures("without_data")
def test_without_its_data_a_named_experiment_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="oneproj-paper data prepare"):
        make(tmp_path, experiments=["abstention-nasa", EXPERIMENT])
    assert not list(tmp_path.rglob("*.json"))


def test_records_are_json_that_others_can_read(whole: Path) -> None:
    for path in whole.rglob("*.json"):
        plain = json.loads(path.read_text(), parse_constant=pytest.fail)
        assert plain["format"] == 2
        assert "--seeds 3" in plain["command"]


def test_a_job_is_known_by_its_spec_and_seed() -> None:
    spec = specs.make_spec(EXPERIMENT, "paper", "one-projection")
    assert Job(spec, 3, None, "").key == spec.key(3)


def test_a_run_that_another_process_made_meanwhile_is_not_made_again(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = sweep.run, []

    def meet(spec: specs.Spec, seed: int, **options: Any) -> Record:  # noqa: ANN401
        made.append(seed)
        shutil.copytree(whole, tmp_path, dirs_exist_ok=True)  # the other's
        return run(spec, seed, **options)

    monkeypatch.setattr(sweep, "run", meet)
    lines: list[str] = []
    done = make(tmp_path, say=lines.append)
    assert (made, done.made, len(done.records)) == ([0], 1, 3)
    assert sum(line.startswith("made by another process") for line in lines) == 2
    check_same(tmp_path, whole)


def test_a_run_that_another_process_makes_is_waited_for(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = specs.make_spec(EXPERIMENT, "oneproj", "one-projection")
    other = RunLocks(tmp_path)
    assert other.acquire(spec.key(0))
    assert other.acquire(spec.key(2))
    looks: list[float] = []

    def meanwhile(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:  # one is finished, the other came to nothing
            done = read_folder(whole).records[0]
            sweep.write_record(done, tmp_path)
            other.release(spec.key(0))
        other.release(spec.key(2))

    monkeypatch.setattr(sweep.time, "sleep", meanwhile)
    lines: list[str] = []
    assert make(tmp_path, say=lines.append).made == 2
    seeds = [line.partition(":")[0][-1] for line in lines if "feasible" in line]
    assert (seeds, looks) == (["1", "2"], [sweep.PERIOD])
    check_same(tmp_path, whole)
    assert not list(tmp_path.rglob(".*.lock"))


def test_a_disk_without_locks_makes_the_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    assert make(tmp_path, seeds=2).made == 2
