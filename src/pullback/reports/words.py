"""What an evaluation says, in plain sentences and short figures."""

from collections.abc import Sequence
from math import ceil, log10

from pullback.reports.evaluation import Evaluation
from pullback.reports.metrics import Direction, Metric

# Fewer rows than this are counted, and not compared: their error would be a matter of luck.
_FEW = 20


def number(value: float | None, digits: int = 3) -> str:
    """A figure in few significant digits; a dash where there is none.

    >>> number(0.0012345), number(0.5), number(12345.6), number(0.0), number(None)
    ('0.00123', '0.500', '12,346', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0.0:
        return "0"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".removesuffix(".")


def coefficient(value: float | None) -> str:
    """An R² or a cosine with as many nines as it has, up to six digits.

    >>> coefficient(0.5), coefficient(0.99987), coefficient(-18000.0), coefficient(1.0)
    ('0.500', '0.99987', '-18,000', '1.000000')
    """
    if value is None or abs(value) >= 1000:
        return number(value)
    short = 1.0 - value
    decimals = 6 if short < 1e-6 else min(6, max(3, ceil(-log10(short)) + 1))
    return f"{value:.{decimals}f}"


def percent(share: float | None) -> str:
    """A share in percent; never 100 % or 0 % for what is not quite.

    >>> percent(0.5), percent(0.99999), percent(1.0), percent(0.00001), percent(0.0)
    ('50.0 %', '> 99.9 %', '100 %', '< 0.1 %', '0 %')
    """
    if share is None:
        return "–"
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    if 0.999 < share < 1.0:
        return "> 99.9 %"
    if 0.0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def summary(evaluation: Evaluation) -> list[str]:
    """The evaluation of one model in a few sentences."""
    return [
        *(_value_sentence(metric, evaluation) for metric in evaluation.metrics.values[:4]),
        *_derivative_sentences(evaluation),
        outside_sentence(evaluation),
    ]


def comparison(evaluations: Sequence[Evaluation]) -> list[str]:
    """What the last model gains over the first."""
    first, last = evaluations[0], evaluations[-1]
    gains = [
        (f"The error of {a.name}", "RMSE", a.rmse, b.rmse)
        for a, b in zip(first.metrics.values[:4], last.metrics.values[:4], strict=True)
    ]
    # Scaled: derivatives may have different units.
    before, after = (each.metrics.mean_scaled_derivative_rmse for each in (first, last))
    gains.append(("The mean error of the derivatives", "scaled RMSE", before, after))
    sentences = [
        f"{what} {_change(before / after)} for “{last.name}” than for “{first.name}”: "
        f"{measure} {number(after)} against {number(before)}."
        for what, measure, before, after in gains
        if before and after
    ]
    return [*sentences, *summary(last)]


def _change(ratio: float) -> str:
    """How an error compares: before ÷ after."""
    if 0.95 < ratio < 1.05:
        return "is hardly other"
    factor = max(ratio, 1.0 / ratio)
    times = f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}"
    return f"is {times} times {'smaller' if ratio > 1.0 else 'larger'}"


def _value_sentence(metric: Metric, evaluation: Evaluation) -> str:
    unit = evaluation.columns.unit(metric.name)
    rows = f"Over {metric.rows:,} test rows"
    if metric.rmse is None:
        return f"No true value of {metric.name} is known in these rows."
    error = f"the typical error (RMSE) of {metric.name} is {number(metric.rmse)}"
    error += f" {unit}" if unit else ""
    if metric.scaled_rmse is None or metric.r2 is None:
        return f"{rows} {error}; {metric.note}."
    share, fit = percent(metric.scaled_rmse), coefficient(metric.r2)
    return f"{rows} {error}, {share} of its spread (R² {fit})."


def _derivative_sentences(evaluation: Evaluation) -> list[str]:
    known = [m for m in evaluation.metrics.derivatives if m.scaled_rmse is not None]
    if not known:
        return ["The test rows hold no derivatives: only values are compared."]
    worst = max(known, key=lambda metric: metric.scaled_rmse or 0.0)
    start = "The derivative is"
    if len(known) > 1:
        start = f"Of {len(known)} derivatives, the least well predicted is"
    sentence = (
        f"{start} {worst.name}: scaled RMSE {number(worst.scaled_rmse)}, right sign in "
        f"{percent(worst.right_sign)} of rows (R² {coefficient(worst.r2)})."
    )
    if len(evaluation.columns.inputs) == 1:
        return [sentence]  # a gradient of one entry has a sign and no direction
    return [sentence, *map(_direction_sentence, evaluation.metrics.directions[:4])]


def _direction_sentence(direction: Direction) -> str:
    if direction.cosine is None:
        return f"The gradient of {direction.output} is zero or unknown in every row."
    return (
        f"The predicted gradient of {direction.output} points along the true one with a mean "
        f"cosine of {coefficient(direction.cosine)}."
    )


def outside_sentence(evaluation: Evaluation) -> str:
    """How many rows lie outside the training domain, and what that costs."""
    count, rows = int(evaluation.outside.sum()), len(evaluation)
    if not count:
        return "Every test row lies inside the domain of the training data."
    share = f"{count:,} of {rows:,} test rows ({percent(count / rows)})"
    lie = "lies" if count == 1 else "lie"
    sentence = f"{share} {lie} outside the domain of the training data"
    inside, outside = (
        evaluation.metrics_of(chosen).values[0].rmse
        for chosen in (~evaluation.outside, evaluation.outside)
    )
    if not inside or not outside or count < _FEW:
        return f"{sentence}."
    name = evaluation.columns.outputs[0]
    return f"{sentence}; there the error of {name} is {number(outside / inside, 2)} times as large."
