"""Within two of the paper's standard deviations, and what is said about it."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.experiments.spread import spread
from oneproj_paper.report.agreement import Agreement, agreement_line, compare, judged
from oneproj_paper.report.groups import Group, group_records
from oneproj_paper.report.published import Printed

Make = Callable[..., Record]


def group(*records: Record) -> Group:
    (found,) = group_records(records)
    return found


@given(st.floats(-50, 50))
def test_within_means_two_standard_deviations(shift: float) -> None:
    found = compare("ambiguity", spread([10.0 + shift]), Printed("10.00", "2.50"))
    assert found.within == (abs(shift) <= 5.0 + 1e-12 * abs(shift))
    assert ("higher" in found.words) <= (shift > 0)
    assert ("lower" in found.words) <= (shift < 0)


def test_a_deviation_printed_as_zero_is_half_a_digit() -> None:
    printed = Printed("0.022", "0.000")
    assert compare("source risk", spread([0.02236]), printed).within
    assert not compare("source risk", spread([0.0231]), printed).within
    assert not compare("r", spread([0.02297]), Printed("0.02295", "0.00000")).within


def test_words_never_round_into_the_other_verdict() -> None:
    assert Agreement("x", 2.04).words == "just over 2.0 sd higher"
    assert Agreement("x", -2.0004).words == "just over 2.0 sd lower"
    assert Agreement("x", 1.96).words == "2.0 sd higher"
    assert Agreement("x", 0.01).words == "equal"
    assert Agreement("x", math.nan).words == "not a number"
    assert not Agreement("x", math.nan).within


def test_only_whole_runs_of_the_paper_are_judged(
    make_record: Make,
    cut: Callable[[Record, int], Record],
    standing_in: Callable[[Record], Record],
) -> None:
    record = make_record("abstention-nasa", "projected-sgd")
    assert judged(group(record))
    assert not judged(group(cut(record, 50)))
    assert not judged(group(standing_in(record)))
    assert not judged(group(make_record("abstention-nasa", preset="oneproj")))


def test_lines(
    make_record: Make,
    cut: Callable[[Record, int], Record],
    standing_in: Callable[[Record], Record],
) -> None:
    runs = group(make_record(), make_record(seed=1))
    near, far = Agreement("ambiguity", 0.5), Agreement("class 0 error", -3.0)
    line = agreement_line(runs, [near])
    assert line == "Agrees: ambiguity is 0.5 sd higher."
    line = agreement_line(runs, [near, Agreement("class 0 error", -1.5)])
    assert line == "Agrees in both; farthest is class 0 error, 1.5 sd lower."
    line = agreement_line(runs, [near, near, near])
    assert line == "Agrees in all 3; farthest is ambiguity, 0.5 sd higher."
    line = agreement_line(group(make_record()), [near])
    assert line == "Agrees: ambiguity is 0.5 sd higher. Of 1 run."
    line = agreement_line(runs, [near, far])
    assert line == (
        "Outside two of the paper's standard deviations: class 0 error is 3.0 sd "
        "lower. The other one within."
    )
    both = agreement_line(group(standing_in(cut(make_record(), 50))), [])
    assert "after 50 of 500 updates" in both
    assert "extrapolated" in both
    assert "Stand-in data: not judged" in both
