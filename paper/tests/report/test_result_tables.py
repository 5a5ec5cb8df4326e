"""The tables of results, from records whose numbers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from oneproj_paper.errors import InvalidDataError
from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.certificate_table import certificate_table
from oneproj_paper.report.data_tables import data_tables
from oneproj_paper.report.groups import group_records
from oneproj_paper.report.overview import overview
from oneproj_paper.report.reasons import read_reasons
from oneproj_paper.report.result_tables import result_tables
from oneproj_paper.report.runtime_table import runtime_table, speedups
from oneproj_paper.report.tables import Line, Table

Make = Callable[..., Record]
Cut = Callable[[Record, int], Record]
Change = Callable[[Record], Record]
WHOLE = "every constraint <= 0 on the full training data"
PM = "\N{PLUS-MINUS SIGN}"


def tables(*records: Record, reasons: str = "") -> dict[str, Table]:
    found = result_tables(group_records(records), read_reasons(reasons))
    return {table.key: table for table in found}


def only(table: Table) -> Line:
    (line,) = table.lines
    return line


def with_test(record: Record, **values: float) -> Record:
    return replace(record, metrics={"test": {**record.metrics["test"], **values}})


EXACT = {"class_0_error": 0.1284, "class_1_error": 0.1389, "decided_accuracy": 0.8495}
"""The paper's means on Gaussian data."""


def test_abstention_row(make_record: Make) -> None:
    runs = [
        replace(with_test(make_record(seed=s), ambiguity=a, **EXACT), runtime=r)
        for s, a, r in ((0, 0.10, 1.0), (1, 0.12, 2.0))
    ]
    line = only(tables(*runs)["abstention"])
    assert line.labels == (
        *("Gaussian", "One Projection", "augmented Lagrangian", "the paper's", "2"),
    )
    assert [c.ours for c in line.cells] == [
        *(
            f"12.84 {PM} 0.00",
            f"13.89 {PM} 0.00",
            f"11.00 {PM} 1.41",
            f"1.50 {PM} 0.71",
        ),
    ]
    assert [c.paper for c in line.cells] == [
        *(
            f"12.84 {PM} 2.60",
            f"13.89 {PM} 2.59",
            f"11.10 {PM} 2.28",
            f"1.73 {PM} 0.31",
        ),
    ]
    assert [c.mark for c in line.cells] == ["within", "within", "within", ""]
    assert [c.note for c in line.cells] == ["equal", "equal", "equal", ""]


def test_outside_is_marked_and_its_reason_is_shown(make_record: Make) -> None:
    far = with_test(make_record(), ambiguity=0.30, **EXACT)
    line = only(tables(far)["abstention"])
    assert line.cells[2].mark == "outside"
    assert line.cells[2].note == "8.3 sd higher, 1 run"  # (30 - 11.10) / 2.28
    assert "ambiguity is 8.3 sd higher" in line.verdict
    assert line.reasons == ("Ambiguity: no reason written yet.",)
    reason = '[abstention-gaussian.one-projection]\nambiguity = "Because."'
    line = only(tables(far, reasons=reason)["abstention"])
    assert line.reasons == ("Ambiguity: Because.",)
    near = with_test(make_record(), ambiguity=0.11, **EXACT)
    assert only(tables(near, reasons=reason)["abstention"]).reasons == ()


def test_a_reason_about_seeds_is_shown_for_runs_of_these_seeds(
    make_record: Make,
) -> None:
    reason = (
        "[abstention-gaussian.one-projection.ambiguity]\n"
        'seeds = [0, 1]\ntext = "Two odd samples."'
    )
    runs = [
        with_test(make_record(seed=seed), ambiguity=0.30, **EXACT) for seed in (0, 1, 2)
    ]
    shown = only(tables(*runs[:2], reasons=reason)["abstention"]).reasons
    assert shown == ("Ambiguity: Two odd samples.",)
    for others in (runs[:1], runs[1:], runs):
        shown = only(tables(*others, reasons=reason)["abstention"]).reasons
        assert shown == ("Ambiguity: no reason written yet.",)


def test_a_reason_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="abstention-nasa / slsqp / ambiguity"):
        read_reasons('[abstention-nasa.slsqp]\nambiguity = "Never shown."')
    read_reasons()  # those of the package


