"""Parity and few false positives on UCI Adult: who earns more than 50,000 a year?

The rows are read from ``$ONEPROJ_DATA/adult/adult.data`` and ``adult.test`` where that
is set, else downloaded by ``sklearn.datasets.fetch_openml``. Needs ``oneproj[learn]``
and pandas; run it with ``python examples/adult.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import fetch_openml
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

from oneproj.learn import (
    ConstrainedClassifier,
    FairClassifier,
    NeymanPearsonClassifier,
)

NAMES = """age workclass fnlwgt education education-num marital-status occupation
    relationship race sex capital-gain capital-loss hours-per-week native-country class
""".split()  # noqa: SIM905 - the files have no header


def load() -> tuple[pd.DataFrame, pd.Series]:
    """Return the 14 columns of the table, and True where the income is high."""
    if named := os.environ.get("ONEPROJ_DATA"):
        folder = Path(named) / "adult"
        parts = [
            pd.read_csv(folder / n, names=NAMES, comment="|", skipinitialspace=True)
            for n in ("adult.data", "adult.test")
        ]
        table = pd.concat(parts, ignore_index=True)
    else:
        table = fetch_openml("adult", version=2, as_frame=True).frame
    income = table.pop("class").astype(str).str.rstrip(".")
    return table, income == ">50K"


def main(steps: int = 500) -> dict[str, float]:
    """Fit, and print what holds on rows that no fit has seen."""
    X, y = load()
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    words = OneHotEncoder(handle_unknown="ignore", min_frequency=20)
    columns = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    table, new = columns.fit_transform(X), columns.transform(X_test)
    plain = ConstrainedClassifier(steps=steps, random_state=0).fit(table, y)
    fair = FairClassifier("demographic_parity", 0.02, steps=steps, random_state=0)
    fair.fit(table, y, sensitive_features=X["sex"])
    print(fair.confirm(new, y_test, sensitive_features=X_test["sex"]))
    found = {}
    for name, classifier in {"plain": plain, "fair": fair}.items():
        decided = classifier.predict(new)
        shares = pd.Series(decided).groupby(X_test["sex"].to_numpy()).mean()
        found[f"{name} accuracy"] = float((decided == y_test).mean())
        found[f"{name} gap"] = float(shares.max() - shares.min())

    strict = NeymanPearsonClassifier(alpha=0.05, steps=steps, random_state=0)
    flagged = strict.fit(table, y).predict(new)
    found["false positive rate"] = float(flagged[~y_test].mean())
    found["miss rate"] = 1 - float(flagged[y_test].mean())
    for name, value in found.items():
        print(f"{name}: {value:.4f}")
    return found


if __name__ == "__main__":
    main()
