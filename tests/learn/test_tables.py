"""Groups in any container and of any type, and rows held out by class and group."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from oneproj import InvalidProblemError
from oneproj.learn.tables import Rows, held_out_rows, read_groups, readings

X = np.zeros((4, 1))


def test_every_stratum_gives_its_share() -> None:
    groups = torch.tensor([0] * 100 + [1] * 10 + [2] * 2 + [3])
    x = torch.arange(113.0)[:, None]
    rows = Rows(x, torch.zeros(113), groups)
    chosen = held_out_rows(rows, 0.3, torch.Generator().manual_seed(0))
    assert [int(chosen[groups == j].sum()) for j in range(4)] == [30, 3, 1, 0]


def test_equal_rows_are_held_out_together_and_every_stratum_keeps_a_row() -> None:
    draws = np.random.default_rng(0)
    for seed in range(30):
        values = draws.integers(0, 2, size=(40, 3)).astype(float)  # 8 different rows
        x = torch.from_numpy(values + 0.0 * draws.choice([-1, 1], size=(40, 3)))
        y = torch.from_numpy(draws.integers(0, 2, size=40)).double()
        y[:-1] = y[:-1] * (seed % 3 > 0)  # in some draws one row is all of its class
        rows = Rows(x, y)
        chosen = held_out_rows(rows, 0.5, torch.Generator().manual_seed(seed))
        held_out, kept = (set(map(tuple, x[m].tolist())) for m in (chosen, ~chosen))
        assert held_out
        assert not held_out & kept
        assert set(y[~chosen].tolist()) == set(y.tolist())


def test_rows_are_judged_in_each_reading_of_equal_rows() -> None:
    x = torch.tensor([[0.0], [1.0], [0.0], [2.0]])
    held_out = Rows(x, torch.tensor([0.0, 0, 0, 1]), torch.tensor([0, 0, 0, 1]))
    once, every = readings(held_out)
    assert once.x[:, 0].tolist() == [0, 1, 2]
    assert every is held_out
    relabelled = Rows(x, torch.tensor([0.0, 0, 1, 1]))  # no copies: the labels differ
    assert readings(relabelled) == (relabelled,)
    trained = Rows(torch.full((3, 1), 5.0), torch.tensor([0.0, 0, 1]))
    once, every = readings(relabelled, trained)
    assert once is not every
    assert every.x[:, 0].tolist() == [0, 1, 0, 2, 5, 5]
    nothing = relabelled.of(torch.zeros(4, dtype=torch.bool))
    assert [len(each) for each in readings(nothing, trained)] == [0]


def test_strata_are_classes_within_groups() -> None:
    rows = Rows(torch.zeros(4, 1), torch.tensor([0.0, 1, 0, 1]))
    assert rows.strata().tolist() == [0, 1, 0, 1]
    grouped = Rows(rows.x, rows.y, torch.tensor([0, 0, 2, 2]))
    assert grouped.strata().tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize(
    "given",
    [
        ["f", "m", "m", "f"],
        np.array(["f", "m", "m", "f"]),
        pd.Series(["f", "m", "m", "f"], index=[7, 8, 9, 3]),
        pd.DataFrame({"sex": ["f", "m", "m", "f"]}),
        pd.Series(["f", "m", "m", "f"], dtype="category"),
    ],
)
def test_containers_mean_the_same(given: object) -> None:
    labels, groups = read_groups(given, X)
    assert labels == ["f", "m"]
    assert groups.tolist() == [0, 1, 1, 0]


def test_several_columns_are_combined() -> None:
    given = pd.DataFrame({"sex": ["f", "m", "m", "f"], "old": [0, 0, 1, 0]})
    labels, groups = read_groups(given, X)
    assert labels == [("f", 0), ("m", 0), ("m", 1)]
    assert groups.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "sensitive_features is missing"),
        (["f", "m", None, "f"], "1 missing value"),
        ([0.5, 1.0, 2.0, 2.0], "holds measurements, such as 0.5"),
        (np.array([[1.0, 2.0], [1.0, 2.5]] * 2), "holds measurements, such as 2.5"),
        ([1.0, 2.0, float("nan"), float("nan")], "2 missing value"),
        (pd.Series(["f", pd.NA, "m", "f"], dtype="string"), "1 missing value"),
        (["f", "m"], "inconsistent numbers of samples"),
    ],
)
def test_unusable_groups_are_refused(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_groups(given, X)


def test_new_groups_are_refused() -> None:
    assert read_groups(["m"] * 4, X, known=["f", "m"])[1].tolist() == [1] * 4
    with pytest.raises(InvalidProblemError, match=r"did not see: \['x'\]"):
        read_groups(["m", "x", "m", "m"], X, known=["f", "m"])


@pytest.mark.parametrize("given", ["a", 3])
def test_one_value_for_all_rows_is_refused(given: object) -> None:
    with pytest.raises(InvalidProblemError, match="the one value"):
        read_groups(given, X)


def test_many_unknown_groups_are_not_all_printed() -> None:
    given = list(range(1000))
    with pytest.raises(InvalidProblemError, match="1000 in all") as error:
        read_groups(given, np.zeros((1000, 1)), known=["f", "m"])
    assert len(str(error.value)) < 200
    with pytest.raises(InvalidProblemError, match="the one value") as error:
        read_groups({"sex": given}, np.zeros((1000, 1)))
    assert len(str(error.value)) < 250