def test_stand_ins_and_cut_runs_are_labelled_and_not_judged(
    make_record: Make, cut: Cut, standing_in: Change
) -> None:
    far = with_test(make_record("abstention-climsim"), ambiguity=0.9)
    line = only(tables(standing_in(far))["abstention"])
    assert line.flags == ("stand-in",)
    assert {c.mark for c in line.cells} == {""}
    line = only(tables(cut(far, 50))["abstention"])
    assert line.flags == ("extrapolated",)
    assert [c.ours for c in line.cells[:3]] == ["\N{EN DASH}"] * 3
    assert line.cells[3].note == "extrapolated"
    assert {c.mark for c in line.cells} == {""}


def test_settings_that_differ_are_marked(make_record: Make) -> None:
    record = make_record()
    other = replace(record, settings={**record.settings, "thresholds": [0.3, 0.31]})
    line = only(tables(other)["calibration"])
    assert (line.cells[0].ours, line.cells[0].mark) == ("(0.300, 0.310)", "differs")
    assert only(tables(record)["calibration"]).cells[0].mark == "same"


def test_budgets(make_record: Make) -> None:
    line = only(tables(make_record("transfer-gaussian"))["transfer-budgets"])
    assert [c.ours for c in line.cells] == ["3,000", "0.02236", "0.02236"]
    assert [c.mark for c in line.cells] == ["same", "same", "within"]


def test_missing_rows_name_their_command(make_record: Make) -> None:
    found = tables(make_record("transfer-gaussian"))
    assert found["transfer"].missing == (
        "oneproj-paper reproduce transfer-climsim --preset paper --seeds 10",
    )
    assert len(found["abstention"].missing) == 4
    own = tables(make_record("transfer-gaussian", preset="oneproj"))
    assert len(own["transfer"].missing) == 2  # the paper's settings were not run


def test_speedup_is_of_the_same_settings_and_projector(make_record: Make) -> None:
    def run(
        method: str, projector: str, seconds: float, preset: str = "paper"
    ) -> Record:
        record = make_record("abstention-nasa", method, preset=preset)
        return replace(record, projector=projector, runtime=seconds)

    groups = group_records(
        [
            run("one-projection", "augmented-lagrangian", 4.0),
            run("one-projection", "cuts", 2.0),
            run("projected-sgd", "augmented-lagrangian", 400.0),
            run("projected-sgd", "cuts", 40.0),
            run("one-projection", "cuts", 1.0, "oneproj"),
        ]
    )
    found = {s.group.projector: s for s in speedups(groups)}
    assert found["augmented-lagrangian"].ours == 100.0
    assert found["cuts"].ours == 20.0
    assert found["cuts"].paper == 940.30 / 4.91
    lines = runtime_table(groups).lines
    assert lines[2].cells[-1].ours == "100.0\N{MULTIPLICATION SIGN}"
    assert "100.0 times faster here, 191.5 times in the paper" in lines[2].verdict
    assert lines[0].cells[-1].ours == ""
    assert "updates" not in lines[2].verdict  # the same number: nothing to say


def test_speedup_names_what_else_differs(make_record: Make) -> None:
    def run(method: str, seconds: float, seed: int = 0, **changes: object) -> Record:
        record = make_record("abstention-climsim", method, seed, preset="oneproj")
        return replace(record, projector="cuts", runtime=seconds, **changes)  # type: ignore[arg-type]

    few = {"planned_updates": 150, "updates": 150}
    fast = [run("one-projection", 1.0, seed, **few) for seed in range(2)]
    groups = group_records([*fast, run("projected-sgd", 15.0)])
    own, other = runtime_table(groups).lines
    assert own.cells[0].ours == "150"
    assert other.cells[0].ours == "500"
    # The records of both methods have the paper's thresholds, which differ.
    told = "2 against 1 runs, 150 against 500 updates, other thresholds"
    assert f"oneproj's settings. With {told}." in other.verdict
    assert told in overview(groups).speed[0].note
    calibration = tables(*fast)["calibration"]
    assert [c.heading for c in calibration.columns][1] == "Updates"
    assert (only(calibration).cells[1].ours, only(calibration).cells[1].paper) == (
        *("150", "500"),
    )
    paper = make_record("abstention-climsim")
    (own_line,) = overview(group_records([*fast, paper])).own
    assert "150 updates against 500" in own_line.note


