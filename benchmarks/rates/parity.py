"""``python -m benchmarks.rates.parity``: parity on Adult, against Fairlearn.

Both train the same kind of model on two thirds of Adult, with a bound on how much a
rate may differ between men and women, and are judged on the other third. Split 0 is the
data's own; others are drawn from all rows. Fairlearn's ExponentiatedGradient returns a
mixture of models, drawn anew for every decision; its numbers are expectations over the
draw. Its bound is on the distance of each group from all rows, so that its gaps are not
its bounds: it is given several, and its accuracy at the test gap of ours is read off
the line through its points. Fairlearn is not a dependency of this project.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.rates.adult import load_adult
from benchmarks.rates.problems import Table
from oneproj.learn import FairClassifier

RECORD = Path(__file__).parent / "parity.json"
SPLITS = 5
MODELS: dict[str, tuple[int, ...] | None] = {"linear": None, "network": (32,)}


class Bounds(NamedTuple):
    """What is run for one notion of parity."""

    ours: tuple[float, ...]
    fairlearn: tuple[float, ...]


BOUNDS = {
    "demographic_parity": Bounds(
        (0.01, 0.02, 0.05), (0.003, 0.0067, 0.014, 0.025, 0.04)
    ),
    "equal_opportunity": Bounds((0.05,), (0.005, 0.02, 0.04)),
    "equalized_odds": Bounds((0.05,), (0.01, 0.02, 0.035)),
}
CLASSES: dict[str, tuple[int, ...]] = {
    "demographic_parity": (),
    "equal_opportunity": (1,),
    "equalized_odds": (0, 1),
}
"""The classes whose rates are compared; of all rows where there is none."""


class Judged(NamedTuple):
    """A classifier on some rows."""

    accuracy: float
    gap: float
    """The largest difference of a rate between the groups."""


class Split(NamedTuple):
    """Rows to train on and rows to judge by."""

    train: Table
    test: Table


def split(seed: int) -> Split:
    """Divide Adult: as it comes for 0, else at random, into parts of the same size."""
    train, test = load_adult(), load_adult("test")
    if seed == 0:
        return Split(train, test)
    x, y = torch.cat([train.x, test.x]), torch.cat([train.y, test.y])
    group = torch.cat([train.group, test.group])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    parts = order[: len(train.x)], order[len(train.x) :]
    return Split(*(Table(x[at], y[at], group[at]) for at in parts))


def judge(accepted: np.ndarray[Any, Any], table: Table, kind: str) -> Judged:
    """Judge probabilities of acceptance, which are 0 or 1 for a deterministic rule."""
    y, group = table.y.numpy(), table.group.numpy()
    rows = [y == k for k in CLASSES[kind]] or [np.ones_like(y)]
    gaps = [
        abs(accepted[of & (group == 0)].mean() - accepted[of & (group == 1)].mean())
        for of in rows
    ]
    right = np.where(y, accepted, 1.0 - accepted).mean()
    return Judged(float(right), float(max(gaps)))


def ours(kind: str, model: str, bound: float, of: Split) -> dict[str, Any]:
    """Fit ``FairClassifier`` with its defaults, on all training rows."""
    fitted = FairClassifier(
        kind,  # type: ignore[arg-type]  # a key of BOUNDS
        bound,
        model=MODELS[model],
        validation_fraction=0,
        random_state=0,
    )
    row = _fit(fitted.fit, lambda x: fitted.predict(x).astype(float), kind, of)
    return {**row, "worst": max(fitted.solution_.residuals.values())}


def fairlearn(kind: str, model: str, bound: float, of: Split) -> dict[str, Any]:
    """Fit ExponentiatedGradient with scikit-learn's logistic regression or network."""
    from fairlearn import reductions
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    constraint = {
        "demographic_parity": reductions.DemographicParity,
        "equal_opportunity": reductions.TruePositiveRateParity,
        "equalized_odds": reductions.EqualizedOdds,
    }[kind](difference_bound=bound)
    network = MLPClassifier(MODELS["network"], batch_size=256, max_iter=10)
    base = LogisticRegression(max_iter=300) if model == "linear" else network
    np.random.seed(0)  # noqa: NPY002 - what Fairlearn and scikit-learn draw from
    fitted = reductions.ExponentiatedGradient(base, constraint)

    def accepted(x: object) -> Any:  # noqa: ANN401 - an array
        return fitted._pmf_predict(x)[:, 1]  # noqa: SLF001 - no public name

    row = _fit(fitted.fit, accepted, kind, of)
    return {**row, "models": int((fitted.weights_ > 0).sum())}


