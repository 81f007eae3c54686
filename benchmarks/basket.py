"""A Bachelier basket with noisy pathwise labels: the reference notebooks' experiment.

    python -m benchmarks.basket [--quick] [--large]

Training rows are the first 8,192 of 16,384 simulated under seed 1234, test rows 4,096 exact prices
and deltas under seed 4321, so that figures stand beside published ones. `--large` trains 20 weight
seeds in 50 dimensions on 131,072 rows, about a minute of one core each, and goes on from where an
interrupted run stopped. Both arms take the defaults.
"""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.record import Claim, conclude, cpu_seconds, load, save
from pullback.learning import DifferentialRegressor
from pullback.pathwise.markets.bachelier import Sample, reference_problem

# Value and all-delta RMSE x 100 by dimension: best of the published differential rows.
PUBLISHED = {7: (0.077, 0.125), 20: (0.152, 0.063)}
# And of values only, from the same source.
PUBLISHED_VALUES_ONLY = {7: (0.421, 0.624), 20: (0.458, 0.254)}
LARGE_DIM, LARGE_ROWS, LARGE_SEEDS, LARGE_VALUE = 50, 131_072, 20, 0.05


@dataclass(frozen=True)
class Run:
    """One weight seed: errors x 100, and the spread of predictions over that of the truth."""

    value: float
    delta: float
    spread: float
    cpu_seconds: float

    @property
    def collapsed(self) -> bool:
        """Whether the network ended as a constant, by the published criterion."""
        return self.spread < 0.5


def train(problem: tuple[Sample, Sample], seed: int, *, derivatives: bool) -> Run:
    """Train with the defaults and measure on the exact test rows."""
    sample, test = problem
    model = DifferentialRegressor(random_state=seed, progress=False)
    with cpu_seconds() as spent:
        model.fit(sample.x, sample.y, sample.dydx if derivatives else None)
    y, dydx = model.predict(test.x, return_gradient=True)
    return Run(
        100 * float(np.sqrt(np.mean((y - test.y) ** 2))),
        100 * float(np.sqrt(np.mean((dydx - test.dydx) ** 2, axis=0)).mean()),
        float(y.std() / test.y.std()),
        spent[0],
    )


def small(dims: list[int], seeds: int, console: Console) -> list[Claim]:
    """8,192 rows, both arms."""
    table = _table("8,192 rows", "published")
    claims, results = [], {}
    for dim in dims:
        problem = reference_problem(dim, 8_192, simulated=16_384)
        means = {}
        for arm, published in (("values only", PUBLISHED_VALUES_ONLY), ("differential", PUBLISHED)):
            runs = [train(problem, s, derivatives=arm == "differential") for s in range(seeds)]
            results[f"{dim} {arm}"] = [asdict(run) for run in runs]
            table.add_row(str(dim), arm, *_cells(runs), "{} / {}".format(*published[dim]))
            means[arm] = [np.mean([getattr(r, f) for r in runs]) for f in ("value", "delta")]
        for figure, mine, bound in zip(
            ("value", "all-delta"), means["differential"], PUBLISHED[dim], strict=True
        ):
            claims.append(Claim(f"{dim} assets: {figure} RMSE x 100", float(mine), bound, False))
        ratio = means["values only"][0] / means["differential"][0]
        text = f"{dim} assets: values only has twice the error in values"
        claims.append(Claim(text, float(ratio), 2.0, premise=True))
    save("basket", results)
    console.print(table)
    return claims


def large(seeds: int, console: Console) -> list[Claim]:
    """131,072 rows in 50 dimensions: does any seed end as a constant?"""
    done: dict[str, Any] = load("basket-large")
    problem = reference_problem(LARGE_DIM, LARGE_ROWS)
    for seed in range(seeds):
        if str(seed) not in done:
            done[str(seed)] = asdict(train(problem, seed, derivatives=True))
            save("basket-large", done)
        run = Run(**done[str(seed)])
        console.print(f"seed {seed}: value {run.value:.4f}, all-delta {run.delta:.4f}")
    runs = [Run(**done[str(seed)]) for seed in range(seeds)]
    table = _table(f"{LARGE_ROWS:,} rows", "published")
    table.add_row(str(LARGE_DIM), "differential", *_cells(runs), ".048 (.040, .063) / .008")
    console.print(table)
    collapsed = float(sum(run.collapsed for run in runs))
    return [
        Claim(f"{LARGE_DIM} assets: collapsed of {seeds}", collapsed, 0.0, False),
        Claim(
            f"{LARGE_DIM} assets: mean value RMSE x 100",
            float(np.mean([run.value for run in runs])), LARGE_VALUE, False,
        ),
    ]  # fmt: skip


def _table(title: str, last: str) -> Table:
    table = Table(title=f"Bachelier basket, {title}: RMSE x 100 over weight seeds, mean (min, max)")
    for heading in ("assets", "arm", "value", "all deltas", "collapsed", "CPU s", last):
        table.add_column(heading)
    return table


def _cells(runs: list[Run]) -> list[str]:
    def spread(figures: list[float]) -> str:
        return f"{np.mean(figures):.3f} ({min(figures):.3f}, {max(figures):.3f})"

    return [
        spread([run.value for run in runs]),
        spread([run.delta for run in runs]),
        f"{sum(run.collapsed for run in runs)} of {len(runs)}",
        f"{np.median([run.cpu_seconds for run in runs]):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="7 assets, one seed")
    parser.add_argument("--large", action="store_true", help="50 assets, 20 seeds: minutes")
    arguments = parser.parse_args()
    console = Console(width=130)
    if arguments.large:
        claims = large(2 if arguments.quick else LARGE_SEEDS, console)
    else:
        claims = small([7] if arguments.quick else [7, 20], 1 if arguments.quick else 5, console)
    conclude(claims, console)


if __name__ == "__main__":
    main()
