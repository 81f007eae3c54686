"""`pullback demo`: the reference problem, learned from values only and from derivatives too."""

from pathlib import Path

import click
import numpy as np
from rich.console import Console

from pullback.cli.options import check_output, force, output
from pullback.learning import Columns, DifferentialRegressor
from pullback.pathwise.markets.bachelier import Sample, reference_problem
from pullback.reports import Evaluation, Profile, comparison, comparison_table, evaluate, write_page

# Rows simulated for 8,192 kept: the published experiment draws 16,384 and keeps the first half.
_SIMULATED_PER_ROW = 2


@click.command("demo", short_help="Learn the reference problem and report on it.")
@output(default="demo-report.html", what="The report.")
@click.option("--rows", type=click.IntRange(64), default=8192, show_default=True, help="To learn.")
@click.option("--dim", type=click.IntRange(1, 200), default=7, show_default=True, help="Assets.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the network's weights.")
@force
def command(output: Path, rows: int, dim: int, seed: int, force: bool) -> None:
    """A call on a basket of assets, learned twice from the same simulated payoffs.

    Once from values only, once from values and pathwise derivatives. Both are held against
    Bachelier's formula over 4,096 states.
    """
    check_output(output, force)
    train, test = reference_problem(dim, rows, simulated=_SIMULATED_PER_ROW * rows)
    evaluations = [
        _learn(train, test, derivatives=derivatives, seed=seed) for derivatives in (False, True)
    ]
    write_page(
        output,
        evaluations,
        title="Learning a basket option from values and derivatives",
        subtitle=f"A call on {dim} assets in Bachelier's model. Trained on {rows:,} simulated "
        f"payoffs, tested against the closed form in {len(test.x):,} states.",
        profiles=_profiles(test),
    )
    Console().print(comparison_table(evaluations))
    for sentence in comparison(evaluations)[:2]:
        click.echo(sentence)
    click.echo(f"Report: {output.resolve()}")


def _learn(train: Sample, test: Sample, *, derivatives: bool, seed: int) -> Evaluation:
    columns = Columns(tuple(f"S{i + 1}" for i in range(train.x.shape[1])), ("price",))
    # The published recipe for both: full batches would learn the payoffs' noise by heart.
    model = DifferentialRegressor(optimizer="adam", random_state=seed)
    model.fit(train.x, train.y, train.dydx if derivatives else None, columns=columns)
    name = "differential" if derivatives else "values only"
    return evaluate(model, test.x, test.y, test.dydx, name=name)


def _profiles(test: Sample) -> list[Profile]:
    """Price, and delta of the heaviest asset, over the basket's level."""
    # Each exact delta is weight × probability, and weights sum to one.
    weights = test.dydx.sum(0) / test.dydx.sum()
    level = test.x @ weights
    return [
        Profile("basket level", level),
        Profile("basket level", level, input=int(np.argmax(weights))),
    ]
