"""The report: one HTML page that holds everything it shows, of one model or of several."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from pullback.errors import InputError
from pullback.reports import markup, sections
from pullback.reports.evaluation import Evaluation
from pullback.reports.figures import Profile
from pullback.tables.replacing import replacing

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="soft">{subtitle}</p>
</header>
<main>
{summary}<nav aria-label="Sections"><ul>{links}</ul></nav>
{body}</main>
<footer>{footer}</footer>
</body>
</html>
"""


def write_page(
    path: str | Path,
    evaluations: Sequence[Evaluation],
    *,
    title: str,
    subtitle: str = "",
    profiles: Sequence[Profile] = (),
) -> None:
    """Write the report of one model, or of several over the same rows, as one HTML file.

    Raises:
        FileError: the folder is not there.
        InputError: the evaluations are not of the same rows.
        MissingExtraError: matplotlib is not installed.
    """
    page = render_page(evaluations, title=title, subtitle=subtitle, profiles=profiles)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_page(
    evaluations: Sequence[Evaluation],
    *,
    title: str,
    subtitle: str = "",
    profiles: Sequence[Profile] = (),
) -> str:
    """The page as text. See `write_page`."""
    _check_same_rows(evaluations)
    parts = list(_sections(evaluations, profiles))
    last = evaluations[-1]
    return _PAGE.format(
        title=markup.text(title),
        subtitle=markup.text(subtitle or f"{len(last):,} test rows"),
        style=files("pullback.reports").joinpath("page.css").read_text(encoding="utf-8"),
        links="".join(
            f'<li><a href="#{name}">{markup.text(head)}</a></li>' for name, head, _ in parts
        ),
        summary=sections.summary(evaluations),
        body="".join(markup.section(name, heading, inner) for name, heading, inner in parts),
        footer=markup.text(
            f"pullback {last.training.versions['pullback']}, {datetime.now():%d %B %Y}"
        ),
    )


def _sections(
    evaluations: Sequence[Evaluation], profiles: Sequence[Profile]
) -> Iterator[tuple[str, str, str]]:
    """Name, heading and content of each section."""
    if len(evaluations) > 1:
        yield "models", "Side by side", sections.side_by_side(evaluations)
    if profiles:
        yield "curves", "Exact and predicted curves", sections.profiles(evaluations, profiles)
    yield "predictions", "Predicted against true", sections.predictions(evaluations)
    yield "residuals", "Residuals", sections.residuals(evaluations)
    yield "learning", "Learning curves", sections.learning(evaluations)
    yield "distance", "Error and distance from the data", sections.distance(evaluations)
    yield "outside", "Outside the training domain", sections.outside(evaluations)
    yield "metrics", "Metrics", sections.metrics(evaluations)
    yield "training", "How it was trained", sections.training(evaluations)


def _check_same_rows(evaluations: Sequence[Evaluation]) -> None:
    if not evaluations:
        raise InputError("render_page: expected at least one evaluation, got none")
    first = evaluations[0]
    for other in evaluations[1:]:
        same = first.columns.inputs == other.columns.inputs
        same &= first.columns.outputs == other.columns.outputs
        if not same or len(first) != len(other) or not (first.x == other.x).all():
            raise InputError(
                f"render_page: expected models of the same columns over the same rows, got "
                f"{first.name!r} and {other.name!r} over others"
            )
