"""`pullback predict`: values and derivatives for the rows of a table, chunk by chunk."""

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pullback.cli.options import PATH, check_output, force, output
from pullback.learning import DifferentialRegressor
from pullback.tables import (
    CHUNK_ROWS,
    Table,
    iter_chunks,
    locate,
    open_source,
    open_writer,
    suffix_of,
)


@click.command("predict", short_help="Predict the rows of a table, in bounded memory.")
@click.argument("model", type=PATH)
@click.argument("rows", type=PATH)
@output(what="The table of predictions: .parquet, .npz or .csv.")
@click.option(
    "--x",
    multiple=True,
    metavar="COLUMNS",
    help="Columns that take the place of the model's inputs, in its order.",
)
@click.option(
    "--gradient/--no-gradient", default=True, show_default=True, help="Predict derivatives too."
)
@click.option("--quiet", is_flag=True, help="Say nothing but errors and warnings.")
@force
def command(
    model: Path, rows: Path, output: Path, x: tuple[str, ...], gradient: bool, quiet: bool,
    force: bool,
) -> None:  # fmt: skip
    """Predict the ROWS of a table with a MODEL, in bounded memory.

    The output holds, in the order of the rows: the inputs, the predictions under the model's
    names, their derivatives such as dprice/dspot, and outside_domain: whether a row lies outside
    the model's training data.
    """
    check_output(output, force, inputs=[rows])
    suffix_of(output)
    regressor = DifferentialRegressor.load(model)
    source = open_source(rows)
    layout = locate(source, regressor.columns_, x=x, truths=False)
    total = outside = 0
    with open_writer(output, regressor.columns_) as write:
        for chunk in _shown(iter_chunks(source, layout, rows=CHUNK_ROWS), quiet):
            flag = np.asarray(regressor.domain_.outside(chunk.x), bool)
            write(_predicted(regressor, chunk, gradient), {"outside_domain": flag})
            total, outside = total + len(chunk), outside + int(flag.sum())
    if not quiet:
        click.echo(f"{output}: {total:,} rows predicted, {outside:,} outside the training domain")


def _predicted(model: DifferentialRegressor, chunk: Table, gradient: bool) -> Table:
    columns = model.columns_
    shape = (len(chunk), len(columns.outputs))
    if not gradient:
        return Table(columns, chunk.x, model.predict(chunk.x).reshape(shape))
    y, dydx = model.predict(chunk.x, return_gradient=True)
    return Table(columns, chunk.x, y.reshape(shape), dydx.reshape(*shape, len(columns.inputs)))


def _shown(chunks: Iterator[Table], quiet: bool) -> Iterator[Table]:
    """The chunks, with a count of their rows where a person watches."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield from chunks
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} rows"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("predicting", total=None)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
