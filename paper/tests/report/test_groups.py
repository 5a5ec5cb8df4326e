"""Records that differ in the seed alone, in the paper's order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.groups import commands_of, group_records
from oneproj_paper.report.tables import flags_of

Make = Callable[..., Record]
Cut = Callable[[Record, int], Record]


def test_order_is_the_papers_whatever_the_order_of_records(
    records: list[Record],
) -> None:
    groups = group_records(records)
    shuffled = random.Random(0).sample(records, len(records))  # noqa: S311
    assert group_records(shuffled) == groups
    keys = [(g.experiment, g.preset, g.method, g.projector) for g in groups]
    assert keys[:4] == [
        ("transfer-gaussian", "paper", "one-projection", "augmented-lagrangian"),
        ("transfer-gaussian", "paper", "projected-sgd", "augmented-lagrangian"),
        ("transfer-gaussian", "paper", "projected-sgd", "cuts"),
        ("transfer-gaussian", "oneproj", "one-projection", "cuts"),
    ]
    assert keys[-1][:2] == ("abstention-nasa", "oneproj")
    assert all([r.seed for r in g.records] == [0, 1] for g in groups)


def test_cut_runs_have_no_results_and_do_not_time_whole_ones(
    make_record: Make, cut: Cut
) -> None:
    whole, half = make_record(seed=0), cut(make_record(seed=1), 50)
    (mixed,) = group_records([whole, half])
    assert mixed.finished == mixed.timed == (whole,)
    assert not mixed.extrapolated
    (only,) = group_records([half])
    assert only.finished == ()
    assert only.timed == (half,)
    assert only.extrapolated


def test_runs_whose_projection_failed_are_no_extrapolations(make_record: Make) -> None:
    whole = make_record(seed=0)
    failed = replace(make_record(seed=1), complete=False, updates=3, feasible=False)
    (mixed,) = group_records([whole, failed])
    assert mixed.finished == mixed.timed == (whole,)
    assert (mixed.aborted, mixed.infeasible) == (1, 0)
    assert flags_of(mixed) == ("1 aborted",)
    (only,) = group_records([failed])
    assert only.timed == ()
    assert not only.extrapolated


def test_each_command_is_named_once(make_record: Make) -> None:
    groups = group_records([make_record(seed=s) for s in range(3)])
    assert commands_of(groups) == (
        "oneproj-paper reproduce abstention-gaussian --preset paper --seeds 10",
    )
