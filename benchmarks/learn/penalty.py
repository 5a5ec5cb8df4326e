"""``python -m benchmarks.learn.penalty``: does an L2 penalty lower the misses?

Small tables are split at random, 70 % to fit and 30 % to judge. ``misses`` is the share
of positives that ``NeymanPearsonClassifier`` does not flag, at its own threshold, and
``misses at alpha`` the same at the threshold that flags a share alpha of the negatives
to judge by: the quality of the score alone. The peer is the umbrella algorithm on a
logistic regression with C = 1, which holds out the same number of negatives.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oneproj.learn import NeymanPearsonClassifier
from oneproj.rates import neyman_pearson_threshold

Array = np.ndarray[Any, Any]
Table = tuple[Array, Array]
PENALTIES = 0.1, 1.0, 10.0, math.inf
ALPHA = 0.05
CONFIDENCE = 0.9
"""Wine has 45 negatives to hold out; .95 would take 59 of them."""


def _cancer(_: int) -> Table:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return X, 1 - y


def _wine(_: int) -> Table:
    X, y = datasets.load_wine(return_X_y=True)
    return X, (y == 2).astype(int)  # noqa: PLR2004 - the third cultivar


def _digits(_: int) -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return X, (y == 8).astype(int)  # noqa: PLR2004 - the hardest digit


def _generated(seed: int) -> Table:
    X, y = datasets.make_classification(
        600, 40, n_informative=8, n_redundant=8, flip_y=0.05, random_state=seed
    )
    return X, y


TABLES: dict[str, Callable[[int], Table]] = {
    "breast cancer": _cancer,
    "wine": _wine,
    "digits, 8": _digits,
    "generated": _generated,
}


def compare(table: Table, seed: int, penalties: tuple[float, ...]) -> dict[str, Any]:
    """Both kinds of misses of every tool, on one split."""
    X, test, y, labels = train_test_split(
        *table, test_size=0.3, random_state=seed, stratify=table[1]
    )
    found = {"umbrella": _misses(*_umbrella(X, y, test, seed), labels)}
    for C in penalties:
        clf = NeymanPearsonClassifier(ALPHA, CONFIDENCE, C=C, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = clf.fit(X, y).decision_function(test)
        found[f"C={C:g}"] = _misses(scores, 0.0, labels)
    return found


def _umbrella(X: Array, y: Array, new: Array, seed: int) -> tuple[Array, float]:
    """Scores of new rows by a logistic regression, and their threshold."""
    (negative,) = np.nonzero(y == 0)
    order = np.random.default_rng(seed).permutation(negative)
    held_out = np.zeros(len(y), dtype=bool)
    held_out[order[: len(order) // 2]] = True
    base = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    base.fit(X[~held_out], y[~held_out])
    calibration = base.decision_function(X[held_out])
    cut = neyman_pearson_threshold(calibration, ALPHA, CONFIDENCE)
    return base.decision_function(new), cut


def _misses(scores: Array, cut: float, labels: Array) -> tuple[float, float]:
    negative = np.sort(scores[labels == 0])
    exact = negative[-1 - math.floor(ALPHA * len(negative))]
    of_positives = scores[labels == 1]
    return float((of_positives <= cut).mean()), float((of_positives <= exact).mean())


def show(found: dict[str, list[dict[str, tuple[float, float]]]]) -> str:
    """Mean misses with the standard error of the difference from the peer."""
    lines = [
        f"{'':15} {'':9} {'splits':>6} {'misses':>7} {'at alpha':>8} {'-peer':>16}"
    ]
    for table, splits in found.items():
        for tool in splits[0]:
            own, exact = (statistics.fmean(s[tool][k] for s in splits) for k in (0, 1))
            away = [s[tool][1] - s["umbrella"][1] for s in splits]
            error = statistics.pstdev(away) / math.sqrt(len(away))
            lines.append(
                f"{table:15} {tool:9} {len(splits):6} {own:7.4f} {exact:8.4f} "
                f"{statistics.fmean(away):+.4f} +- {error:.4f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run every table on every split; show the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.tables:
        found[name] = [
            compare(TABLES[name](seed), seed, PENALTIES)
            for seed in range(arguments.splits)
        ]
        print(show({name: found[name]}), flush=True)


if __name__ == "__main__":
    main()
