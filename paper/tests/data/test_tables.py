"""Reading columns, and refusing the wrong file."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

import numpy as np
import pytest

from oneproj_paper.data.tables import check_counts, read_columns
from oneproj_paper.errors import InvalidDataError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(',"y",a b,c\n1,0,2.5,NA\n2,1,-3e2,\n')
    return path


def test_columns_come_by_name_and_missing_values_as_nan(table: Path) -> None:
    found = read_columns(table, ["c", "y", "a b"])
    expected = [[np.nan, 0.0, 2.5], [np.nan, 1.0, -300.0]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns", [["y", "c"], ["a b", "y"]])
def test_what_spreadsheets_make_of_a_table_is_the_same_table(
    table: Path, columns: list[str]
) -> None:
    expected = read_columns(table, columns)
    lines = [line.split(",") for line in table.read_text().replace('"', "").split()]
    lines = [",".join(f'"{cell}"' for cell in cells) for cells in lines]
    text = "\r\n".join(['"","y","a b","c"', *lines[2:], ""])
    table.write_bytes(codecs.BOM_UTF8 + text.encode())
    np.testing.assert_array_equal(read_columns(table, columns), expected)
    table.write_bytes(codecs.BOM_UTF8 + b"y,c\n1,2\n")
    assert read_columns(table, ["y"]).tolist() == [[1.0]]


def test_an_absent_column_is_named_with_those_that_are_there(table: Path) -> None:
    with pytest.raises(InvalidDataError, match=r"no column z, w\..*y, a b, c"):
        read_columns(table, ["y", "z", "w"])


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"\x1f\x8b\x08", "is no text file")]
)
def test_what_is_no_text_is_named(table: Path, content: bytes, message: str) -> None:
    table.write_bytes(content)
    with pytest.raises(InvalidDataError, match=message):
        read_columns(table, ["y"])


def test_text_is_not_silently_a_missing_number(table: Path) -> None:
    table.write_text(table.read_text() + "3,1,many,1\n")
    with pytest.raises(InvalidDataError, match="could not be read as numbers"):
        read_columns(table, ["a b"])


def test_ctrl_c_is_not_blamed_on_the_file(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(text: str) -> float:
        raise KeyboardInterrupt(text)

    monkeypatch.setattr("oneproj_paper.data.tables._number", pressed)
    with pytest.raises(KeyboardInterrupt):
        read_columns(table, ["y"])


@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0], [0, 0, 1, 2]])
def test_other_counts_are_refused_with_what_was_found(labels: list[int]) -> None:
    message = re.escape(f"table.csv holds {len(labels)} rows")
    with pytest.raises(InvalidDataError, match=message):
        check_counts(Path("table.csv"), np.array(labels, dtype=float), (2, 1))
