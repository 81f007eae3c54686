"""The sections of the report page, each made from evaluations of the same rows."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pullback.learning.columns import Columns
from pullback.reports import figures as draw
from pullback.reports import markup
from pullback.reports.evaluation import Evaluation
from pullback.reports.figures import Profile
from pullback.reports.metrics import Metric, Metrics, rmse
from pullback.reports.words import coefficient, comparison, number, outside_sentence, percent
from pullback.reports.words import summary as summary_of

Evaluations = Sequence[Evaluation]

_MOST_OUTPUTS = 4
_MOST_PANELS = 8
_MOST_INPUTS = 20


def summary(evaluations: Evaluations) -> str:
    """What it comes to, in words and in a few figures."""
    last = evaluations[-1]
    several = len(evaluations) > 1
    sentences = comparison(evaluations) if several else summary_of(last)
    return markup.paragraphs(sentences, style="lead") + markup.tiles(_tiles(last, several))


def _tiles(last: Evaluation, several: bool) -> Iterator[tuple[str, str, str]]:
    metrics, suffix = last.metrics, f", {last.name}" if several else ""
    for metric in metrics.values[:2]:
        yield f"R² of {metric.name}{suffix}", coefficient(metric.r2), ""
        unit = last.columns.unit(metric.name)
        yield f"typical error (RMSE) of {metric.name}{suffix}", number(metric.rmse), unit
    if metrics.mean_scaled_derivative_rmse is not None:
        scaled = number(metrics.mean_scaled_derivative_rmse)
        yield f"scaled RMSE of the derivatives, mean{suffix}", scaled, ""
    for direction in metrics.directions[:1]:
        if len(last.columns.inputs) > 1:
            yield f"mean cosine of the gradient{suffix}", coefficient(direction.cosine), ""


def side_by_side(evaluations: Evaluations) -> str:
    """Two or more models over the same rows."""
    first = evaluations[0]
    headings = ["model", *(f"RMSE of {name}" for name in first.columns.outputs[:_MOST_OUTPUTS])]
    headings += ["mean RMSE of derivatives"] if _alike(first.columns) else []
    headings += ["mean scaled RMSE", "mean cosine", "right sign", "seconds to train"]
    rows = [_side(evaluation) for evaluation in evaluations]
    caption = f"The same {len(first):,} test rows, predicted by each model"
    return markup.table(caption, headings, rows, marked=len(rows) - 1)


def _side(evaluation: Evaluation) -> list[str]:
    metrics = evaluation.metrics
    signs = [m.right_sign for m in metrics.derivatives if m.right_sign is not None]
    cosine = metrics.directions[0].cosine if metrics.directions else None
    return [
        evaluation.name,
        *(number(metric.rmse) for metric in metrics.values[:_MOST_OUTPUTS]),
        *([number(metrics.mean_derivative_rmse)] if _alike(evaluation.columns) else []),
        number(metrics.mean_scaled_derivative_rmse),
        coefficient(cosine),
        percent(float(np.mean(signs)) if signs else None),
        f"{evaluation.training.seconds:.1f}",
    ]


def _alike(columns: Columns) -> bool:
    """Whether all derivatives have one unit, so that the mean of their RMSE means something."""
    one_unit = len({columns.unit(name) for name in columns.inputs}) == 1
    return len(columns.outputs) == 1 and one_unit


def profiles(evaluations: Evaluations, views: Sequence[Profile]) -> str:
    """Truth and predictions over a level that sums up the inputs, one panel for each model."""
    columns = evaluations[0].columns
    panels = []
    for view in views:
        name = columns.outputs[view.output]
        if view.input is not None:
            name = columns.derivative(name, columns.inputs[view.input])
        for which, evaluation in enumerate(evaluations):
            truth, predicted = evaluation.quantity(view.output, view.input)
            caption = f"RMSE {number(rmse(truth, predicted))}"
            alt = (
                f"{name} over the {view.label}: the exact curve, and as points the predictions of "
                f"{evaluation.name}, which differ from it by {caption}"
            )
            drawing = draw.profile(evaluations, view, which)
            panels.append(markup.figure(drawing, f"{name}, {evaluation.name}", alt, caption))
    return markup.figures(panels, pairs=len(evaluations) == 2)


def predictions(evaluations: Evaluations) -> str:
    """Predicted against true, for values and derivatives."""
    last = evaluations[-1]
    panels = [
        _against(evaluations, metric, k, None)
        for k, metric in enumerate(last.metrics.values[:_MOST_OUTPUTS])
        if metric.rows
    ]
    chosen = _chosen(last.metrics)
    inputs = len(last.columns.inputs)
    panels += [
        _against(evaluations, last.metrics.derivatives[i], *divmod(i, inputs)) for i in chosen
    ]
    words = "Each point is a test row; on the dashed line a prediction is exact. Where points "
    words += "would cover each other, their density is shown."
    if len(last.metrics.derivatives) > len(chosen):
        words += f" Of {len(last.metrics.derivatives)} derivatives "
        words += f"{len(chosen)} are drawn: those that vary and are least well predicted. All are "
        words += "in the table of metrics."
    return f'<p class="soft">{markup.text(words)}</p>' + markup.figures(panels)


def _chosen(metrics: Metrics) -> list[int]:
    """Derivatives to draw: of those that vary all, or the eight with the largest scaled errors."""
    varying = [i for i, metric in enumerate(metrics.derivatives) if metric.r2 is not None]
    worst = sorted(varying, key=lambda i: -(metrics.derivatives[i].scaled_rmse or 0.0))
    return sorted(worst[:_MOST_PANELS])


def _against(evaluations: Evaluations, metric: Metric, output: int, input: int | None) -> str:
    label = evaluations[0].columns.label(metric.name)
    drawing = draw.predicted_against_true(evaluations, output, input)
    fit = f"R² {coefficient(metric.r2)}" if metric.r2 is not None else metric.note
    caption = f"{fit}, RMSE {number(metric.rmse)}"
    if len(evaluations) > 1:
        caption = f"{evaluations[-1].name}: {caption}"
    return markup.figure(
        drawing, label, f"Predicted against true {metric.name}. {caption}", caption
    )


def residuals(evaluations: Evaluations) -> str:
    """What is left between prediction and truth."""
    last = evaluations[-1]
    panels = []
    for k, metric in enumerate(last.metrics.values[:_MOST_OUTPUTS]):
        if not metric.rows:
            continue
        size = f"their root mean square is {number(metric.rmse)} for {last.name}"
        panels.append(
            markup.figure(
                draw.residuals(evaluations, k), f"{metric.name}: over the true value",
                f"Residuals of {metric.name} over its true value; {size}",
            )
        )  # fmt: skip
        panels.append(
            markup.figure(
                draw.residual_histogram(evaluations, k), f"{metric.name}: how often",
                f"Histogram of the residuals of {metric.name}; {size}",
            )
        )  # fmt: skip
    return markup.figures(panels)


def learning(evaluations: Evaluations) -> str:
    """Loss by epoch, one panel for each model."""
    panels = []
    for evaluation in evaluations:
        run = evaluation.training
        ends = [
            f"{term} ends at {number(run.train[term][-1])}" for term in draw.terms_of(evaluation)
        ]
        if ends:
            alt = f"Terms of the loss of {evaluation.name} in training: {', '.join(ends)}"
            panels.append(markup.figure(draw.learning_curves(evaluation), evaluation.name, alt))
    if not panels:
        return markup.paragraphs(["No losses were recorded."])
    words = (
        "Mean squared errors of standardised quantities, each term with its weight: the terms of a "
        "model add up to its loss. Between models with different labels they do not compare."
    )
    if any(evaluation.training.validation for evaluation in evaluations):
        words += " Dashed: rows held out of training."
    return f'<p class="soft">{words}</p>' + markup.figures(panels)


def distance(evaluations: Evaluations) -> str:
    """Error against distance from the training data."""
    last = evaluations[-1]
    words = (
        "Test rows in ten groups of equal size, by their distance from the centre of the training "
        "data in standard deviations. A curve that rises to the right says where more data would "
        "help."
    )
    alt = "Scaled RMSE of {} by distance from the centre of the training data, in ten groups"
    panels = [
        markup.figure(
            draw.error_by_distance(evaluations, derivatives=derivatives), what, alt.format(what)
        )
        for derivatives, what, metrics in (
            (False, "values", last.metrics.values),
            (True, "derivatives", last.metrics.derivatives),
        )
        if any(metric.scaled_rmse is not None for metric in metrics)
    ]
    return f'<p class="soft">{words}</p>' + markup.figures(panels)


def outside(evaluations: Evaluations) -> str:
    """Rows outside the training domain, and how the test inputs lie to it."""
    last = evaluations[-1]
    parts = [markup.paragraphs([outside_sentence(last)])]
    if last.outside.any():
        parts.append(_inside_and_outside(evaluations))
    parts.append(markup.folded("Ranges of the inputs", _ranges(last)))
    return "".join(parts)


def _inside_and_outside(evaluations: Evaluations) -> str:
    rows = []
    for evaluation in evaluations:
        for what, chosen in (("inside", ~evaluation.outside), ("outside", evaluation.outside)):
            if chosen.any():
                metrics = evaluation.metrics_of(chosen)
                label = f"{evaluation.name}, {what}" if len(evaluations) > 1 else what
                rows.append(
                    [
                        label,
                        f"{int(chosen.sum()):,}",
                        *(number(metric.rmse) for metric in metrics.values[:_MOST_OUTPUTS]),
                        number(_scaled_rmse(evaluation, chosen)),
                    ]
                )
    outputs = evaluations[0].columns.outputs[:_MOST_OUTPUTS]
    headings = ["rows", "number", *(f"RMSE of {o}" for o in outputs), "scaled RMSE of derivatives"]
    return markup.table("Errors inside and outside the training domain", headings, rows)


def _scaled_rmse(evaluation: Evaluation, chosen: NDArray[np.bool_]) -> float | None:
    """Of the derivatives of some rows, by the scales of all rows: so that parts compare."""
    if evaluation.dydx is None:
        return None
    errors = evaluation.scaled_errors(derivatives=True)[chosen]
    known = errors[~np.isnan(errors)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else None


def _ranges(evaluation: Evaluation) -> str:
    columns, x = evaluation.columns, evaluation.x
    beyond = (x < evaluation.lower) | (x > evaluation.upper)
    # The inputs that most often leave their range first, where not all are shown.
    order = np.argsort(-beyond.mean(0), kind="stable")
    shown = sorted(order[:_MOST_INPUTS])
    rows = [
        [
            columns.label(columns.inputs[d]),
            *(number(v) for v in (evaluation.lower[d], evaluation.upper[d])),
            *(number(v) for v in (x[:, d].min(), x[:, d].max())),
            percent(float(beyond[:, d].mean())),
        ]
        for d in shown
    ]
    headings = ["input", "trained from", "to", "tested from", "to", "test rows beyond"]
    left = len(columns.inputs) - len(shown)
    more = f"; {left} more are not shown" if left > 0 else ""
    return markup.table(f"Ranges of the inputs in training and in test{more}", headings, rows)


def metrics(evaluations: Evaluations) -> str:
    """Every metric of every quantity."""
    parts = [_metrics_table(evaluation, len(evaluations) > 1) for evaluation in evaluations[::-1]]
    first, *others = parts
    folded = [
        markup.folded(f"The same for {evaluation.name}", part)
        for part, evaluation in zip(others, evaluations[-2::-1], strict=True)
    ]
    return _EXPLANATION + first + "".join(folded)


def _metrics_table(evaluation: Evaluation, several: bool) -> str:
    metrics = (*evaluation.metrics.values, *evaluation.metrics.derivatives)
    rows = [
        [
            evaluation.columns.label(metric.name),
            coefficient(metric.r2),
            number(metric.rmse),
            number(metric.scaled_rmse),
            percent(metric.right_sign),
            f"{metric.rows:,}",
        ]
        for metric in metrics
    ]
    headings = ["quantity", "R²", "RMSE", "scaled RMSE", "right sign", "rows"]
    caption = f"Metrics of {evaluation.name}" if several else "Metrics by quantity"
    table = markup.table(caption, headings, rows, notes=[metric.note for metric in metrics])
    directions = [
        [d.output, coefficient(d.cosine), coefficient(d.low_cosine), f"{d.rows:,}"]
        for d in evaluation.metrics.directions
        if len(evaluation.columns.inputs) > 1
    ]
    if directions:
        headings = ["gradient of", "mean cosine", "1 row in 20 is below", "rows"]
        table += markup.table(f"Direction of gradients{f', {evaluation.name}' * several}",
                              headings, directions)  # fmt: skip
    return table


_EXPLANATION = markup.paragraphs(
    [
        "R² is the share of the variance that is explained; for a quantity that hardly varies it "
        "means little. The scaled RMSE has no unit: it is the error in standard deviations of the "
        "output, for a derivative after a step of one standard deviation of its input. The cosine "
        "compares directions of gradients, inputs measured in standard deviations; right sign is "
        "the share of rows whose derivative has the sign of the true one."
    ]
).replace("<p>", '<p class="soft">')


def training(evaluations: Evaluations) -> str:
    """How each model came about."""
    several = len(evaluations) > 1
    return "".join(
        (f"<h3>{markup.text(evaluation.name)}</h3>\n" if several else "")
        + _one_training(evaluation)
        for evaluation in evaluations[::-1]
    )


def _one_training(evaluation: Evaluation) -> str:
    run = evaluation.training
    epochs = f"{run.epochs[-1]:,}" if run.epochs else "–"
    software = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    pairs = [("optimizer", run.optimizer), ("epochs", epochs), ("time", f"{run.seconds:.1f} s")]
    pairs += [("events", " ".join(run.events) or "none")]
    pairs += [("report made with", software)]
    parameters = markup.facts(run.parameters.items())
    return markup.facts(pairs) + markup.folded("Hyper-parameters", parameters)
