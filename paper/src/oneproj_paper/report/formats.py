"""Tables as files: CSV in full precision, LaTeX with booktabs as on the page."""

from __future__ import annotations

import csv
import io
import re

from oneproj_paper.report.tables import NONE, PLUS_MINUS, Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<= 0": r"$\le 0$",
    "<=": r"$\le$",
    "<": "$<$",
    ">": "$>$",
    PLUS_MINUS: r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "\N{GREEK SMALL LETTER BETA}\N{SUBSCRIPT ZERO}": r"$\beta_0$",
    "\N{GREEK SMALL LETTER BETA}\N{SUBSCRIPT ONE}": r"$\beta_1$",
    "\N{GREEK SMALL LETTER BETA}": r"$\beta$",
    NONE: "--",
}
"""What LaTeX would not print itself; longer signs come before their beginnings."""
_SPECIAL = re.compile("|".join(re.escape(text) for text in SPECIAL))
WIDE = 8
"""Columns from which a table is scaled to the width of the text."""


def csv_text(table: Table) -> str:
    r"""A heading, then a line per row: labels, numbers, flags, verdict, reasons.

    Example:
        >>> csv_text(Table("t", "T", "", ("Data",), (), ()))
        'Data,Flags,Verdict,Reasons\n'
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    fields = [field for column in table.columns for field in column.fields]
    writer.writerow([*table.labels, *fields, "Flags", "Verdict", "Reasons"])
    for line in table.lines:
        cells = [
            value
            for cell, column in zip(line.cells, table.columns, strict=True)
            for value in cell.fields[: len(column.fields)]
        ]
        about = ["; ".join(line.flags), line.verdict, " ".join(line.reasons)]
        writer.writerow([*line.labels, *cells, *about])
    return stream.getvalue()


def latex_text(table: Table) -> str:
    r"""A booktabs table; the paper's number follows ours in its own column.

    One with many columns is scaled down to the width of the text.

    Example:
        >>> print(latex_text(Table("t", "T", "All.", ("Data",), (), ())))
        % needs \usepackage{booktabs}
        \begin{table}
        \centering
        \caption{T. All.}
        \label{tab:oneproj-t}
        \begin{tabular}{@{}l@{}}
        \toprule
        Data \\
        \midrule
        \bottomrule
        \end{tabular}
        \end{table}
        <BLANKLINE>
    """
    compared = [column.compared for column in table.columns]
    headings = list(table.labels)
    for column in table.columns:
        headings += [column.heading, "paper"] if column.compared else [column.heading]
    align = "l" * len(table.labels) + "r" * (len(headings) - len(table.labels))
    rows = []
    for line in table.lines:
        flags = f" ({', '.join(line.flags)})" if line.flags else ""
        cells = [line.labels[0] + flags, *line.labels[1:]]
        for cell, both in zip(line.cells, compared, strict=True):
            cells += [_shown(cell), cell.paper] if both else [_shown(cell)]
        rows.append(_row(cells))
    wide = len(headings) >= WIDE
    packages = "booktabs, graphicx" if wide else "booktabs"
    return "\n".join(
        [
            rf"% needs \usepackage{{{packages}}}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(f'{table.title}. {table.caption}')}}}",
            rf"\label{{tab:oneproj-{table.key}}}",
            *([r"\resizebox{\linewidth}{!}{%"] if wide else []),
            rf"\begin{{tabular}}{{@{{}}{align}@{{}}}}",
            r"\toprule",
            _row(headings),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}" + ("}" if wide else ""),
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    Example:
        >>> escape("5 % of a_b")
        '5 \\% of a\\_b'
        >>> escape("g <= 0")
        'g $\\le 0$'
    """
    return _SPECIAL.sub(lambda found: SPECIAL[found[0]], text)


def _shown(cell: Cell) -> str:
    return f"{cell.ours} (extrapolated)" if cell.note == "extrapolated" else cell.ours


def _row(cells: list[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
