"""Figures inside the page: SVG that follows the page's theme and shares no names."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from oneproj_paper.report.style import COLOURS, GRID, INK, SLACK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEME = {INK: "ink", GRID: "grid", SLACK: "slack"} | {
    colour: method for method, colour in COLOURS.items()
}
"""Colours of the figures and the CSS variables that stand for them on the page."""


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as an element of a page, without colours or identifiers of its own.

    Text stays text. The background is the page's. Matplotlib numbers the parts of
    every figure alike, so a name is put before each identifier.

    Args:
        figure: To draw.
        name: Unique on the page.
    """
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return themed(stream.getvalue(), name)


def themed(svg: str, name: str) -> str:
    """An SVG file made fit for a page; see ``inline_svg``.

    Example:
        >>> themed('<svg width="9pt"><g id="a" style="fill: #222222"/></svg>', "f")
        '<svg aria-hidden="true"><g id="f-a" style="fill: var(--ink)"/></svg>'
    """
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, flags=re.DOTALL)
    root, rest = re.match(r"<svg([^>]*)>(.*)", svg, re.DOTALL).groups()  # type: ignore[union-attr]
    root = re.sub(r'\s(width|height|version|xmlns(:xlink)?)="[^"]*"', "", root)
    rest = rest.replace("xlink:href", "href")
    rest = re.sub(r'\bid="', f'id="{name}-', rest)
    rest = re.sub(r'href="#', f'href="#{name}-', rest)
    rest = re.sub(r"url\(#", f"url(#{name}-", rest)
    for colour, variable in THEME.items():
        rest = re.sub(colour, f"var(--{variable})", rest, flags=re.IGNORECASE)
    root = root.replace("\n", " ").rstrip()
    return f'<svg{root} aria-hidden="true">{rest}'
