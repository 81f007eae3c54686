"""Small pieces of HTML; every text that comes from outside is escaped here."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest
from typing import Any

from pullback.reports.svg import svg


def text(value: object) -> str:
    """Text that is shown as it is, whatever signs it holds; a figure stays with its sign."""
    joined = re.sub(r"(?<=\d) (?=%)|(?<=R²) (?=[-\d])", "\N{NO-BREAK SPACE}", str(value))
    return escape(joined, quote=True)


def words(value: object) -> str:
    """Text with names in it, which may be broken where they are joined."""
    return re.sub(r"(?<=[_/])(?=\w)", "<wbr>", text(value))


def section(name: str, heading: str, *parts: str) -> str:
    """A section that the table of contents can point at."""
    head = f'<h2 id="{name}-h">{text(heading)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-h">\n{head}\n{"".join(parts)}</section>\n'


def paragraphs(sentences: Iterable[str], *, style: str = "") -> str:
    """One paragraph a sentence."""
    inner = "".join(f"<p>{words(sentence)}</p>\n" for sentence in sentences)
    return f'<div class="{style}">{inner}</div>\n' if style else inner


def figure(drawing: Any, title: str, description: str, caption: str = "") -> str:
    """A matplotlib figure with a heading, an alternative text and, if given, a caption."""
    below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{words(title)}</h3>\n{svg(drawing, description)}\n{below}</figure>\n"


def figures(panels: Iterable[str], *, pairs: bool = False) -> str:
    """Panels beside each other, as many as fit, or at most two."""
    style = "figures pairs" if pairs else "figures"
    return f'<div class="{style}">\n{"".join(panels)}</div>\n'


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    marked: int | None = None,
    notes: Sequence[str] = (),
) -> str:
    """A table whose first column heads its rows; it scrolls sideways where it must.

    Args:
        caption: what the table shows.
        headings: of the columns.
        rows: cells as text.
        marked: number of the row that the report is about.
        notes: a remark on each row, or an empty text.
    """
    head = "".join(f'<th scope="col">{text(heading)}</th>' for heading in headings)
    body = "".join(
        _row(cells, note=note, marked=index == marked)
        for index, (cells, note) in enumerate(zip_longest(rows, notes, fillvalue=""))
    )
    return (
        # Not a <caption>: that would be as wide as the table, and cut off on a narrow screen.
        f'<p class="caption" aria-hidden="true">{text(caption)}</p>\n'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">\n'
        f'<table aria-label="{text(caption)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def _row(cells: Sequence[str], *, note: str, marked: bool) -> str:
    first, *others = cells
    remark = f"<small>{text(note)}</small>" if note else ""
    rest = "".join(f"<td>{text(cell)}</td>" for cell in others)
    style = ' class="marked"' if marked else ""
    return f'<tr{style}><th scope="row">{words(first)}{remark}</th>{rest}</tr>\n'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Terms and what belongs to them."""
    inner = "".join(f"<dt>{words(term)}</dt><dd>{words(value)}</dd>\n" for term, value in pairs)
    return f'<dl class="facts">\n{inner}</dl>\n'


def tiles(pairs: Iterable[tuple[str, str, str]]) -> str:
    """A few figures to be seen first: label, figure, unit."""
    inner = "".join(
        f"<div><dt>{words(label)}</dt><dd>{text(figure)} <small>{text(unit)}</small></dd></div>\n"
        for label, figure, unit in pairs
    )
    return f'<dl class="tiles">\n{inner}</dl>\n'


def folded(heading: str, inner: str) -> str:
    """Shown when asked for."""
    return f"<details><summary>{text(heading)}</summary>\n{inner}</details>\n"
