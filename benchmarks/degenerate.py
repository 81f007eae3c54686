"""Inputs that say nothing: an irrelevant one, one with noise for a derivative, a constant one.

    python -m benchmarks.degenerate [--quick]

Weighting each derivative by its inverse size, as published code does, gives NaN, 47 times and
58,000 times the clean error on these. Clean is a Bachelier basket of 3 assets with 4,096 noisy
labels. Each case adds a fourth input; the constant one is moved by 0.1 % on the test rows.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.record import Claim, conclude, save
from pullback.learning import DifferentialRegressor
from pullback.pathwise.markets.bachelier import Sample, reference_problem

ALLOWED = 1.5
# Value RMSE x 100 of published code on the clean case.
PUBLISHED = 0.201


@dataclass(frozen=True)
class Case:
    """A fourth input: its values on training and test rows, and its derivative labels."""

    published: str
    train: Callable[[np.random.Generator, int], np.ndarray]
    test: Callable[[np.random.Generator, int], np.ndarray]
    slope: Callable[[np.random.Generator, int], np.ndarray]


def _normal(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.normal(1.0, 0.3, rows)


def _zero(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.zeros(rows)


CASES = {
    "irrelevant input": Case("NaN", _normal, _normal, _zero),
    "noise 1e-6 in its derivative": Case(
        "9.53", _normal, _normal, lambda rng, rows: 1e-6 * rng.normal(size=rows)
    ),
    "constant input": Case(
        "11,710", lambda rng, rows: np.ones(rows), lambda rng, rows: np.full(rows, 1.001), _zero
    ),
}


def widen(problem: tuple[Sample, Sample], case: Case) -> tuple[Sample, Sample]:
    """The problem with the case's input added."""
    rng = np.random.default_rng(0)
    train, test = problem
    rows, test_rows = len(train.x), len(test.x)
    extra, slope = case.train(rng, rows), case.slope(rng, rows)
    return (
        Sample(np.column_stack([train.x, extra]), train.y, np.column_stack([train.dydx, slope])),
        Sample(np.column_stack([test.x, case.test(rng, test_rows)]), test.y, test.dydx),
    )


def value_error(problem: tuple[Sample, Sample], seed: int) -> float:
    """RMSE x 100 of values on exact test rows; defaults."""
    train, test = problem
    model = DifferentialRegressor(random_state=seed, progress=False)
    y = model.fit(train.x, train.y, train.dydx).predict(test.x)
    return 100 * float(np.sqrt(np.mean((y - test.y) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    seeds = range(1 if parser.parse_args().quick else 5)
    clean = reference_problem(3, 4_096, simulated=16_384)
    problems = {"clean": clean} | {name: widen(clean, case) for name, case in CASES.items()}
    errors = {name: [value_error(p, seed) for seed in seeds] for name, p in problems.items()}
    table = Table(title="Value RMSE x 100, mean (min, max) over weight seeds")
    for heading in ("data", "pullback", "to clean", "published code"):
        table.add_column(heading)
    claims, base = [], float(np.mean(errors["clean"]))
    for name, found in errors.items():
        ratio = float(np.mean(found)) / base
        published = CASES[name].published if name in CASES else str(PUBLISHED)
        spread = f"{np.mean(found):.3f} ({min(found):.3f}, {max(found):.3f})"
        table.add_row(name, spread, f"{ratio:.2f}", published)
        if name in CASES:
            claims.append(Claim(f"{name}: error to the clean case's", ratio, ALLOWED, False))
        else:
            claims.append(Claim("clean: error against published code's", base, PUBLISHED, False))
    save("degenerate", {"errors": errors, "claims": [asdict(claim) for claim in claims]})
    console = Console(width=110)
    console.print(table)
    conclude(claims, console)


if __name__ == "__main__":
    main()
