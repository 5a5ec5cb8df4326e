"""``python -m benchmarks.rates.parity``: parity on Adult, against Fairlearn.

Both train a linear model on Adult's training rows, with a bound on how much more often
men are accepted than women, and are judged on its test rows. Fairlearn's
ExponentiatedGradient returns a mixture of models, drawn anew for every decision; its
numbers are expectations over the draw. Its bound is on the distance of each group from
all rows; with two groups their gap is at most twice as large, so it is given several.
Fairlearn and scikit-learn are not dependencies of this project.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import oneproj
from benchmarks.rates.adult import load_adult
from benchmarks.rates.problems import Instance, RateProblem, Table, build
from benchmarks.rates.problems import pairwise_parity as parity

RECORD = Path(__file__).parent / "parity.json"
GAPS = 0.01, 0.02, 0.05
SHARES = 0.5, 0.75, 1.0
"""Fairlearn's bound is each of these shares of the gap."""


class Judged(NamedTuple):
    """A classifier on some rows."""

    accuracy: float
    gap: float
    """How much more often one group is accepted than the other."""


def judge(accepted: Tensor, table: Table) -> Judged:
    """Judge probabilities of acceptance, which are 0 or 1 for a deterministic rule."""
    right = torch.where(table.y, accepted, 1.0 - accepted).mean()
    by_group = [accepted[table.group == k].mean() for k in (0, 1)]
    return Judged(float(right), abs(float(by_group[0] - by_group[1])))


def ours(gap: float, *, steps: int = 500, seed: int = 0) -> dict[str, Any]:
    """Solve with a bound on the counts' gap."""
    problem = RateProblem("adult", load_adult, parity(gap))
    instance: Instance = build(problem, seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oneproj.OneprojWarning)
        solution = oneproj.solve(
            instance.problem(), steps=steps, seed=seed, progress=False
        )
    seconds = time.perf_counter() - began
    with torch.no_grad():
        found = {
            part: judge((instance.model(t.x) > 0).float(), t)._asdict()
            for part in ("data", "test")
            for t in [load_adult(part)]
        }
    worst = max(solution.residuals.values())
    return {**found, "worst": worst, "seconds": seconds, "steps": steps}


def fairlearn(bound: float, *, seed: int = 0) -> dict[str, Any]:
    """Fit ExponentiatedGradient with logistic regression."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    train = load_adult()
    began = time.perf_counter()
    np.random.seed(seed)  # noqa: NPY002 - what Fairlearn draws from
    fitted = ExponentiatedGradient(
        LogisticRegression(max_iter=300), DemographicParity(difference_bound=bound)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(
            train.x.numpy(),
            train.y.numpy().astype(int),
            sensitive_features=train.group.numpy(),
        )
    seconds, found = time.perf_counter() - began, {}
    for part in ("data", "test"):
        table = load_adult(part)
        chances = fitted._pmf_predict(table.x.numpy())[:, 1]  # noqa: SLF001 - no public name
        found[part] = judge(torch.as_tensor(chances).float(), table)._asdict()
    return {**found, "seconds": seconds, "models": int((fitted.weights_ > 0).sum())}


def main() -> None:
    """Run what is not in the record, and show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fairlearn", action="store_true", help="run Fairlearn, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = arguments.record
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    jobs = [(f"oneproj {gap}, {arguments.steps} steps", gap, True) for gap in GAPS]
    if arguments.fairlearn:
        bounds = sorted({round(gap * share, 5) for gap in GAPS for share in SHARES})
        jobs += [(f"fairlearn {bound}", bound, False) for bound in bounds]
    for name, bound, own in jobs:
        if name not in record:
            steps = arguments.steps
            record[name] = ours(bound, steps=steps) if own else fairlearn(bound)
            path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    for name, row in record.items():
        train, test = Judged(**row["data"]), Judged(**row["test"])
        print(
            f"{name:28} train gap {train.gap:.4f} accuracy {train.accuracy:.4f}   "
            f"test gap {test.gap:.4f} accuracy {test.accuracy:.4f}"
        )


if __name__ == "__main__":
    main()
