"""A number is a number, whichever library it comes from; and nobody else's."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oneproj
from oneproj.arguments import as_number, check_number, plain
from oneproj.logs import check_count

X = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))


def build() -> oneproj.Problem:
    w = torch.zeros(2, requires_grad=True)
    objective = oneproj.mean(lambda x: (x - w + 1.0).square().sum(1), X)
    size = oneproj.mean(lambda x: (x @ w).square(), X)
    return oneproj.Problem(w, objective, {"size": size <= 0.5}, radius=9.0)


def answer(**arguments: Any) -> list[float]:  # noqa: ANN401 - of solve
    problem = build()
    oneproj.solve(problem, **({"steps": 30} | arguments))
    (w,) = problem.parameters
    return w.tolist()


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": np.uint8(64)},
        {"batch_size": np.int8(64), "oracle": "anchored"},
        {"anchor_size": np.uint8(200), "oracle": "anchored"},
        {"steps": np.uint8(20)},
        {"inner_steps": np.int8(10), "steps": 130},
        {"seconds": np.float16(30)},
        {"seconds": torch.tensor(30, dtype=torch.float16)},
        {"seed": np.uint8(200)},
        {"lr": np.float16(0.25)},
        {"prox_weight": np.float32(0.5)},
        {"strength": torch.tensor(2.0)},
        {"lr": np.array(0.25), "method": "lagrangian", "dual_lr": np.float16(0.5)},
    ],
    ids=str,
)
def test_a_narrow_number_counts_like_a_plain_one(given: dict[str, Any]) -> None:
    said = {name: v if isinstance(v, str) else plain(v) for name, v in given.items()}
    assert answer(**given) == answer(**said)


@pytest.mark.parametrize("method", ["one-projection", "penalty-sgd", "projected-sgd"])
def test_a_tensor_of_the_callers_is_not_changed(method: str) -> None:
    lr = torch.tensor(0.125)
    first, second = (answer(lr=lr, method=method, decay="linear") for _ in range(2))
    assert lr.item() == 0.125
    assert first == second == answer(lr=0.125, method=method, decay="linear")


@pytest.mark.parametrize(
    "given",
    [
        {"seed": np.int64(3)},
        {"steps": np.int64(20)},
        {"batch_size": np.int16(8), "oracle": "anchored"},
        {"inner_steps": np.int64(5)},
        {"lr": np.float32(0.5)},
        {"lr": torch.tensor(0.5)},
        {"prox_weight": np.float64(0.5)},
        {"strength": np.float64(2.0)},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:The selected iterate is the start")
def test_a_run_is_saved_and_resumed_with_any_number(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    file = tmp_path / "run.pt"
    said = {name: v if isinstance(v, str) else plain(v) for name, v in given.items()}
    steps = {"steps": 20}
    answer(**steps | given, checkpoint=file, callbacks=lambda u: u.update == 7)
    assert answer(**steps | said, checkpoint=oneproj.Checkpoint(file)) == answer(
        **steps | said
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.uint8(7), 7),
        (np.longdouble(0.5), 0.5),
        (torch.tensor([3]), 3),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (Fraction(1, 4), 0.25),
        (np.ones(1), 1.0),
        (True, True),
        ("auto", "auto"),
        (None, None),
    ],
)
def test_plain_numbers_are_pythons_own(given: object, expected: object) -> None:
    found = plain(given)
    assert found == expected
    assert type(found) is type(expected)


def test_what_holds_no_single_number_stays_what_it_is() -> None:
    for given in (np.ones(2), torch.ones(2), torch.ones(1, device="meta"), print):
        assert plain(given) is given


@pytest.mark.parametrize("given", [10**400, Fraction(10**400), math.nan, "1", True])
def test_what_no_float_holds_is_no_number(given: object) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=r"^lr must be one number"):
        check_number("lr", given, "", infinite=True)
    assert as_number(given) is None


@pytest.mark.parametrize("given", [torch.tensor(2.0), 2.0, 0, np.ones(2), True])
def test_what_counts_nothing_is_no_count(given: object) -> None:
    with pytest.raises(oneproj.InvalidProblemError, match=r"^K must be a whole number"):
        check_count("K", given, "")


def test_a_bound_may_be_an_array_without_dimensions() -> None:
    assert as_number(np.array(0.5)) == 0.5
    assert as_number(np.ones(1)) is None


@pytest.mark.parametrize("strength", [2**64, Fraction(5, 2), np.float16(2.5)])
def test_a_strength_is_a_float(strength: Any) -> None:  # noqa: ANN401 - any number
    assert type(oneproj.Hinge(strength).strength) is float
    weights = oneproj.Softplus(strength, strength).weights(torch.ones(1))
    assert weights.item() == pytest.approx(
        float(strength) * torch.sigmoid(torch.ones(())).item()
    )
