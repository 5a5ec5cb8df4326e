"""The table at the end of ``oneproj-paper reproduce``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.summary import summaries

METRICS = {
    "class_0_error": 0.1,
    "class_1_error": 0.2,
    "ambiguity": 0.05,
    "decided_accuracy": 0.9,
}


def test_rows_are_means_over_seeds(make_record: Callable[..., Record]) -> None:
    records = [
        make_record(
            seed=seed,
            runtime=1.0 + seed,
            feasible=seed > 0,
            metrics={"test": METRICS | {"ambiguity": 0.05 + 0.01 * seed}},
        )
        for seed in (2, 0, 1)
    ]
    ((name, (heading, row)),) = summaries(records).items()
    assert name == "abstention-gaussian"
    cells = dict(zip(heading, row, strict=True))
    assert cells["runs"] == "paper, one-projection,\ncuts"
    assert cells["seeds"] == "3"
    assert cells["class 0 error (%)"] == "10.00 \N{PLUS-MINUS SIGN} 0.00"
    assert cells["ambiguity (%)"] == "6.00 \N{PLUS-MINUS SIGN} 1.00"
    assert cells["runtime (s)"] == "2.00 \N{PLUS-MINUS SIGN} 1.00"
    assert cells["feasible"] == "2 of 3"


def test_a_stand_in_is_labelled_in_the_title(
    make_record: Callable[..., Record],
) -> None:
    record = make_record(metrics={"test": METRICS})
    stand_in = replace(record, data=replace(record.data, stand_in=True))
    assert [*summaries([stand_in])] == ["abstention-gaussian (stand-in data)"]
    assert [*summaries([record])] == ["abstention-gaussian"]


def test_a_run_that_was_cut_has_a_runtime_only(
    make_record: Callable[..., Record],
) -> None:
    cut = make_record(metrics={"test": METRICS}, extrapolated_from=50, runtime=940.0)
    heading, row = summaries([cut])["abstention-gaussian"]
    cells = dict(zip(heading, row, strict=True))
    assert cells["ambiguity (%)"] == "-"
    assert cells["runtime (s)"] == "940.00\n(from 50 updates)"


def test_a_run_that_was_aborted_is_counted_and_not_averaged(
    make_record: Callable[..., Record],
) -> None:
    # Its projection failed on the way: it has no result, and nobody asked to cut it.
    aborted = make_record(
        seed=2,
        complete=False,
        updates=3,
        feasible=False,
        runtime=99.0,
        metrics={"test": METRICS | {"ambiguity": 0.9}},
    )
    whole = [make_record(seed=s, metrics={"test": METRICS}) for s in (0, 1)]
    heading, row = summaries([*whole, aborted])["abstention-gaussian"]
    cells = dict(zip(heading, row, strict=True))
    assert cells["seeds"] == "2"
    assert cells["ambiguity (%)"] == "5.00 \N{PLUS-MINUS SIGN} 0.00"
    assert cells["runtime (s)"] == "1.10 \N{PLUS-MINUS SIGN} 0.00"
    assert cells["feasible"] == "2 of 3\n(1 aborted)"


def test_where_all_runs_were_aborted_there_is_nothing_to_average(
    make_record: Callable[..., Record],
) -> None:
    aborted = [
        make_record(seed=s, complete=False, feasible=False, metrics={"test": METRICS})
        for s in (0, 1)
    ]
    heading, row = summaries(aborted)["abstention-gaussian"]
    cells = dict(zip(heading, row, strict=True))
    assert cells["seeds"] == "2"
    assert cells["class 0 error (%)"] == cells["ambiguity (%)"] == "-"
    assert cells["runtime (s)"] == "-"
    assert cells["feasible"] == "0 of 2\n(2 aborted)"
