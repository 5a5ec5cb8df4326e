"""In a notebook: progress by default, and results as tables."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import sys, warnings
warnings.simplefilter("error")
import torch, oneproj
w = torch.zeros(2, requires_grad=True)
goal = oneproj.function(lambda: (w - torch.tensor([3.0, 4.0])).square().sum())
size = oneproj.function(lambda: w.square().sum(), curvature="convex")
problem = oneproj.Problem(w, goal, {"size <b>& more</b>": size <= 1.0})
"""
AGAIN = "w.data.zero_(); "  # a start that the run improves on
CELLS = (
    SETUP,
    "solution = oneproj.solve(problem, steps=200)",
    "solution",
    "solution.projection",
    "solution.certificate",
    f"{AGAIN}oneproj.solve(problem, steps=20, progress=False).feasible",
    'sys.modules["rich"] = None  # as if it were not installed',
    f"{AGAIN}oneproj.solve(problem, steps=20).feasible",
    f"{AGAIN}oneproj.solve(problem, steps=20, progress=True).feasible",
)


@pytest.fixture(scope="module")
def outputs() -> list[list[Any]]:
    """What each cell of a notebook shows when it is run."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS]
    )
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", allow_errors=True
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def streamed(cell: list[Any], name: str) -> str:
    found = [
        out.text for out in cell if out.output_type == "stream" and out.name == name
    ]
    return "".join(found)


def shown(cell: list[Any]) -> dict[str, Any]:
    (result,) = [out for out in cell if out.output_type == "execute_result"]
    data: dict[str, Any] = json.loads(json.dumps(result.data))
    return data


def test_nothing_is_warned_of_or_raised(outputs: list[list[Any]]) -> None:
    kinds = {out.output_type for cell in outputs for out in cell}
    assert kinds == {"stream", "execute_result"}
    told = "".join(streamed(cell, "stderr") for cell in outputs)
    assert "Warning" not in told
    assert "ipywidgets" not in told


def test_progress_is_shown_by_default_and_over_one_line(
    outputs: list[list[Any]],
) -> None:
    text = streamed(outputs[1], "stderr")
    assert "training" in text
    assert text.endswith("200/200 (100%)\n")
    assert text.count("\n") == 1
    assert text.startswith("\r")
    assert streamed(outputs[1], "stdout") == "", "standard output belongs to the user"


def test_progress_can_be_switched_off(outputs: list[list[Any]]) -> None:
    assert streamed(outputs[5], "stderr") == ""
    assert shown(outputs[5])["text/plain"] == "True"


@pytest.mark.parametrize("which", [7, 8], ids=["by default", "asked for"])
def test_progress_needs_no_rich(outputs: list[list[Any]], which: int) -> None:
    assert "20/20 (100%)" in streamed(outputs[which], "stderr")
    assert shown(outputs[which])["text/plain"] == "True"


class Cells(HTMLParser):
    """The cells of tables, and every tag that was met."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize(
    ("which", "cells"),
    [
        (2, ["status", "objective", "residual: size <b>& more</b>", "feasibility"]),
        (3, ["status", "distance moved", "size <b>& more</b>", "multiplier"]),
        (4, ["measure", "feasibility", "KKT residual"]),
    ],
    ids=["solution", "projection", "certificate"],
)
def test_a_result_is_a_table(
    outputs: list[list[Any]], which: int, cells: list[str]
) -> None:
    page = Cells()
    page.feed(shown(outputs[which])["text/html"])
    assert set(cells) <= set(page.cells)
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "p"}, "escaped"
