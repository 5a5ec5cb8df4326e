"""Records that nobody ran: near the paper's numbers, with all that a page can meet."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oneproj_paper.experiments.record_schema import (
    CertificateRecord,
    CountsRecord,
    DataRecord,
    MeasureRecord,
    ProjectionRecord,
    Record,
)
from oneproj_paper.experiments.records import write_record
from oneproj_paper.report.published import RESULTS
from oneproj_paper.report.write import Report, write_report

MakeRecord = Callable[..., Record]
COUNTS = {
    "transfer-gaussian": ((40, 40), (500, 500), (500, 500), (1000, 1000)),
    "transfer-climsim": ((100, 100), (200, 200), (400, 400), (950, 950)),
    "abstention-gaussian": ((600, 600), (200, 200), (200, 200)),
    "abstention-climsim": ((6501, 343), (2147, 110), (2177, 95)),
    "abstention-nasa": ((28244, 1337), (9414, 446), (9415, 446)),
    "abstention-credit": ((12741, 1577), (4247, 525), (4248, 526)),
}
VARIABLES = {"abstention-gaussian": 8, "transfer-gaussian": 10, "abstention-nasa": 6}
HIDDEN: dict[str, list[int]] = {
    "transfer-climsim": [8],
    "abstention-climsim": [32, 16],
    "abstention-nasa": [8],
    "abstention-credit": [16, 8],
}
TARGETS = {"gaussian": 0.15, "climsim": 0.05, "nasa": 0.10, "credit": 0.20}


def history(names: list[str], caps: dict[str, float], updates: int) -> dict[str, Any]:
    """Curves that fall from 1 to their caps, a hair below after the projection."""
    marks = [*range(0, updates + 1, 25), updates]
    columns: dict[str, Any] = {"update": marks, "seconds": [m / 100 for m in marks]}
    for name in names:
        cap = caps.get(name, 0.3)
        fall = [cap + (1 - cap) * math.exp(-3 * m / updates) for m in marks[:-1]]
        columns[name] = [*fall, cap]
    return {name: tuple(float(v) for v in values) for name, values in columns.items()}


def settings_of(experiment: str, method: str) -> dict[str, Any]:
    """The part of the settings that the report reads."""
    row = RESULTS[experiment][method]
    task, _, data = experiment.partition("-")
    settings: dict[str, Any] = {
        "hidden": HIDDEN.get(experiment, []),
        "activation": "relu" if data == "credit" else "softplus",
        "thresholds": None,
        "slack": None,
        "target_error": None,
        "caps": {"source risk": 1 / math.sqrt(2 * COUNTS[experiment][-1][0])},
    }
    if task == "abstention":
        betas = [float(beta) for beta in row.thresholds.strip("()").split(",")]
        slack = [0.5 / math.sqrt(n) for n in COUNTS[experiment][0]]
        names = ("class 0 error", "class 1 error")
        caps = {n: b + e for n, b, e in zip(names, betas, slack, strict=True)}
        settings |= {"thresholds": betas, "slack": slack, "caps": caps}
        settings["target_error"] = TARGETS[data]
    return settings


def metrics_of(experiment: str, method: str, rng: random.Random) -> dict[str, float]:
    """One draw of every test metric around the paper's mean."""
    numbers = RESULTS[experiment][method].numbers
    draw = {key: rng.gauss(p.mean, p.sd) for key, p in numbers.items()}
    if experiment.startswith("transfer-"):
        return {"error": draw["target error"] / 100, "risk": draw["target risk"]}
    keys = ("class 0 error", "class 1 error", "ambiguity", "decided accuracy")
    return {key.replace(" ", "_"): draw[key] / 100 for key in keys}


