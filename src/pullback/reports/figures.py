"""Figures of evaluations: matplotlib figures out, one panel each, drawn for page and phone alike.

Panels are small, so that their text stays readable on a narrow screen; points are drawn as an
image inside the drawing, so that a page with many rows stays small. No global state of matplotlib
is used: figures are made without pyplot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback._extras import require
from pullback.reports.evaluation import Evaluation

Array = NDArray[np.float64]

# Mid tones: at least 3:1 against a white and against a nearly black page.
BLUE, ORANGE, GREEN = "#3a7fc4", "#d9772b", "#4a9b5e"
# Stand for the page's own ink, which only the page knows; see `svg.py`.
INK = "#010203"
_SIZE = (4.2, 3.3)
_DPI = 144
_MOST_POINTS = 5_000


@dataclass(frozen=True, eq=False)
class Profile:
    """A quantity over one number that sums up the inputs, such as a basket's level.

    Attributes:
        label: of the horizontal axis.
        level: one number a row, [N].
        output: index k of the output.
        input: index d of the derivative's input; None for the value itself.
    """

    label: str
    level: Array
    output: int = 0
    input: int | None = None


def colours(evaluations: Sequence[Evaluation]) -> list[str]:
    """One colour a model; the last, which the report is about, is blue."""
    return [*islice(cycle([ORANGE, GREEN]), len(evaluations) - 1), BLUE]


def new_axes(x_label: str, y_label: str) -> tuple[Any, Any]:
    """An empty panel: figure and axes."""
    figure_module = require("matplotlib.figure", extra="plot", purpose="a figure")
    figure = figure_module.Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    figure.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=INK, linewidth=0.6)
    axes.tick_params(which="both", colors=INK, labelsize=9, width=0.6, length=3)
    axes.set_xlabel(x_label, color=INK, fontsize=10)
    axes.set_ylabel(y_label, color=INK, fontsize=10)
    axes.grid(color=INK, alpha=0.12, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.locator_params(nbins=6)
    return figure, axes


def predicted_against_true(
    evaluations: Sequence[Evaluation], output: int, input: int | None = None
) -> Any:
    """Predicted over true, with the line where both are equal."""
    truth, _ = evaluations[0].quantity(output, input)
    figure, axes = new_axes("true", "predicted")
    for evaluation, colour in zip(evaluations, colours(evaluations), strict=True):
        predicted = evaluation.quantity(output, input)[1]
        _cloud(axes, truth, predicted, colour, evaluation.name)
    low, high = np.nanmin(truth), np.nanmax(truth)
    axes.plot([low, high], [low, high], color=INK, linewidth=0.9, dashes=(4, 3))
    _legend(axes, evaluations)
    return figure


def residuals(evaluations: Sequence[Evaluation], output: int) -> Any:
    """Predicted minus true, over the true value."""
    figure, axes = new_axes("true", "predicted \N{MINUS SIGN} true")
    for evaluation, colour in zip(evaluations, colours(evaluations), strict=True):
        truth, predicted = evaluation.quantity(output)
        _cloud(axes, truth, predicted - truth, colour, evaluation.name)
    axes.axhline(0.0, color=INK, linewidth=0.9, dashes=(4, 3))
    _legend(axes, evaluations)
    return figure


def residual_histogram(evaluations: Sequence[Evaluation], output: int) -> Any:
    """How often residuals of each size occur."""
    figure, axes = new_axes("predicted \N{MINUS SIGN} true", "rows")
    errors = [p - t for t, p in (e.quantity(output) for e in evaluations)]
    reach = max(np.nanquantile(np.abs(error), 0.995) for error in errors) or 1.0
    bins = np.linspace(-reach, reach, 61)
    for evaluation, error, colour in zip(evaluations, errors, colours(evaluations), strict=True):
        axes.hist(error, bins, color=colour, alpha=0.25)
        axes.hist(
            error,
            bins,
            color=colour,
            histtype="step",
            linewidth=1.3,
            label=_legible(evaluation.name),
        )
    _legend(axes, evaluations)
    return figure


def learning_curves(evaluation: Evaluation) -> Any:
    """Each term's part of the loss by epoch; held-out rows dashed.

    One model a panel: a term is weighed by how many labels it has, so that the same term of a
    model with other labels is on another scale.
    """
    training = evaluation.training
    steps = "epoch" if training.optimizer == "adam" else "iteration"
    figure, axes = new_axes(steps, "part of the loss")
    for term, colour in zip(terms_of(evaluation), cycle([BLUE, GREEN, ORANGE]), strict=False):
        axes.plot(
            training.epochs, training.train[term], color=colour, linewidth=1.4, label=term
        )  # fmt: skip
        if term in training.validation:
            axes.plot(
                training.epochs, training.validation[term], color=colour, linewidth=1.2,
                dashes=(4, 2), label=f"{term}, held out",
            )  # fmt: skip
    _log_axis(axes)
    _labels(axes)
    return figure


def terms_of(evaluation: Evaluation) -> list[str]:
    """The terms of the loss that were recorded, without their total unless it is all there is."""
    terms = [term for term, losses in evaluation.training.train.items() if losses]
    return [term for term in terms if term != "total"] or terms


def error_by_distance(evaluations: Sequence[Evaluation], *, derivatives: bool) -> Any:
    """Scaled RMSE in ten groups of equally many rows, by distance from the training data."""
    figure, axes = new_axes("distance from the data's centre [sd]", "scaled RMSE")
    for evaluation, colour in zip(evaluations, colours(evaluations), strict=True):
        error = evaluation.scaled_errors(derivatives=derivatives)
        centres, heights = _grouped(evaluation.distance, error)
        axes.plot(
            centres, heights, color=colour, linewidth=1.4, marker="o", markersize=4,
            label=_legible(evaluation.name),
        )  # fmt: skip
    axes.set_ylim(bottom=0.0)
    _legend(axes, evaluations)
    return figure


def profile(evaluations: Sequence[Evaluation], view: Profile, which: int) -> Any:
    """Truth, and the predictions of model number `which`, over a level.

    The vertical axis is that of all models, so that panels can be compared.
    """
    output, input = view.output, view.input
    figure, axes = new_axes(_legible(view.label), "")
    order = np.argsort(view.level)
    truth = evaluations[0].quantity(output, input)[0]
    predicted = [evaluation.quantity(output, input)[1] for evaluation in evaluations]
    _points(axes, view.level, predicted[which], colours(evaluations)[which], "predicted")
    axes.plot(view.level[order], truth[order], color=INK, linewidth=1.0, label="exact")
    low, high = np.nanmin([truth, *predicted]), np.nanmax([truth, *predicted])
    margin = 0.04 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)
    _labels(axes)
    return figure


def _grouped(distance: Array, error: Array) -> tuple[Array, Array]:
    known = ~np.isnan(error)
    order = np.argsort(distance[known], kind="stable")
    groups = [group for group in np.array_split(order, 10) if len(group)]
    centres = [distance[known][group].mean() for group in groups]
    return np.array(centres), np.array([np.sqrt(np.mean(error[known][g] ** 2)) for g in groups])


def _cloud(axes: Any, x: Array, y: Array, colour: str, label: str) -> None:
    """Points, or where they would cover each other their density."""
    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() <= _MOST_POINTS:
        _points(axes, x, y, colour, label)
        return
    colors = require("matplotlib.colors", extra="plot", purpose="a figure")
    faded = colors.LinearSegmentedColormap.from_list("faded", [f"{colour}30", f"{colour}ff"])
    axes.hexbin(
        x[known], y[known], gridsize=60, bins="log", mincnt=1, cmap=faded, linewidths=0.0,
        rasterized=True,
    )  # fmt: skip
    axes.plot([], [], "o", color=colour, markersize=4, label=_legible(label))


def _points(axes: Any, x: Array, y: Array, colour: str, label: str) -> None:
    step = -(-len(x) // _MOST_POINTS)
    alpha = 0.75 if len(x) <= 300 else 0.35
    axes.plot(
        x[::step], y[::step], "o", color=colour, markersize=2.2, markeredgewidth=0.0, alpha=alpha,
        rasterized=True,
    )  # fmt: skip
    axes.plot([], [], "o", color=colour, markersize=4, label=_legible(label))


def _legible(text: str) -> str:
    """Shown as it is: matplotlib sets $…$ as mathematics, and hides labels that start with _."""
    plain = text.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{plain}" if plain.startswith("_") else plain


def _legend(axes: Any, evaluations: Sequence[Evaluation]) -> None:
    if len(evaluations) > 1:
        _labels(axes)


def _labels(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9, labelcolor=INK, frameon=False, handlelength=1.4)


def _log_axis(axes: Any) -> None:
    ticker = require("matplotlib.ticker", extra="plot", purpose="a figure")
    values = [v for line in axes.lines for v in np.asarray(line.get_ydata(), float)]
    if not values or min(values) <= 0.0 or max(values) < 3.0 * min(values):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    # Plain numbers: powers set as mathematics would bring fonts that the page does not have.
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
