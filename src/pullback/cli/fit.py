"""`pullback fit`: a model from a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from pullback.cli.group import INTERRUPTED
from pullback.cli.options import (
    PATH,
    check_model_folder,
    derivative_items,
    force,
    output,
    roles,
    units_of,
)
from pullback.errors import LabelError
from pullback.learning import DifferentialRegressor
from pullback.learning.recipe import OPTIMIZERS
from pullback.reports import evaluate, metrics_table
from pullback.tables import Table, choose, locate, open_source, read_all


@click.command("fit", short_help="Learn a model from a table.")
@click.argument("data", type=PATH)
@roles
@output(what="The folder that becomes the model.")
@click.option("--unit", "units", multiple=True, metavar="NAME=UNIT", help="Unit of a column.")
@click.option("--validation", type=PATH, help="A table held out: the best weights on it are kept.")
@click.option(
    "--hidden", default="20,20,20,20", show_default=True, help="Width of each hidden layer."
)
@click.option("--activation", default="softplus", show_default=True)
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="auto", show_default=True)
@click.option("--epochs", type=click.IntRange(1), help="Passes over the rows, or iterations.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows a step.")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="Adam's peak.")
@click.option("--weight-decay", type=click.FloatRange(0), help="Default: by the labels.")
@click.option(
    "--derivative-weight",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Of one derivative against one value.",
)
@click.option("--early-stopping", is_flag=True, help="Stop when held-out rows get no better.")
@click.option(
    "--validation-fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Of the rows, held out for --early-stopping.",
)
@click.option(
    "--check-labels",
    type=click.Choice(["raise", "warn", "off"]),
    default="raise",
    show_default=True,
    help="What to do when derivatives contradict values.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The same seed gives the same model on a CPU.",
)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), help="Of the network.")
@click.option("--device", help="Such as cpu or cuda.")
@click.option("--checkpoint", type=PATH, help="A folder to continue an interrupted run from.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors and warnings.")
@force
@click.pass_context
def command(
    ctx: click.Context,
    data: Path,
    x: tuple[str, ...],
    y: tuple[str, ...],
    dydx: tuple[str, ...],
    no_derivatives: bool,
    output: Path,
    units: tuple[str, ...],
    validation: Path | None,
    hidden: str,
    check_labels: str,
    seed: int,
    quiet: bool,
    force: bool,
    **parameters: Any,
) -> None:
    """Learn from the rows of DATA: parquet, npz or csv, with derivatives where it has them.

    An empty cell in --y or --dydx means unknown. Ctrl-C ends the training and keeps the best
    weights so far.
    """
    check_model_folder(output, force, inputs=[data])
    model = DifferentialRegressor(
        hidden=_widths(hidden),
        check_labels=False if check_labels == "off" else check_labels,  # type: ignore[arg-type]
        random_state=seed,
        progress=False if quiet else None,
        **parameters,
    )
    items = derivative_items(dydx, no_derivatives)
    source = open_source(data)
    rows = read_all(source, choose(source, x=x, y=y, dydx=items, units=units_of(units)))
    held_out = None
    if validation is not None:
        source = open_source(validation)
        held_out = read_all(source, locate(source, rows.columns, x=x, y=y, dydx=items))
    if not quiet:
        click.echo(_described(data, rows))
    try:
        model.fit(
            *_labels(rows),
            validation_data=None if held_out is None else _labels(held_out),
            columns=rows.columns,
        )
    except LabelError as error:
        # The error speaks to a caller in Python; the option goes by another name.
        raise LabelError(f"{data}: {error} (Here: --check-labels off.)") from error
    model.save(output)
    if not quiet:
        click.echo(_trained(model, output))
    if held_out is not None and not quiet:
        evaluation = evaluate(model, held_out.x, held_out.values, held_out.dydx, name="held out")
        Console().print(metrics_table(evaluation))
    if model.history_.interrupted:
        click.echo(f"pullback: interrupted; the weights so far are in {output}", err=True)
        ctx.exit(INTERRUPTED)


def _widths(text: str) -> tuple[int, ...]:
    widths = [part.strip() for part in text.split(",")]
    if not all(width.isdecimal() and int(width) for width in widths):
        raise click.BadParameter(
            f"expected widths such as 20,20, got {text!r}", param_hint="--hidden"
        )
    return tuple(map(int, widths))


def _labels(rows: Table) -> tuple[Any, ...]:
    """X, y and, where there are any, dydx; without the axis of a single output."""
    single = len(rows.columns.outputs) == 1
    labels = [rows.values] if rows.dydx is None else [rows.values, rows.dydx]
    return (rows.x, *(array[:, 0] if single else array for array in labels))


def _described(path: Path, rows: Table) -> str:
    known: list[str] = []
    if rows.dydx is not None:
        held = ~np.isnan(rows.dydx).all(axis=0).ravel()
        known = [name for name, any_ in zip(rows.columns.derivatives, held, strict=True) if any_]
    roles = {"x": rows.columns.inputs, "y": rows.columns.outputs, "dydx": known}
    lines = [f"  {role:5} {_listed(names)}" for role, names in roles.items()]
    return "\n".join([f"{path}: {len(rows):,} rows", *lines])


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more or "none"


def _trained(model: DifferentialRegressor, folder: Path) -> str:
    history = model.history_
    terms = ", ".join(f"{name} {losses[-1]:.3g}" for name, losses in history.train.items())
    events = [f"  {event}" for event in history.events]
    end = f"{folder}: {history.optimizer}, {history.seconds:.1f} s; loss: {terms}"
    return "\n".join([*events, end])
