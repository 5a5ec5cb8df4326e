"""Curves and panels, from histories whose means are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.bars import bars_of, draw_bars
from oneproj_paper.report.groups import group_records
from oneproj_paper.report.history_figure import curve, draw_panel, panels
from oneproj_paper.report.inline import themed

Make = Callable[..., Record]
Cut = Callable[[Record, int], Record]
Change = Callable[[Record], Record]


def with_history(record: Record, updates: list[int], values: list[float]) -> Record:
    columns = {"update": tuple(map(float, updates)), "objective": tuple(values)}
    return replace(record, history=columns)


def test_means_and_bands_meet_update_by_update(make_record: Make) -> None:
    one = with_history(make_record(seed=0), [0, 25, 50, 50], [4.0, 2.0, 1.0, 1.5])
    two = with_history(make_record(seed=1), [0, 25, 50, 50], [6.0, 2.0, 2.0, 1.5])
    found = curve([one, two], "objective")
    assert found is not None
    assert found.updates == (0.0, 25.0, 50.0, 50.0)
    assert found.means == (5.0, 2.0, 1.5, 1.5)
    assert found.upper[0] == pytest.approx(5.0 + 2**0.5)
    assert found.lower[1:2] + found.upper[1:2] == (2.0, 2.0)
    assert found.means[-1] == 1.5  # after the projection, apart from the one before


def test_runs_that_stopped_early_share_what_both_have(make_record: Make) -> None:
    whole = with_history(make_record(seed=0), [0, 25, 50], [4.0, 2.0, 1.0])
    short = with_history(make_record(seed=1), [0, 25], [6.0, 3.0])
    found = curve([whole, short], "objective")
    assert found is not None
    # The last point of each is after its projection: that is what they share.
    assert found.means == (5.0, 2.0)
    assert curve([whole], "no such column") is None


def test_panel_draws_curves_thresholds_slack_and_final_points(
    make_record: Make,
) -> None:
    records = [
        make_record("abstention-climsim", method, seed)
        for method in ("one-projection", "projected-sgd")
        for seed in range(2)
    ]
    axes = Figure().add_subplot()
    draw_panel(axes, panels("abstention")[1], group_records(records))
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    levels = {(line.get_ydata()[0], str(line.get_color())) for line in dotted}  # type: ignore[index]
    assert levels == {(0.18, "#0072B2"), (0.14, "#D55E00")}  # the paper's, per method
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    ends = [line.get_xdata()[-1] for line in diamonds]  # type: ignore[index]
    assert ends == [500.0, 500.0]
    spans = [p.get_bbox() for p in axes.patches]  # type: ignore[attr-defined]
    slack = 0.5 / 6501**0.5
    assert spans[0].y0 == pytest.approx(0.18 - slack)
    assert spans[0].y1 == pytest.approx(0.18 + slack)
    assert len(axes.collections) == 2  # the bands


def test_a_threshold_that_is_shared_is_drawn_once(make_record: Make) -> None:
    records = [make_record("abstention-gaussian"), make_record(method="projected-sgd")]
    axes = Figure().add_subplot()
    draw_panel(axes, panels("abstention")[2], group_records(records))
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert len(dotted) == 1
    assert str(dotted[0].get_color()) not in {"#0072B2", "#D55E00"}


def test_transfer_panels_show_the_cap_and_grow_logarithmic(make_record: Make) -> None:
    groups = group_records([make_record("transfer-gaussian")])
    axes = Figure().add_subplot()
    draw_panel(axes, panels("transfer")[2], groups)
    (dotted,) = (line for line in axes.lines if line.get_linestyle() == ":")
    assert dotted.get_ydata()[0] == pytest.approx(1 / 2000**0.5)  # type: ignore[index]
    assert axes.get_yscale() == "log"  # from 1 to 0.022
    wild = [
        with_history(make_record("transfer-gaussian", seed=s), [0, 25, 25], values)
        for s, values in enumerate(([4.0, 0.2, 0.2], [4.0, 1.0, 1.0]))
    ]
    axes = Figure().add_subplot()
    draw_panel(axes, panels("transfer")[1], group_records(wild))
    assert axes.get_ylim()[0] == 0.3  # half the lowest mean; the band ends at 0.03
    flat = with_history(make_record("transfer-gaussian"), [0, 25, 25], [0.9, 0.4, 0.4])
    axes = Figure().add_subplot()
    draw_panel(axes, panels("transfer")[1], group_records([flat]))
    assert axes.get_yscale() == "linear"


def test_bars_are_the_papers_and_ours(
    make_record: Make, cut: Cut, standing_in: Change
) -> None:
    records = [
        replace(make_record("abstention-nasa"), runtime=3.0),
        cut(make_record("abstention-nasa", "projected-sgd"), 50),
        standing_in(make_record("abstention-climsim")),
    ]
    groups = group_records(records)
    bars = bars_of("abstention-nasa", groups)
    assert [(b.seconds, b.paper, b.hatch) for b in bars[:2]] == [
        (4.91, True, ""),
        (3.0, False, ""),
    ]
    assert [b.paper for b in bars] == [True, False, True, False]
    assert bars[3].hatch == ".."  # extrapolated
    assert bars[1].sd is None
    axes = Figure().add_subplot()
    draw_bars(axes, "abstention", groups)
    assert axes.get_yscale() == "log"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == [
        *("Gaussian", "ClimSim\nrainfall\n(stand-in)", "NASA\nrainfall"),
        "Credit\ndefault",
    ]
    heights = sorted(p.get_height() for p in axes.patches)  # type: ignore[attr-defined]
    assert heights[0] == 1.73
    assert len(heights) == 8 + 3


def test_inline_svg_shares_no_names_and_follows_the_theme() -> None:
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg>\n<svg xmlns:xlink="x" width="9pt" '
        'height="9pt" viewBox="0 0 9 9" xmlns="y" version="1.1">\n<metadata>2026'
        '</metadata>\n<defs>\n<style type="text/css">*{a}</style>\n</defs>\n'
        '<g id="a" clip-path="url(#b)" style="fill: #0072b2; stroke: #222222">'
        '<use xlink:href="#c"/></g></svg>\n'
    )
    assert themed(svg, "f") == (
        '<svg viewBox="0 0 9 9" aria-hidden="true">\n'
        '<g id="f-a" clip-path="url(#f-b)" style="fill: var(--one-projection); '
        'stroke: var(--ink)"><use href="#f-c"/></g></svg>'
    )
