"""Tables as files: CSV in full precision, LaTeX with booktabs as it is shown."""

from __future__ import annotations

import csv
import io

from oneproj.report.tables import NONE, PLUS_MINUS, Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    PLUS_MINUS: r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "\N{GREEK SMALL LETTER BETA}": r"$\beta$",
    "\N{SUBSCRIPT ZERO}": "$_0$",
    "\N{SUBSCRIPT ONE}": "$_1$",
    NONE: "--",
}
"""What LaTeX would not print as it is."""


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
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(f'{table.title}. {table.caption}')}}}",
            rf"\label{{tab:oneproj-{table.key}}}",
            rf"\begin{{tabular}}{{@{{}}{align}@{{}}}}",
            r"\toprule",
            _row(headings),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    Example:
        >>> escape("5 % of a_b")
        '5 \\% of a\\_b'
    """
    return "".join(SPECIAL.get(sign, sign) for sign in text)


def _shown(cell: Cell) -> str:
    return f"{cell.ours} (extrapolated)" if cell.note == "extrapolated" else cell.ours


def _row(cells: list[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