def _fit(
    fit: Callable[..., object],
    accepted: Callable[[Any], np.ndarray[Any, Any]],
    kind: str,
    of: Split,
) -> dict[str, Any]:
    """Fit on the training rows, take the processor's time, and judge."""
    x, y = of.train.x.numpy(), of.train.y.numpy().astype(int)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(x, y, sensitive_features=of.train.group.numpy())
    seconds = time.process_time() - began
    found = {
        part: judge(accepted(table.x.numpy()), table, kind)._asdict()
        for part, table in of._asdict().items()
    }
    return {**found, "seconds": seconds}


class Job(NamedTuple):
    """One fit, and its key in the record."""

    kind: str
    model: str
    seed: int
    tool: str
    bound: float

    @property
    def key(self) -> str:
        """Words, for the record."""
        return f"{self.kind}, {self.model}, split {self.seed}, {self.tool} {self.bound}"


def jobs(models: list[str], splits: int) -> Iterator[Job]:
    """Every fit that the table needs, split by split."""
    for model in models:
        for seed in range(splits):
            for kind, bounds in BOUNDS.items():
                for tool, each in bounds._asdict().items():
                    yield from (Job(kind, model, seed, tool, bound) for bound in each)


def show(record: dict[str, Any]) -> str:
    """Our accuracy beside Fairlearn's at the same test gap, over the splits."""
    head = (
        f"{'':40} {'test gap':>8} {'ours':>7} {'Fairlearn':>9} {'difference':>18} "
        f"{'seconds':>8} {'Fairlearn':>9} {'worst count':>11}"
    )
    lines = [head]
    for model in MODELS:
        for kind, bounds in BOUNDS.items():
            for bound in bounds.ours:
                found = _compared(record, kind, model, bound)
                if not found:
                    continue
                gap, own, other, seconds, theirs, worst = zip(*found, strict=True)
                away = [a - b for a, b in zip(own, other, strict=True)]
                lines.append(
                    f"{kind} {bound}, {model}, {len(found)} splits".ljust(40)
                    + f" {statistics.fmean(gap):8.4f} {statistics.fmean(own):7.4f} "
                    f"{statistics.fmean(other):9.4f} {statistics.fmean(away):+10.4f} "
                    f"+- {_standard_error(away):.4f} {statistics.fmean(seconds):8.1f} "
                    f"{statistics.fmean(theirs):9.1f} {max(worst):11.1e}"
                )
    return "\n".join(lines)


def _compared(
    record: dict[str, Any], kind: str, model: str, bound: float
) -> list[tuple[float, ...]]:
    """Of each split that is complete: gap, both accuracies, both times, worst count."""
    found: list[tuple[float, ...]] = []
    for seed in range(SPLITS):
        row = record.get(Job(kind, model, seed, "ours", bound).key)
        curve = [
            record.get(Job(kind, model, seed, "fairlearn", b).key)
            for b in BOUNDS[kind].fairlearn
        ]
        if row is None or None in curve:
            continue
        points = sorted((r["test"]["gap"], r["test"]["accuracy"]) for r in curve if r)
        gaps, right = np.array(points).T
        gap = row["test"]["gap"]
        other = float(np.interp(gap, gaps, right))
        seconds = statistics.fmean(r["seconds"] for r in curve if r)
        own = row["test"]["accuracy"]
        found.append((gap, own, other, row["seconds"], seconds, row["worst"]))
    return found


def _standard_error(values: list[float]) -> float:
    if len(values) == 1:
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def main() -> None:
    """Run what is not in the record, and show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", default="", help="part of the names of the fits")
    parser.add_argument("--show", action="store_true", help="only show the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = arguments.record
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for job in jobs(arguments.models, arguments.splits):
        if arguments.show or job.key in record or arguments.only not in job.key:
            continue
        run = ours if job.tool == "ours" else fairlearn
        record[job.key] = run(job.kind, job.model, job.bound, split(job.seed))
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(job.key, record[job.key], flush=True)
    print(show(record))


if __name__ == "__main__":
    main()
