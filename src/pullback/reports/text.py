"""An evaluation as tables for a terminal."""

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from pullback.reports.evaluation import Evaluation
from pullback.reports.metrics import Metric
from pullback.reports.words import coefficient, number, percent

_MOST_ROWS = 40


def metrics_table(evaluation: Evaluation) -> Table:
    """One line for each output and derivative, the first forty."""
    table = Table(title=f"{escape(evaluation.name)}: {len(evaluation):,} rows")
    table.add_column("quantity", overflow="fold")
    for heading in ("R²", "RMSE", "scaled RMSE", "right sign"):
        table.add_column(heading, justify="right", no_wrap=True)
    metrics = (*evaluation.metrics.values, *evaluation.metrics.derivatives)
    for metric in metrics[:_MOST_ROWS]:
        mark = "*" if metric.note else ""
        table.add_row(
            escape(metric.name + mark),
            coefficient(metric.r2),
            number(metric.rmse),
            number(metric.scaled_rmse),
            percent(metric.right_sign),
        )
    table.caption = "; ".join(_remarks(metrics)) or None
    return table


def _remarks(metrics: Sequence[Metric]) -> Iterator[str]:
    notes = dict.fromkeys(metric.note for metric in metrics if metric.note)
    if notes:
        yield f"* {'; '.join(notes)}"
    if len(metrics) > _MOST_ROWS:
        yield f"{len(metrics) - _MOST_ROWS} more in the report"


def comparison_table(evaluations: Sequence[Evaluation], *, factor: int = 100) -> Table:
    """One line a model: RMSE of values and mean RMSE of derivatives, times `factor`."""
    table = Table(title=f"RMSE × {factor} over {len(evaluations[0]):,} test rows")
    table.add_column("trained on")
    for output in evaluations[0].columns.outputs:
        table.add_column(escape(output), justify="right")
    for heading in ("derivatives (mean)", "cosine", "seconds"):
        table.add_column(heading, justify="right")
    for evaluation in evaluations:
        metrics = evaluation.metrics
        table.add_row(
            escape(evaluation.name),
            *(_times(metric.rmse, factor) for metric in metrics.values),
            _times(metrics.mean_derivative_rmse, factor),
            coefficient(metrics.directions[0].cosine) if metrics.directions else "–",
            f"{evaluation.training.seconds:.1f}",
        )
    return table


def _times(value: float | None, factor: int) -> str:
    return number(None if value is None else factor * value)
