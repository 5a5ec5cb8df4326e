"""Tables as CSV and LaTeX say what the page says."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneproj_paper.experiments.record_schema import Record
from oneproj_paper.report.certificate_table import certificate_table
from oneproj_paper.report.data_tables import data_tables
from oneproj_paper.report.formats import SPECIAL, WIDE, csv_text, escape, latex_text
from oneproj_paper.report.groups import group_records
from oneproj_paper.report.result_tables import result_tables
from oneproj_paper.report.runtime_table import runtime_table
from oneproj_paper.report.tables import Table


@pytest.fixture(scope="module", name="tables")
def fixture_tables(records: list[Record]) -> list[Table]:
    groups = group_records(records)
    return [
        *result_tables(groups, {}),
        *data_tables(groups),
        runtime_table(groups),
        certificate_table(groups),
    ]


def test_csv_comes_back_in_full_precision(tables: list[Table]) -> None:
    for table in tables:
        rows = list(csv.DictReader(io.StringIO(csv_text(table))))
        assert len(rows) == len(table.lines)
        for row, line in zip(rows, table.lines, strict=True):
            assert None not in row
            assert tuple(row[label] for label in table.labels) == line.labels
            assert row["Verdict"] == line.verdict
            for column, cell in zip(table.columns, line.cells, strict=True):
                values = tuple(row[field] for field in column.fields)
                assert values == cell.fields[: len(values)]


def test_csv_numbers_are_those_of_the_records(records: list[Record]) -> None:
    groups = group_records(records)
    rows = list(csv.DictReader(io.StringIO(csv_text(runtime_table(groups)))))
    for row, group in zip(rows, groups, strict=True):
        seconds = [record.runtime for record in group.records]
        assert float(row["Runtime (s)"]) == pytest.approx(sum(seconds) / 2, rel=1e-15)


def test_csv_has_numbers_that_programs_read(tables: list[Table]) -> None:
    (table,) = (table for table in tables if table.key == "transfer-budgets")
    row = next(csv.DictReader(io.StringIO(csv_text(table))))
    assert (row["Updates"], row["Updates, paper"]) == ("3000", "3000")
    for each in tables:
        for line in csv.DictReader(io.StringIO(csv_text(each))):
            cells = (v for k, v in line.items() if k not in {"Verdict", "Reasons"})
            assert not any(re.search(r"\d,\d", cell) for cell in cells)


def test_wide_tables_fit_the_text_and_formulas_are_whole(tables: list[Table]) -> None:
    texts = {table.key: latex_text(table) for table in tables}
    assert r"every constraint is $\le 0$ on" in texts["certificates"]
    assert r"($\beta_0$, $\beta_1$)" in texts["calibration"]
    for table in tables:
        text = texts[table.key]
        wide = len(table.labels) + sum(1 + c.compared for c in table.columns) >= WIDE
        assert (r"\resizebox{\linewidth}" in text) == wide
        assert ("graphicx" in text) == wide
        assert text.count("{") == text.count("}")
    assert r"\resizebox" not in latex_text(Table("t", "T", "", ("Data",), (), ()))


def unescape(text: str) -> str:
    for sign, code in sorted(SPECIAL.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(code, sign)
    return text


def test_latex_holds_every_number_shown(tables: list[Table]) -> None:
    for table in tables:
        text = latex_text(table)
        body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
        rows = [row for row in body.splitlines()[1:] if row]
        assert len(rows) == len(table.lines)
        columns = re.search(r"\\begin\{tabular\}\{@\{\}([lr]*)@\{\}\}", text)
        assert columns
        for row, line in zip(rows, table.lines, strict=True):
            assert row.endswith(r" \\")
            cells = [unescape(c) for c in row.removesuffix(r" \\").split(" & ")]
            assert len(cells) == len(columns[1])
            assert cells[0].startswith(line.labels[0])
            for flag in line.flags:
                assert flag in cells[0]
            for cell in line.cells:
                assert any(cell.ours in each for each in cells)
                assert cell.paper in cells or not cell.paper
        assert text.isascii()


@given(st.text(alphabet="ab&%$#_{}~^<>\\", max_size=30))
def test_escape_leaves_no_special_sign(text: str) -> None:
    escaped = escape(text)
    known = sorted(SPECIAL.values(), key=len, reverse=True)
    rest = re.sub("|".join(re.escape(code) for code in known), "", escaped)
    assert set(rest) <= {"a", "b"}
