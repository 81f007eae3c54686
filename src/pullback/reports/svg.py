"""A matplotlib figure as an SVG element that lives in a page: its ink, its font, readable aloud."""

import hashlib
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
    return f'<svg role="img" aria-label="{label}" {box[0]}>{_cleaned(rest, description)}'.strip()


def _cleaned(text: str, description: str) -> str:
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor")
    text = _own_names(text, description)
    text = re.sub(r"(font: [^']*?px) [^;\"]*", r"\1 system-ui, sans-serif", text)
    text = text.replace("xlink:href", "href")
    return re.sub(r"\n\s*", "\n", text)


def _own_names(text: str, description: str) -> str:
    """Keep names that are referred to, made unlike those of every other drawing in the page."""
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    prefix = f"f{hashlib.sha256((description + text).encode()).hexdigest()[:8]}-"
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'((?:href="|url\()#)', rf"\g<1>{prefix}", text)
