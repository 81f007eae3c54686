"""A published autocallable note, as a user would write it: its wrong delta is found and mended.

The figures are those of the public benchmark matlogica/QuantBench (2AssetAutoCallable), which gives
a pathwise delta of 0.168 where a bump gives 0.646; see the head of the file for the contract.
"""

import csv

import pytest
import torch

from pullback.pathwise import check_pathwise, pathwise
from tests.pathwise.markets.cases import REFERENCE

REFS = torch.tensor([2095.15, 97.82], dtype=torch.float64)
VOLS = torch.tensor([0.2, 0.3], dtype=torch.float64)
RATE, CORRELATION, DATES, DT = 0.01, 0.6, 8, 0.25
NOISE = (DATES, 2)


def above(u, width):
    """1{u > 0}, or its smooth stand-in of the benchmark."""
    if width == 0:
        return (u > 0).double()
    x = u / width
    return 0.5 * (1 + x / (1 + x.square()).sqrt())


def phoenix(width):
    def payoff(state, noise):
        rest = (1 - CORRELATION**2) ** 0.5
        log = torch.stack(
            [state["spot1"], torch.full_like(state["spot1"], REFS[1].item())], 1
        ).log()
        alive, cash = torch.ones_like(state["spot1"]), torch.zeros_like(state["spot1"])
        for date, z in enumerate(noise.unbind(1), 1):
            shock = torch.stack([z[:, 0], CORRELATION * z[:, 0] + rest * z[:, 1]], 1)
            log = log + (RATE - 0.5 * VOLS**2) * DT + VOLS * DT**0.5 * shock
            performance = log.exp() / REFS
            worst = performance.amin(1)
            safe = above(worst - 0.7, width)
            cash = cash + alive * 25.5 * safe
            if date > 1:
                called = alive * above(performance - 1.0, width).prod(1)
                cash, alive = cash + 1000.0 * called, alive - called
        return cash + alive * 1000.0 * (safe + (1 - safe) * worst)

    return payoff


def published():
    with (REFERENCE / "autocall_phoenix_crosscheck.csv").open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{name: float(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("row", published(), ids=lambda row: f"{row['spot1']:.0f}-{row['H']}")
def test_price_and_pathwise_delta_are_those_published(row):
    n = 40_000
    spot = torch.full((n,), row["spot1"], dtype=torch.float64)
    payoff = phoenix(0.02 * row["H"])
    labels = pathwise(payoff, {"spot1": spot}, NOISE, antithetic=True, check_labels=False)
    for mine, theirs, error in (
        (labels.y[:, 0], row["own_price"], row["own_price_se"]),
        (labels.dydx[:, 0, 0], row["own_pathwise_delta1"], row["own_pathwise_se"]),
    ):
        together = (float(mine.var()) / n + error**2) ** 0.5
        assert abs(float(mine.mean()) - theirs) < 3.5 * together


def test_the_published_error_is_found_and_its_remedy_passes():
    there = {"spot1": torch.full((8192,), 1466.61, dtype=torch.float64)}
    report = check_pathwise(phoenix(0.0), there, NOISE, outputs=["price"])
    (fault,) = report.faults
    assert fault.kind == "jump"
    # A state that does not vary is bumped by 1 %, as the benchmark bumps it.
    evidence = report.evidence[0]
    assert evidence.label == pytest.approx(0.168, abs=0.01)
    assert evidence.slope == pytest.approx(0.646, abs=4 * evidence.error)
    assert check_pathwise(phoenix(0.02 * 0.8), there, NOISE).ok
