"""Small tables whose truth is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

Array = np.ndarray[Any, Any]


class Table(NamedTuple):
    X: Array
    y: Array
    group: Array


def make_table(rows: int, seed: int) -> Table:
    """Two classes that overlap; the second is more common in the group "b"."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(rows) < 0.4, "b", "a")
    y = (rng.random(rows) < np.where(group == "b", 0.6, 0.3)).astype(int)
    X = rng.normal(size=(rows, 4)) + np.outer(y, [1.5, 0.7, 0.0, 0.0])
    X[:, 2] += group == "b"
    return Table(X * [1.0, 10.0, 1.0, 0.01] + [0.0, 100.0, 0.0, 5.0], y, group)


@pytest.fixture(scope="session")
def table() -> Table:
    return make_table(600, seed=0)


@pytest.fixture(scope="session")
def new_table() -> Table:
    return make_table(4000, seed=1)
