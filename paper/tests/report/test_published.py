"""The paper's numbers, pinned a second time in the layout of its own tables."""

from __future__ import annotations

import pytest

from oneproj_paper.report.published import DATA, EXPERIMENTS, RESULTS
from oneproj_paper.report.runtime_table import published_speedup

TRANSFER_KEYS = ("target error", "target risk", "runtime", "source risk")
TRANSFER = """
10.00 0.81  0.253 0.030    9.74   0.23  0.022   0.001    3,000 0.02236
 9.92 0.66  0.252 0.033   67.55  17.90  0.022   0.000      500 0.02236
 7.26 1.31  0.333 0.079   15.25   2.12  0.02295 0.00000  1,000 0.02294
 7.13 1.86  0.323 0.073  658.91 116.26  0.02295 0.00000    100 0.02294
"""
ABSTENTION_KEYS = (
    *("class 0 error", "class 1 error", "ambiguity", "runtime", "decided accuracy"),
)
ABSTENTION = """
12.84 2.60  13.89 2.59  11.10 2.28     1.73   0.31  84.95 2.14  (0.300, 0.300)
12.99 2.50  14.04 2.24  11.15 2.53    18.69   1.30  84.77 1.96  (0.300, 0.300)
 9.35 0.43   5.00 1.00   1.72 0.44     5.66   0.61  91.69 0.60  (0.180, 0.290)
 9.00 0.86   5.09 1.73   2.95 1.03   353.63  42.62  91.96 0.98  (0.140, 0.225)
 9.68 0.42   9.55 1.74   9.17 0.76     4.91   0.18  89.35 0.39  (0.260, 0.210)
 9.80 0.41  10.74 2.84   8.62 1.75   940.30 223.84  89.46 0.44  (0.260, 0.280)
16.75 2.27  21.20 2.54  14.95 2.89     5.63   0.70  79.77 1.73  (0.425, 0.400)
17.80 2.04  20.44 2.96  16.05 2.95  1167.85 237.30  78.78 1.58  (0.425, 0.400)
"""


def rows(task: str) -> list[object]:
    names = [name for name in EXPERIMENTS if name.startswith(task)]
    methods = ("one-projection", "projected-sgd")
    return [RESULTS[name][method] for name in names for method in methods]


@pytest.mark.parametrize(
    ("task", "keys", "text"),
    [
        ("transfer", TRANSFER_KEYS, TRANSFER),
        ("abstention", ABSTENTION_KEYS, ABSTENTION),
    ],
)
def test_every_number_is_the_papers(
    task: str, keys: tuple[str, ...], text: str
) -> None:
    lines = text.strip().splitlines()
    for row, line in zip(rows(task), lines, strict=True):
        words = line.split(None, 2 * len(keys))
        printed = [(n.mean_text, n.sd_text) for n in map(row.numbers.__getitem__, keys)]  # type: ignore[attr-defined]
        assert printed == list(zip(words[:-1:2], words[1:-1:2], strict=True))
        assert set(row.numbers) == set(keys)  # type: ignore[attr-defined]
        if task == "transfer":
            assert [row.updates, row.source_cap] == words[-1].split()  # type: ignore[attr-defined]
        else:
            assert (row.updates, row.thresholds) == ("500", words[-1])  # type: ignore[attr-defined]


def test_data_tables() -> None:
    shown = [
        (d.title, d.target or d.observations, d.source or d.classes, d.variables)
        for d in DATA.values()
    ]
    assert shown == [
        ("Gaussian", "40/40", "1000/1000", "10"),
        ("ClimSim rainfall", "100/100", "950/950", "124"),
        ("Gaussian", "2,000", "1,000/1,000", "8"),
        ("ClimSim rainfall", "11,373", "10,825/548", "124"),
        ("NASA rainfall", "49,302", "47,073/2,229", "6"),
        ("Credit default", "23,864", "21,236/2,628", "11"),
    ]
    assert [d.target_error for d in DATA.values()] == [
        *("", "", "0.15", "0.05", "0.10", "0.20"),
    ]
    models = [DATA[name].model for name in EXPERIMENTS[:2]]
    assert models == ["Linear with intercept", "[8] Softplus MLP"]


def test_classes_add_up_to_the_observations() -> None:
    for data in list(DATA.values())[2:]:
        n0, n1 = (int(n) for n in data.classes.replace(",", "").split("/"))
        assert n0 + n1 == int(data.observations.replace(",", ""))


def test_speedups_are_those_of_the_papers_text() -> None:
    found = {name: f"{published_speedup(name):.1f}" for name in EXPERIMENTS}
    assert found["transfer-gaussian"] == "6.9"
    assert found["transfer-climsim"] == "43.2"
    rest = sorted(float(found[name]) for name in EXPERIMENTS[2:])
    assert (rest[0], rest[-1]) == (10.8, 207.4)
