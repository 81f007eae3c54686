"""What derivatives cost: labels a second, and values with all derivatives beside values alone.

    python -m benchmarks.labels_speed [--quick]

Ratios are of process CPU seconds in one chunk of 8,192 rows, the least of many, once for the payoff
alone (its paths drawn before) and once with the drawing, which is what a user waits for. Bumping
runs the payoff D + 1 times. Memory is the growth of the process's peak while 16 times as many rows
are made.
"""

import argparse
import resource
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.record import Claim, claims_as_json, conclude, save
from pullback.pathwise import Uniform
from pullback.pathwise.markets import BasketCall, BlackScholesCall, HestonCall, Market
from pullback.pathwise.setup import set_up

ROWS = 8192
MARKETS: dict[str, Callable[[], Market]] = {
    "Black–Scholes, 1 input": BlackScholesCall,
    "Black–Scholes, 5 inputs": lambda: BlackScholesCall(
        vol=Uniform(0.1, 0.4), rate=Uniform(0.0, 0.05), strike=Uniform(0.9, 1.3),
        maturity=Uniform(0.5, 2.0),
    ),
    "basket, 5 assets": lambda: BasketCall.random(5),
    "basket, 20 assets": lambda: BasketCall.random(20),
    "basket, 100 assets": lambda: BasketCall.random(100),
    "Heston, 16 steps, 2 inputs": HestonCall,
}  # fmt: skip
# One backward: a small multiple of the values, whatever the dimension.
MOST, CLAIMED = 3.0, ("Black–Scholes, 1 input", "basket, 20 assets", "basket, 100 assets")


def least(run: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the fastest of many runs: the one that was disturbed least."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def measure(market: Market, dtype: torch.dtype, repeats: int) -> dict[str, float]:
    simulation = set_up(market.payoff, market.states, market.noise, rows=ROWS, dtype=dtype)
    rows = range(ROWS)
    paths = simulation.paths(rows)
    inputs = len(simulation.states.columns)
    values = least(lambda: simulation.values(paths), repeats)
    both = least(lambda: simulation.labels(paths, zero=False), repeats)
    drawing = least(lambda: simulation.paths(rows), repeats)
    return {
        "inputs": inputs,
        "ratio": both / values,
        "with drawing": (both + drawing) / (values + drawing),
        "bumping": inputs + 1.0,
        "values a second": ROWS / (values + drawing),
        "labels a second": ROWS / (both + drawing),
    }


def memory(rows: int) -> float:
    """MB that the process's peak grows beyond the labels themselves, from many rows."""
    market = BasketCall.random(20)
    market.sample(rows // 16, check_labels=False, dtype=torch.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    labels = market.sample(rows, check_labels=False, dtype=torch.float32)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = sum(t.numel() * t.element_size() for t in (labels.x, labels.y, labels.dydx))
    return (after - before) / 1024 - held / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    console, results = Console(), {}
    # First, while the peak is still low: it never falls again.
    grown = memory(2**16 if quick else 2**19)
    claims = [Claim("MB beside the labels, for 16 times the rows", grown, 32.0, above=False)]
    table = Table("", "D", "dtype", "ratio", "with drawing", "bumping", "labels a second")
    for name, make in MARKETS.items():
        for dtype in (torch.float64, torch.float32):
            figures = measure(make(), dtype, 5 if quick else 40)
            kind = str(dtype).removeprefix("torch.")
            results[f"{name}, {kind}"] = figures
            table.add_row(
                name, f"{figures['inputs']}", kind, f"{figures['ratio']:.2f}",
                f"{figures['with drawing']:.2f}", f"{figures['bumping']:.0f}",
                f"{figures['labels a second'] / 1e6:.2f} M",
            )  # fmt: skip
            if name in CLAIMED and dtype == torch.float64:
                for figure in ("ratio", "with drawing"):
                    text = f"{name}: values and derivatives, in values ({figure})"
                    claims.append(Claim(text, figures[figure], MOST, above=False))
    flat = [results[f"basket, {n} assets, float64"]["ratio"] for n in (5, 20, 100)]
    text = "baskets of 5 to 100: largest ratio, in smallest"
    claims.append(Claim(text, max(flat) / min(flat), 3.0, above=False))
    results["memory"] = {"MB": grown}
    save("labels_speed", {**results, "claims": claims_as_json(claims)})
    console.print(table)
    conclude(claims, console)


if __name__ == "__main__":
    main()
