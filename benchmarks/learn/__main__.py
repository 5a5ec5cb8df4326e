"""``python -m benchmarks.learn``: do promises for new rows hold, and at what price?

A table is drawn again and again, fitted, and judged on the truth: 100,000 new rows for
generated tables, all rows that were not drawn for Adult. Counted is the share of fits
that exceed what they promised, which may be 1 - confidence. The price is the share of
positives missed, or of rows without a label:

- Neyman-Pearson: against the umbrella algorithm (Tong, Feng and Li 2018), a logistic
  regression with an order statistic of held-out negatives for a threshold.
- Abstention: against MAPIE's risk control of both class errors, with a logistic
  regression and a grid of threshold pairs. MAPIE errs less than it may, so our scores
  are also cut where both classes err, on the truth, exactly as often as MAPIE.

The logistic regressions hold out the same rows as our estimators, and get the columns
as these scale them: a column with two values is left alone. MAPIE is not a dependency
of this project. Results are kept in a record, so that a run can be continued.
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
from scipy import stats
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.rates.adult import adult_folder, load_adult
from oneproj.learn import AbstainingClassifier, NeymanPearsonClassifier
from oneproj.rates import neyman_pearson_threshold

Array = np.ndarray[Any, Any]
RECORD = Path(__file__).parent / "record.json"
CONFIDENCE = 0.95
ALPHAS = 0.01, 0.05, 0.1
GRID = 12
"""Values of each of the two thresholds that MAPIE may choose from: pairs are tested."""


class Draw(NamedTuple):
    """Rows to fit, and rows that stand for all others."""

    X: Array
    y: Array
    others: Array
    labels: Array


def generated(seed: int) -> Draw:
    """1,600 rows of two normal classes, the second of a larger spread."""
    rng = np.random.default_rng(seed)

    def rows(n: int) -> tuple[Array, Array]:
        y = np.arange(n) % 2
        spread = np.where(y == 1, 1.5, 1.0)[:, None]
        X = rng.normal(size=(n, 6)) * spread
        X[:, :3] += np.outer(y, [1.2, 0.8, 0.4])
        return X, y

    return Draw(*rows(1600), *rows(100_000))


def adult(seed: int) -> Draw:
    """4,000 rows of Adult; all others for truth."""
    parts = load_adult(), load_adult("test")
    X = torch.cat([part.x for part in parts]).double().numpy()
    y = torch.cat([part.y for part in parts]).numpy().astype(int)
    order = np.random.default_rng(seed).permutation(len(y))
    drawn, others = order[:4000], order[4000:]
    return Draw(X[drawn], y[drawn], X[others], y[others])


TABLES: dict[str, Callable[[int], Draw]] = {"generated": generated, "adult": adult}


def neyman_pearson(draw: Draw, alpha: float, seed: int) -> dict[str, list[float]]:
    """Error of the negatives and misses, of ours and of the umbrella algorithm."""
    clf = NeymanPearsonClassifier(alpha, CONFIDENCE, random_state=seed)
    clf.fit(draw.X, draw.y)
    held_out = _held_out(clf) & (draw.y == 0)
    base = _base(draw, held_out)
    negatives = base.decision_function(draw.X[held_out])
    cut = neyman_pearson_threshold(negatives, alpha, CONFIDENCE)
    return {
        "ours": _errors(clf.predict(draw.others), draw.labels),
        "umbrella": _errors(base.decision_function(draw.others) > cut, draw.labels),
    }


def abstention(draw: Draw, alpha: float, seed: int) -> dict[str, list[float]]:
    """Both class errors and the share without a label, of ours and of MAPIE."""
    clf = AbstainingClassifier(alpha, CONFIDENCE, random_state=seed)
    clf.fit(draw.X, draw.y)
    mapie = _abstained(_mapie(draw, alpha, _held_out(clf)), draw.labels)
    return {
        "ours": _abstained(clf.predict(draw.others), draw.labels),
        "mapie": mapie,
        "ours at mapie's errors": _at_errors(clf, draw, mapie[:2]),
    }


def _at_errors(
    clf: AbstainingClassifier, draw: Draw, errors: list[float]
) -> list[float]:
    """Our scores with thresholds at which each class errs as often as asked."""
    scores, y = clf.class_scores(draw.others), draw.labels
    own = [np.sort(scores[y == j, j]) for j in range(2)]
    # A row is refused below the cut: as many rows as there are errors lie below it.
    cuts = [s[round(e * len(s))] for s, e in zip(own, errors, strict=True)]
    nearest = (scores - cuts).argmax(axis=1)
    return _abstained(np.where((scores >= cuts).all(axis=1), -1, nearest), y)


def _held_out(clf: NeymanPearsonClassifier | AbstainingClassifier) -> Array:
    """The rows that our estimator held out, for the others to hold out as well."""
    kept = clf._kept_out  # noqa: SLF001 - nobody else needs it
    held_out: Array = np.zeros(0, bool) if kept is None else kept[1].numpy()
    return held_out


def _base(draw: Draw, held_out: Array) -> Any:  # noqa: ANN401 - a Pipeline
    """A logistic regression of the rows that are not held out."""
    many = [k for k, column in enumerate(draw.X.T) if len(np.unique(column)) > 2]  # noqa: PLR2004 - one-hot columns have two values
    scaled = make_column_transformer((StandardScaler(), many), remainder="passthrough")
    base = make_pipeline(scaled, LogisticRegression(max_iter=1000))
    return base.fit(draw.X[~held_out], draw.y[~held_out])


def _mapie(draw: Draw, alpha: float, held_out: Array) -> Array:
    """Labels of new rows by MAPIE's risk control, -1 where it abstains."""
    from mapie.risk_control import (
        BinaryClassificationController,
        BinaryRisk,
        abstention_rate,
        false_positive_rate,
    )

    base = _base(draw, held_out)
    misses = BinaryRisk(
        risk_occurrence=lambda _, predicted: predicted == 0,
        risk_condition=lambda y, _: y == 1,
        higher_is_better=False,
    )

    def decide(X: Array, low: float, high: float) -> Array:
        chance = base.predict_proba(X)[:, 1]
        return np.where(chance > high, 1.0, np.where(chance < low, 0.0, np.nan))

    cuts = np.quantile(  # of rows that the thresholds are not tested on
        base.predict_proba(draw.X[~held_out])[:, 1], np.linspace(0.02, 0.98, GRID)
    )
    pairs = np.array([(low, high) for low in cuts for high in cuts if low <= high])
    controller = BinaryClassificationController(
        decide,
        risk=[false_positive_rate, misses],
        target_level=[alpha, alpha],
        confidence_level=CONFIDENCE,
        best_predict_param_choice=abstention_rate,
        list_predict_params=pairs,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        controller.calibrate(draw.X[held_out], draw.y[held_out])
        if controller.best_predict_param is None:
            return np.full(len(draw.labels), -1)
        found = controller.predict(draw.others)
    return np.where(np.isnan(found), -1, found)


def _errors(positive: Array, y: Array) -> list[float]:
    flagged = positive.astype(bool)
    return [float(flagged[y == 0].mean()), float((~flagged[y == 1]).mean())]


def _abstained(labels: Array, y: Array) -> list[float]:
    errors = [float((labels[y == j] == 1 - j).mean()) for j in (0, 1)]
    return [*errors, float((labels == -1).mean())]


RUNS: dict[str, tuple[Callable[..., dict[str, list[float]]], tuple[float, ...]]] = {
    "neyman-pearson": (neyman_pearson, ALPHAS),
    "abstention": (abstention, (0.05, 0.1)),
}


def interval(failures: int, draws: int) -> tuple[float, float]:
    """The exact 95 % interval of a probability."""
    low = stats.beta.ppf(0.025, failures, draws - failures + 1) if failures else 0.0
    all_failed = failures == draws
    high = 1.0 if all_failed else stats.beta.ppf(0.975, failures + 1, draws - failures)
    return float(low), float(high)


def show(record: dict[str, Any]) -> str:
    """The share of broken promises, and the price, of every setting."""
    lines = []
    for name, draws in record.items():
        if not draws:
            continue
        *_, alpha = name.split(" ")
        for tool in next(iter(draws.values())):
            rows = [draw[tool] for draw in draws.values()]
            promised = 1 if "neyman" in name else 2
            failed = sum(max(row[:promised]) > float(alpha) for row in rows)
            low, high = interval(failed, len(rows))
            price = [row[-1] for row in rows]
            error = statistics.pstdev(price) / math.sqrt(len(price))
            errors = [statistics.fmean(r[k] for r in rows) for k in range(promised)]
            lines.append(
                f"{name:32} {tool:22} {len(rows):4} draws, exceeded {failed:3} "
                f"({failed / len(rows):.3f} [{low:.3f}, {high:.3f}]), mean error "
                f"{', '.join(f'{e:.4f}' for e in errors)}, "
                f"{'misses' if promised == 1 else 'abstains'} "
                f"{statistics.fmean(price):.4f} +- {error:.4f}"
            )
    return "\n".join(lines)


def settings() -> Iterator[tuple[str, str, Callable[..., Any], float]]:
    """Every setting with its name in the record."""
    for table in TABLES:
        if table == "adult" and adult_folder() is None:
            continue
        for name, (run, alphas) in RUNS.items():
            for alpha in alphas:
                yield f"{name}, {table}, {alpha}", table, run, alpha


def main() -> None:
    """Draw, fit and judge what is not in the record; show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", default="", help="part of the name of a setting")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after")
    parser.add_argument("--show", action="store_true", help="only show the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = arguments.record
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    ends = time.monotonic() + 60 * arguments.minutes
    for seed in range(0 if arguments.show else arguments.draws):
        for name, table, run, alpha in settings():
            done = record.setdefault(name, {})
            if str(seed) in done or arguments.only not in name:
                continue
            if time.monotonic() > ends:
                break
            found = run(TABLES[table](seed), alpha, seed)
            done[str(seed)] = {
                tool: [round(value, 6) for value in row] for tool, row in found.items()
            }
            path.write_text(json.dumps(record) + "\n", "utf-8")
    print(show(record))


if __name__ == "__main__":
    main()
