"""An evaluation as tables for a terminal."""

from collections.abc import Sequence

from rich.table import Table

from pullback.reports.evaluation import Evaluation
from pullback.reports.words import coefficient, number, percent

_MOST_ROWS = 40


def metrics_table(evaluation: Evaluation) -> Table:
    """One line for each output and derivative, the first forty."""
    table = Table(title=f"{evaluation.name}: {len(evaluation):,} rows")
    table.add_column("quantity")
    for heading in ("R²", "RMSE", "scaled RMSE", "right sign"):
        table.add_column(heading, justify="right")
    metrics = (*evaluation.metrics.values, *evaluation.metrics.derivatives)
    if any(metric.note for metric in metrics):
        table.add_column("note")
    for metric in metrics[:_MOST_ROWS]:
        cells = [
            coefficient(metric.r2),
            number(metric.rmse),
            number(metric.scaled_rmse),
            percent(metric.right_sign),
            metric.note,
        ]
        table.add_row(metric.name, *cells[: len(table.columns) - 1])
    if len(metrics) > _MOST_ROWS:
        table.caption = f"and {len(metrics) - _MOST_ROWS} more in the report"
    return table


def comparison_table(evaluations: Sequence[Evaluation], *, factor: int = 100) -> Table:
    """One line a model: RMSE of values and mean RMSE of derivatives, times `factor`."""
    table = Table(title=f"RMSE × {factor} over {len(evaluations[0]):,} test rows")
    table.add_column("trained on")
    for output in evaluations[0].columns.outputs:
        table.add_column(output, justify="right")
    for heading in ("derivatives (mean)", "cosine", "seconds"):
        table.add_column(heading, justify="right")
    for evaluation in evaluations:
        metrics = evaluation.metrics
        table.add_row(
            evaluation.name,
            *(_times(metric.rmse, factor) for metric in metrics.values),
            _times(metrics.mean_derivative_rmse, factor),
            coefficient(metrics.directions[0].cosine) if metrics.directions else "–",
            f"{evaluation.training.seconds:.1f}",
        )
    return table


def _times(value: float | None, factor: int) -> str:
    return number(None if value is None else factor * value)
