"""What one training step with derivatives costs, in steps with values only.

    python -m benchmarks.step_cost [--quick]

Four steppers, those that `fit` uses, take turns in one process: values only and with derivatives,
by torch's operations (what a loop of one's own costs) and compiled. So whatever else the machine
does meets all; figures are medians of ratios of process CPU time within a turn.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.record import Claim, conclude, save
from pullback.learning.data import DifferentialData
from pullback.learning.loss import DifferentialLoss
from pullback.learning.native.stepper import NativeAdamStepper
from pullback.learning.networks import MLP, Twin
from pullback.learning.optimizers import AdamStepper

TARGET = 2.2
# Inputs, hidden widths, activation, rows a step.
CASES = (
    (7, (20, 20, 20, 20), "softplus", 256),
    (7, (20, 20, 20, 20), "softplus", 512),
    (20, (128, 128, 128), "tanh", 1_024),
    (16, (64, 64), "tanh", 1_000),
)
STEPS_AN_EPOCH = 16


def stepper(
    kind: type[AdamStepper], data: DifferentialData, hidden: tuple[int, ...], activation: str
) -> AdamStepper:
    """One epoch of it is `STEPS_AN_EPOCH` steps."""
    generator = torch.Generator().manual_seed(0)
    net = MLP(data.x.shape[1], 1, hidden, activation, generator=generator, dtype=torch.float32)
    batch = len(data) // STEPS_AN_EPOCH
    return kind(
        Twin(net), DifferentialLoss.of(data), data, epochs=10_000, batch_size=batch, peak=0.01,
        weight_decay=0.0, generator=generator,
    )  # fmt: skip


def turns(case: tuple[int, tuple[int, ...], str, int], count: int) -> np.ndarray:
    """CPU milliseconds a step, [count, 4]: values only, with derivatives, by torch and compiled."""
    inputs, hidden, activation, batch = case
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch * STEPS_AN_EPOCH, inputs, generator=generator)
    data = DifferentialData(x, x.sin().sum(1, keepdim=True), x.cos().unsqueeze(1))
    steppers = [
        stepper(kind, labels, hidden, activation)
        for kind in (AdamStepper, NativeAdamStepper)
        for labels in (replace(data, dydx=None), data)
    ]
    spent = np.empty((count + 2, len(steppers)))
    for row in spent:
        for column, one in enumerate(steppers):
            start = time.process_time()
            one.run_epoch()
            row[column] = 1e3 * (time.process_time() - start) / STEPS_AN_EPOCH
    # The first two make the allocator and the caches warm.
    return spent[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 turns instead of 60")
    count = 10 if parser.parse_args().quick else 60
    torch.set_num_threads(1)
    table = Table(title=f"One training step, float32, 1 thread, CPU ms, medians of {count} turns")
    for heading in ("network", "rows", "torch: values", "both", "ratio", "compiled: values", "both",
                    "ratio", "torch ÷ compiled"):  # fmt: skip
        table.add_column(heading, justify="right")
    claims, results = [], {}
    for case in CASES:
        spent = turns(case, count)
        values, both, fast_values, fast_both = np.median(spent, axis=0)
        torch_ratio, fast_ratio, gain = (
            float(np.median(spent[:, i] / spent[:, j])) for i, j in ((1, 0), (3, 2), (1, 3))
        )
        name = f"{case[0]}-{'-'.join(map(str, case[1]))}-1 {case[2]}"
        figures = (values, both, torch_ratio, fast_values, fast_both, fast_ratio, gain)
        table.add_row(name, f"{case[3]:,}", *(f"{figure:.3g}" for figure in figures))
        results[f"{name}, {case[3]}"] = {
            "torch": [values, both, torch_ratio], "compiled": [fast_values, fast_both, fast_ratio],
            "gain": gain,
        }  # fmt: skip
        claims.append(Claim(f"{name}, {case[3]:,} rows: torch's ratio", torch_ratio, TARGET, False))
    save("step-cost", results)
    console = Console(width=120)
    console.print(table)
    conclude(claims, console)


if __name__ == "__main__":
    main()
