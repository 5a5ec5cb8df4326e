"""Tables that fit a terminal: one number below the other where it is narrow."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

ROOMY = 1000
"""Columns in which every table has the width that it asks for."""


def show(terminal: Console, table: Table) -> None:
    """Print a table, turned where it would be cut or broken up."""
    roomy = terminal.options.update(max_width=ROOMY)
    if terminal.measure(table, options=roomy).maximum > terminal.width:
        table = turned(table)
    terminal.print(table)


def turned(table: Table) -> Table:
    """The same table with a line for every cell that is not empty.

    Example:
        >>> table = Table("runs", "seconds")
        >>> table.add_row("cuts", "1.5")
        >>> turned(table).row_count
        2
    """
    found = Table(title=table.title, caption=table.caption, show_header=False)
    found.add_column(no_wrap=True)
    found.add_column(overflow="fold")
    rows = zip(*(column.cells for column in table.columns), strict=True)
    for row in rows:
        if found.row_count:
            found.add_section()
        for column, cell in zip(table.columns, row, strict=True):
            if str(cell):
                found.add_row(column.header, cell)
    return found
