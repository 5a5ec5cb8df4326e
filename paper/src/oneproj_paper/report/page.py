"""The page: everything above, put into one HTML file that asks for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from oneproj_paper.report.figures import SUFFIXES, FigureEntry
from oneproj_paper.report.inline import THEME
from oneproj_paper.report.overview import Overview
from oneproj_paper.report.surroundings import Surroundings
from oneproj_paper.report.tables import Table


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own.

    Example:
        >>> Section("runtime", "Runtime", (), ()).title
        'Runtime'
    """

    key: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[FigureEntry, ...]


def render_page(
    overview: Overview,
    sections: Sequence[Section],
    surroundings: Surroundings,
    *,
    beside: str,
) -> str:
    """The text of the page.

    Args:
        overview: Comes first.
        sections: In their order.
        surroundings: Come last.
        beside: Folder of the files, from the page; links to them are relative.
    """
    from jinja2 import Environment, StrictUndefined

    folder = files("oneproj_paper.report").joinpath("templates")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["theme"] = theme_colour
    template = environment.from_string(folder.joinpath("page.html").read_text("utf-8"))
    content: dict[str, Any] = {
        "overview": overview,
        "sections": sections,
        "surroundings": surroundings,
        "beside": beside,
        "suffixes": SUFFIXES,
        "style": folder.joinpath("page.css").read_text("utf-8"),
    }
    return template.render(content)


def theme_colour(colour: str) -> str:
    """The CSS of a figure's colour, so that legends follow the theme as figures do.

    Example:
        >>> theme_colour("#222222"), theme_colour("#123456")
        ('var(--ink)', '#123456')
    """
    return f"var(--{THEME[colour]})" if colour in THEME else colour
