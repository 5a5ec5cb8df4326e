"""The record's structure and what the problem is; no assertion on a time."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from rich.console import Console
from torch.optim import SGD

from benchmarks import overhead
from benchmarks.overhead import (
    BARS,
    CAP,
    LARGE,
    TOKENS,
    Shape,
    Transformer,
    overhead_record,
    run_bare,
    transformer_problem,
)
from benchmarks.overhead_table import overhead_table
from oneproj import Problem
from oneproj_paper.tasks import count_parameters

TINY = Shape(width=8, heads=2, layers=1, length=6, sequences=12, batch_size=3)
NAMES = ["bare SGD", "bare Adam", "minibatch", "anchored"]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return overhead_record(TINY, updates=20, repeats=2, progress=False)


def test_the_record_survives_json_and_has_every_row(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert [row["name"] for row in record["rows"]] == NAMES
    for row in record["rows"]:
        ratio = row["ratio"]
        assert 0 < ratio["lower"] <= ratio["median"] <= ratio["upper"]
    assert record["rows"][0]["ratio"]["median"] == 1.0


def test_the_bars_are_those_of_the_oracles(record: dict[str, Any]) -> None:
    assert BARS == {"minibatch": 1.15, "anchored": 1.7}
    for row in record["rows"]:
        bar = BARS.get(row["name"])
        assert row["bar"] == bar
        assert row["met"] == (None if bar is None else row["ratio"]["median"] <= bar)


def test_every_answer_is_feasible_and_every_update_was_made(
    record: dict[str, Any],
) -> None:
    for row in record["rows"][2:]:
        assert row["residual"] <= 0
        spent = row["counts"]["objective_gradients"] - 20
        assert 0 <= spent <= 18  # 8 minibatches, twice 5 trial updates
        assert row["counts"]["projections"] == 1


def test_the_large_model_has_ten_million_parameters() -> None:
    with torch.device("meta"):
        assert 1.0e7 < count_parameters(Transformer(LARGE)) < 1.1e7


def test_no_token_sees_the_ones_that_follow() -> None:
    fill = torch.Generator().manual_seed(0)
    model = Transformer(TINY)
    model.fill(fill)
    tokens = torch.randint(TOKENS, (2, 6), generator=fill)
    other = tokens.clone()
    other[:, 3:] = (other[:, 3:] + 1) % TOKENS
    first, second = model(tokens), model(other)
    torch.testing.assert_close(first[:, :3], second[:, :3])
    assert not torch.allclose(first[:, 3:], second[:, 3:])


def test_the_cap_is_met_at_first_and_by_no_one_who_is_sure() -> None:
    problem = transformer_problem(TINY, seed=0)
    assert -0.2 < problem.residuals()["noise"] < 0
    assert problem.objective.value() == pytest.approx(math.log(TOKENS), abs=0.1)
    # Certain of the objective's rule but for one percent: noise is rarely that.
    sure = -math.log(0.01 / (TOKENS - 1)) * (1 - 1 / TOKENS)
    assert sure > CAP


def test_the_seed_is_that_of_the_start_and_of_the_data() -> None:
    def values(problem: Problem) -> tuple[float, float]:
        return problem.objective.value(), problem.residuals()["noise"]

    same = [values(transformer_problem(TINY, seed)) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_a_bare_loop_sees_both_minibatches_at_every_update() -> None:
    problem = transformer_problem(TINY, seed=0)
    terms = [problem.objective, *problem.constraints.values()]
    drawn: list[int] = []
    for term in terms:
        draw = term.draw
        term.draw = lambda size, g, draw=draw: (drawn.append(size), draw(size, g))[1]
    before = sum(term.value() for term in terms)
    run_bare(problem, SGD, 3, batch_size=5)
    assert drawn == [5] * 6
    assert sum(term.value() for term in terms) < before


def test_the_table_shows_every_row_and_the_verdicts(record: dict[str, Any]) -> None:
    text = io.StringIO()
    Console(file=text, width=150).print(overhead_table(record))
    for word in (*NAMES, "1.15", "1.70"):
        assert word in text.getvalue()
    assert len(re.findall(r"\b(met|MISSED)\b", text.getvalue())) == 2


def test_the_command_writes_the_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_program: Callable[..., Result],
) -> None:
    monkeypatch.setattr(overhead, "Shape", partial(replace, TINY))
    out = tmp_path / "overhead.json"
    options = ["--updates", "10", "--repeats", "2"]
    result = run_program("overhead", *options, "--out", out)
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["settings"]["updates"] == 10