def test_a_ratio_below_one_is_no_speedup_in_words(make_record: Make) -> None:
    def verdict(seconds: float, preset: str) -> str:
        runs = [
            replace(make_record("abstention-nasa", method, preset=preset), runtime=time)
            for method, time in (("one-projection", 1.0), ("projected-sgd", seconds))
        ]
        groups = group_records(runs)
        told.append(overview(groups).speed[0].cells[0][1])
        return runtime_table(groups).lines[1].verdict

    told: list[str] = []
    longer = "One Projection takes 1.6 times as long here"
    assert f"{longer}, both methods with" in verdict(0.625, "oneproj")
    assert f"{longer}; in the paper it is 191.5 times f" in verdict(0.625, "paper")
    assert "One Projection takes as long here" in verdict(1.04, "oneproj")
    assert "is 1.1 times faster here, 191.5 times in" in verdict(1.1, "paper")
    longer = "takes 1.6 times as long"
    assert told == [longer, longer, "takes as long", ""]


def test_a_partner_with_another_projector_serves_if_there_is_no_other(
    make_record: Make, cut: Cut
) -> None:
    fast = replace(make_record("abstention-nasa"), projector="cuts", runtime=2.0)
    slow = replace(make_record("abstention-nasa", "projected-sgd"), runtime=100.0)
    (found,) = speedups(group_records([fast, cut(slow, 50)]))
    assert found.ours == 50.0
    line = runtime_table(group_records([fast, cut(slow, 50)])).lines[1]
    assert "Extrapolated from 50 of 500 updates" in line.verdict


def test_data_rows(make_record: Make, standing_in: Change) -> None:
    records = [
        make_record("transfer-gaussian"),
        standing_in(make_record("transfer-climsim")),
        make_record("abstention-nasa"),
        make_record("abstention-credit"),
    ]
    transfer, abstention = data_tables(group_records(records))
    assert [c.ours for c in transfer.lines[0].cells] == [
        *("40/40", "1000/1000", "10", "Linear with intercept"),
    ]
    assert transfer.lines[0].verdict == "As in the paper."
    assert transfer.lines[1].flags == ("stand-in",)
    assert {c.mark for c in transfer.lines[1].cells} == {""}
    assert "from a simulator" in transfer.lines[1].verdict
    for line in abstention.lines:
        assert {c.mark for c in line.cells} == {"same"}
    assert len(abstention.missing) == 2


def test_certificates(make_record: Make) -> None:
    good = make_record(seed=0)
    bad = replace(
        make_record(seed=1),
        feasible=False,
        residuals={"class 0 error": 2e-5, "class 1 error": -1.0},
    )
    cells = only(certificate_table(group_records([good, bad]))).cells
    assert [c.ours for c in cells] == [
        *("1 of 2", "2.0e-05", "2.0e-02", "1.0e-02", "1.0e-09", "1", "8", "1.00e-01"),
    ]
    assert cells[0].mark == "outside"
    assert only(certificate_table(group_records([good]))).cells[0].mark == "within"


def test_overview(records: list[Record]) -> None:
    found = overview(group_records(records))
    assert found.ran == (
        "24 runs of 3 experiments.",
        f"24 of 24 answers are feasible: {WHOLE}.",
        "2 runs were cut on purpose, to extrapolate the runtime.",
    )
    # transfer-gaussian: 3 numbers; NASA: 4; only cuts were run to the end there.
    assert found.agreement[0].startswith("One Projection: 7 of 7 means")
    assert "1 run" not in found.agreement[0]
    assert found.agreement[1].startswith("Projected SGD: 10 of 10 means")
    assert found.stand_ins == ("ClimSim rainfall (transfer)",)
    assert found.missing == (
        *("abstention-gaussian", "abstention-climsim", "abstention-credit"),
    )
    assert [line.title for line in found.own] == [
        "Gaussian (transfer)",
        "ClimSim rainfall (transfer)",
        "NASA rainfall (abstention)",
    ]
    assert found.own[1].note == "target risk; 2 runs; stand-in data"
    assert len(found.speed) == 6
    assert "extrapolated" in found.speed[4].note


def test_overview_names_what_is_outside(make_record: Make) -> None:
    far = with_test(make_record(), ambiguity=0.30, **EXACT)
    found = overview(group_records([far]))
    assert found.agreement[0].startswith("One Projection: 3 of 4 means")
    assert found.agreement[0].endswith("4 of the means are of 1 run.")
    assert found.agreement[1] == (
        "Outside: Gaussian (abstention), One Projection (augmented Lagrangian, 1 run), "
        "ambiguity 8.3 sd higher."
    )