def make_record(
    experiment: str = "abstention-gaussian",
    method: str = "one-projection",
    seed: int = 0,
    *,
    preset: str = "paper",
    projector: str = "augmented-lagrangian",
    **changes: Any,  # noqa: ANN401 - fields of a record
) -> Record:
    """A record near the paper's numbers; the seed moves it."""
    rng = random.Random(f"{experiment} {method} {seed}")  # noqa: S311
    task = experiment.partition("-")[0]
    settings = settings_of(experiment, method)
    caps = settings["caps"]
    row = RESULTS[experiment][method]
    updates = int(row.updates.replace(",", ""))
    parts = ("train", "validation", "test", "source")
    metrics = metrics_of(experiment, method, rng)
    names = ["objective", *caps, *(["validation risk"] if task == "transfer" else [])]
    residuals = dict.fromkeys(caps, -1e-9)
    record = Record(
        experiment=experiment,
        preset=preset,  # type: ignore[arg-type]
        method=method,  # type: ignore[arg-type]
        projector=projector,
        seed=seed,
        task=task,  # type: ignore[arg-type]
        settings=settings,
        data=DataRecord(
            stand_in=False,
            note="",
            variables=VARIABLES.get(experiment, 11 if "credit" in experiment else 124),
            inputs=10,
            parameters=100,
            counts=dict(zip(parts, COUNTS[experiment], strict=False)),
        ),
        status="feasible",
        feasible=True,
        objective=0.3,
        residuals=residuals,
        residuals_before=dict.fromkeys(caps, 0.02),
        risks={name: cap - 1e-9 for name, cap in caps.items()},
        metrics=dict.fromkeys(parts[:3], metrics),
        certificate=CertificateRecord(
            (MeasureRecord("KKT residual", 0.01, None, None, "", 0.0),), {}, holds=True
        ),
        projection=ProjectionRecord(0.1, 8, 1e-9),
        counts=CountsRecord(updates, updates, 30, 1),
        updates=updates,
        planned_updates=updates,
        complete=True,
        seconds={"train": 1.0, "project": 0.1},
        runtime=max(0.01, rng.gauss(row.numbers["runtime"].mean, 0.1)),
        extrapolated_from=None,
        history=history(names, caps, updates),
        command=f"oneproj-paper reproduce {experiment} --preset {preset} --seeds 10",
        versions={"oneproj": "0.1.0", "python": "3.11.9", "torch": "2.13.0"},
        machine={"processor": "a processor", "cores": 2, "threads": 1},
    )
    return replace(record, **changes)


def cut(record: Record, updates: int) -> Record:
    """The same run, stopped on purpose: its runtime is extrapolated."""
    keep = [i for i, u in enumerate(record.history["update"]) if u <= updates]
    curves = {k: tuple(v[i] for i in keep) for k, v in record.history.items()}
    return replace(
        record,
        updates=updates,
        complete=False,
        extrapolated_from=updates,
        history=curves,
    )


def standing_in(record: Record) -> Record:
    """The same run on data that stand in for the paper's."""
    note = "A sample of the same shape from a simulator."
    return replace(record, data=replace(record.data, stand_in=True, note=note))


def make_records(
    names: tuple[str, ...] = tuple(RESULTS), seeds: int = 2
) -> list[Record]:
    """Both methods, ClimSim as a stand-in, NASA's slow runs cut, our preset too."""
    records = []
    for name in names:
        for seed in range(seeds):
            one = make_record(name, seed=seed)
            two = make_record(name, "projected-sgd", seed)
            own = make_record(name, seed=seed, preset="oneproj", projector="cuts")
            fast = make_record(name, "projected-sgd", seed, projector="cuts")
            slow = cut(two, 50) if "nasa" in name else two
            runs = [one, slow, own, fast]
            records += map(standing_in, runs) if "climsim" in name else runs
    return records


def write_all(records: list[Record], folder: Path) -> Path:
    for record in records:
        write_record(record, folder)
    return folder


@pytest.fixture(name="make_record", scope="session")
def fixture_make_record() -> MakeRecord:
    return make_record


@pytest.fixture(name="cut", scope="session")
def fixture_cut() -> Callable[[Record, int], Record]:
    return cut


@pytest.fixture(name="standing_in", scope="session")
def fixture_standing_in() -> Callable[[Record], Record]:
    return standing_in


@pytest.fixture(scope="session")
def records() -> list[Record]:
    """Of half the experiments: the page then has gaps to speak of."""
    return make_records(("transfer-gaussian", "transfer-climsim", "abstention-nasa"))


@pytest.fixture(scope="session")
def written(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    write_all(records, folder / "runs")
    return write_report(folder / "runs", folder / "page" / "report.html")
