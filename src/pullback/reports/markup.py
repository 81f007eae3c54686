"""Small pieces of HTML; every text that comes from outside is escaped here."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pullback.reports.svg import svg


def text(value: object) -> str:
    """Text that is shown as it is, whatever signs it holds."""
    return escape(str(value), quote=True)


def section(name: str, heading: str, *parts: str) -> str:
    """A section that the table of contents can point at."""
    return f'<section id="{name}" aria-labelledby="{name}-h">\n<h2 id="{name}-h">{text(heading)}</h2>\n{"".join(parts)}</section>\n'  # noqa: E501


def paragraphs(sentences: Iterable[str], *, style: str = "") -> str:
    """One paragraph a sentence."""
    inner = "".join(f"<p>{text(sentence)}</p>\n" for sentence in sentences)
    return f'<div class="{style}">{inner}</div>\n' if style else inner


def figure(drawing: Any, title: str, description: str, caption: str = "") -> str:
    """A matplotlib figure with a heading, an alternative text and, if given, a caption."""
    below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{text(title)}</h3>\n{svg(drawing, description)}\n{below}</figure>\n"


def figures(panels: Iterable[str], *, pairs: bool = False) -> str:
    """Panels beside each other, as many as fit, or at most two."""
    style = "figures pairs" if pairs else "figures"
    return f'<div class="{style}">\n{"".join(panels)}</div>\n'


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    best: int | None = None,
    notes: bool = False,
) -> str:
    """A table whose first column heads its rows; it scrolls sideways where it must.

    Args:
        caption: what the table shows.
        headings: of the columns.
        rows: cells as text.
        best: number of the row that stands out.
        notes: whether the last column holds words.
    """
    head = "".join(f'<th scope="col">{text(heading)}</th>' for heading in headings)
    body = "".join(_row(cells, best=index == best, notes=notes) for index, cells in enumerate(rows))
    return (
        # Not a <caption>: that would be as wide as the table, and cut off on a narrow screen.
        f'<p class="caption" aria-hidden="true">{text(caption)}</p>\n'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">\n'
        f'<table aria-label="{text(caption)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def _row(cells: Sequence[str], *, best: bool, notes: bool) -> str:
    first, *others = cells
    kinds = [' class="note"' if notes and i == len(others) - 1 else "" for i in range(len(others))]
    rest = "".join(f"<td{kind}>{text(c)}</td>" for kind, c in zip(kinds, others, strict=True))
    style = ' class="best"' if best else ""
    return f'<tr{style}><th scope="row">{text(first)}</th>{rest}</tr>\n'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Terms and what belongs to them."""
    inner = "".join(f"<dt>{text(term)}</dt><dd>{text(value)}</dd>\n" for term, value in pairs)
    return f'<dl class="facts">\n{inner}</dl>\n'


def tiles(pairs: Iterable[tuple[str, str, str]]) -> str:
    """A few figures to be seen first: label, figure, unit."""
    inner = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(figure)} <small>{text(unit)}</small></dd></div>\n"
        for label, figure, unit in pairs
    )
    return f'<dl class="tiles">\n{inner}</dl>\n'


def folded(heading: str, inner: str) -> str:
    """Shown when asked for."""
    return f"<details><summary>{text(heading)}</summary>\n{inner}</details>\n"
