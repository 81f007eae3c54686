"""`pullback report`: a model held against a table with answers, as one HTML page."""

import json
from pathlib import Path

import click
from rich.console import Console

from pullback.cli.options import PATH, check_output, derivative_items, force, output, roles
from pullback.errors import ModelFileError
from pullback.learning import DifferentialRegressor
from pullback.reports import Evaluation, evaluate, metrics_table, summary, write_page
from pullback.tables import Table, locate, open_source, read_all, replacing


@click.command("report", short_help="Hold a model against known answers: one HTML page.")
@click.argument("model", type=PATH)
@click.argument("test", type=PATH)
@roles
@output(what="The page, .html.")
@click.option("--against", type=PATH, help="Another model, shown beside it.")
@click.option("--json", "json_path", type=PATH, help="The metrics as JSON, too.")
@click.option("--title", help="Of the page.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors and warnings.")
@force
def command(
    model: Path, test: Path, output: Path, x: tuple[str, ...], y: tuple[str, ...],
    dydx: tuple[str, ...], no_derivatives: bool, against: Path | None, json_path: Path | None,
    title: str | None, quiet: bool, force: bool,
) -> None:  # fmt: skip
    """Hold a MODEL against the rows of TEST, whose values (and derivatives) are known.

    Columns are found by the model's names; --x, --y and --dydx name others, in its order.
    """
    for path in filter(None, (output, json_path)):
        check_output(path, force, inputs=[test])
    regressor = DifferentialRegressor.load(model)
    source = open_source(test)
    items = derivative_items(dydx, no_derivatives)
    rows = read_all(source, locate(source, regressor.columns_, x=x, y=y, dydx=items))
    evaluations = [_evaluated(regressor, rows, _name(model, against))]
    if against is not None:
        other = DifferentialRegressor.load(against)
        _check_same_columns(regressor, other, against)
        evaluations.insert(0, _evaluated(other, rows, _name(against, model)))
    write_page(
        output,
        evaluations,
        title=title or f"{model.resolve().name}: predictions held against {test.name}",
        subtitle=f"{len(rows):,} rows of {test.name}",
    )
    if json_path is not None:
        record = [evaluation.to_json() for evaluation in evaluations[::-1]]
        with replacing(json_path) as temporary:
            temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
    if not quiet:
        Console().print(metrics_table(evaluations[-1]))
        for sentence in summary(evaluations[-1]):
            click.echo(sentence)
        click.echo(f"Report: {output.resolve()}")


def _name(path: Path, other: Path | None) -> str:
    """The folder's name, or the whole path where another model's folder has the same."""
    short = path.resolve().name
    return str(path) if other is not None and other.resolve().name == short else short


def _evaluated(model: DifferentialRegressor, rows: Table, name: str) -> Evaluation:
    return evaluate(model, rows.x, rows.values, rows.dydx, name=name)


def _check_same_columns(
    model: DifferentialRegressor, other: DifferentialRegressor, path: Path
) -> None:
    ours, theirs = model.columns_, other.columns_
    if (ours.inputs, ours.outputs) != (theirs.inputs, theirs.outputs):
        raise ModelFileError(
            f"{path}: expected a model from {', '.join(ours.inputs)} to {', '.join(ours.outputs)}, "
            f"got one from {', '.join(theirs.inputs)} to {', '.join(theirs.outputs)}"
        )
