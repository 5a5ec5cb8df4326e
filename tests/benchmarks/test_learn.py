"""The benchmarks of estimators: their tables have the columns and counts they name."""

from __future__ import annotations

import json

import pytest

from benchmarks.learn import penalty
from benchmarks.learn.__main__ import RECORD, interval, neyman_pearson, show
from benchmarks.learn.__main__ import generated as draw_generated
from benchmarks.rates import parity


def test_promises_are_counted() -> None:
    draws = {
        "0": {"ours": [0.06, 0.2], "umbrella": [0.05, 0.4]},
        "1": {"ours": [0.04, 0.4], "umbrella": [0.06, 0.4]},
        "2": {"ours": [0.02, 0.3], "umbrella": [0.07, 0.4]},
    }
    ours, umbrella = show({"neyman_pearson, generated, 0.05": draws}).splitlines()
    low, high = interval(1, 3)
    assert f"3 draws, exceeded   1 (0.333 [{low:.3f}, {high:.3f}])" in ours
    assert "mean error 0.0400, misses 0.3000 +-" in ours
    assert "exceeded   2" in umbrella
    both = {"0": {"ours": [0.04, 0.06, 0.3]}}  # an abstention promises two caps
    (line,) = show({"abstention, generated, 0.05": both}).splitlines()
    assert "exceeded   1" in line
    assert "mean error 0.0400, 0.0600, abstains 0.3000" in line


def test_the_record_shows_every_setting_and_tool() -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    tools = sum(len(next(iter(draws.values()))) for draws in record.values() if draws)
    assert len(show(record).splitlines()) == tools


def test_a_draw_gives_error_and_misses_of_both() -> None:
    draw = draw_generated(0)
    small = draw._replace(others=draw.others[:2000], labels=draw.labels[:2000])
    found = neyman_pearson(small, 0.1, 0)
    assert found.keys() == {"ours", "umbrella"}
    for error, misses in found.values():
        assert 0 < error < 0.15
        assert 0.3 < misses < 0.7


def test_penalties_are_compared_on_the_same_split() -> None:
    found = penalty.compare(penalty.TABLES["breast cancer"](0), 0, (1.0,))
    assert found.keys() == {"umbrella", "C=1"}
    head, *lines = penalty.show({"breast cancer": [found]}).splitlines()
    assert "misses" in head
    assert len(lines) == 2
    assert all(0 <= share < 0.2 for row in found.values() for share in row)


def row(gap: float, accuracy: float, **more: float) -> dict[str, object]:
    return {"test": {"gap": gap, "accuracy": accuracy}, "seconds": 2.0, **more}


def test_parity_reads_the_peer_off_at_the_same_gap() -> None:
    kind, model = "equal_opportunity", "linear"
    bounds = parity.BOUNDS[kind]
    record = {}
    for seed in range(2):
        key = parity.Job(kind, model, seed, "ours", bounds.ours[0]).key
        record[key] = row(0.02, 0.84, worst=-0.001)
        for k, bound in enumerate(bounds.fairlearn):
            key = parity.Job(kind, model, seed, "fairlearn", bound).key
            record[key] = row(0.01 + 0.02 * k, 0.80 + 0.02 * k)
    head, line = parity.show(record).splitlines()
    assert head.split()[:4] == ["test", "gap", "ours", "Fairlearn"]
    assert "2 splits" in line
    numbers = line.split("splits")[1].split()
    assert numbers[:4] == ["0.0200", "0.8400", "0.8100", "+0.0300"]
    assert numbers[-1] == "-1.0e-03"
    del record[key]  # a split that lacks a point of the curve does not count
    assert "1 splits" in parity.show(record)


def test_every_fit_of_parity_has_its_own_key() -> None:
    keys = [job.key for job in parity.jobs(["linear"], 5)]
    assert len(set(keys)) == len(keys)
    each = sum(len(b.ours) + len(b.fairlearn) for b in parity.BOUNDS.values())
    assert len(keys) == 5 * each


@pytest.mark.parametrize("model", parity.MODELS)
def test_the_record_of_parity_has_a_line_for_every_bound(model: str) -> None:
    record = json.loads(parity.RECORD.read_text("utf-8"))
    lines = [line for line in parity.show(record).splitlines() if f", {model}" in line]
    shown = sum(len(bounds.ours) for bounds in parity.BOUNDS.values())
    assert len(lines) == shown
    counts = [float(line.split()[-1]) for line in lines]
    assert max(counts) <= 0
