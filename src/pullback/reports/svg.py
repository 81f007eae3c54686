"""A matplotlib figure as an SVG element that lives in a page: its ink, its font, readable aloud."""

import io
import re
from html import escape
from typing import Any

from pullback._extras import require
from pullback.reports.figures import INK

_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and found by a search in the page
    "svg.hashsalt": "pullback",  # the same figure gives the same bytes
    "axes.unicode_minus": True,
}


def svg(figure: Any, description: str) -> str:
    """The figure as `<svg>`, with `description` as its alternative text."""
    matplotlib = require("matplotlib", extra="plot", purpose="a figure")
    stream = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    body = text[text.index("<svg") :]
    opening, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None, "matplotlib writes a viewBox"
    label = escape(description, quote=True)
    return f'<svg role="img" aria-label="{label}" {box[0]}>{_cleaned(rest)}'.strip()


def _cleaned(text: str) -> str:
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor")
    # Names that matplotlib counts up in every figure would be there twice in a page.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r"(font: [^']*?px) [^;\"]*", r"\1 system-ui, sans-serif", text)
    text = text.replace("xlink:href", "href")
    return re.sub(r"\n\s*", "\n", text)
