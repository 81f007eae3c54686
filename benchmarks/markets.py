"""Surrogates trained on one noisy path a state, against independent prices and Greeks.

    python -m benchmarks.markets [--quick] [market …]

Each market: 8,192 states with one path each, once with values only and once with pathwise
derivatives as well, several seeds of data and weights. Errors are root mean squares over the
states of the file in tests/reference, whose prices and Greeks are closed forms, quadrature and
QuantLib engines; they are given in per mille of the largest price, and of the largest Greek of its
kind. The digital and the autocallable show all ways to differentiate a condition side by side.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tests.pathwise.markets.cases import CASES, Case

from benchmarks.record import Claim, claims_as_json, conclude, cpu_seconds, save
from pullback.learning import DifferentialRegressor
from pullback.pathwise import Uniform
from pullback.pathwise.markets import (
    AsianCall,
    BermudanPut,
    BermudanSwaption,
    BlackScholesCall,
    DigitalCall,
    HestonCall,
    Market,
    TwoAssetCall,
    UpAndOutCall,
    WorstOfAutocall,
)

ROWS = 8192
CONDITIONS = ("raw", "soft", "soft-derivative", "likelihood-ratio")


@dataclass(frozen=True)
class Experiment:
    """A market whose inputs are drawn, and the reference rows that have its fixed parameters."""

    case: Case
    arms: tuple[str, ...] = ("differential",)


def _case(name: str, market: Market, file: str, state: dict, greeks: dict, **more) -> Experiment:
    arms = more.pop("arms", ("differential",))
    return Experiment(Case(name, market, file, state, greeks, **more), arms)


def _basket(dim: int) -> Experiment:
    case = next(case for case in CASES if case.name == f"basket-{dim}")
    return Experiment(replace(case, every=1))


_SPOTS = {"spot": ("s1", "s2", "s3", "s4")}
_DELTAS = {f"spot{i}": f"delta{i}" for i in range(1, 5)}
EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    "black-scholes": lambda: _case(
        "black-scholes",
        BlackScholesCall(vol=Uniform(0.05, 0.45), maturity=Uniform(0.2, 2.2)), "bs_call.csv",
        {"spot": "spot", "vol": "vol", "maturity": "T"},
        {"spot": "delta", "vol": "vega", "maturity": "dV_dT"}, keep={"r": "0", "q": "0"},
    ),
    "digital": lambda: _case(
        "digital", DigitalCall(), "digital_call.csv", {"spot": "spot"}, {"spot": "delta"},
        keep={"vol": "0.2", "T": "1", "r": "0", "smoothing_eps": "0"}, arms=CONDITIONS,
    ),
    "up-and-out": lambda: _case(
        "up-and-out", UpAndOutCall(vol=0.25), "up_and_out_call.csv", {"spot": "spot"},
        {"spot": "delta"},
        keep={"vol": "0.25", "T": "1", "monitoring": "12", "smooth_h": "0.03"},
    ),
    "basket-5": lambda: _basket(5),
    "basket-20": lambda: _basket(20),
    "heston": lambda: _case(
        "heston", HestonCall(), "heston_call.csv", {"spot": "spot", "variance": "v0"},
        {"spot": "delta", "variance": "dV_dv0"}, keep={"set": "A", "T": "1"},
    ),
    "asian": lambda: _case(
        "asian", AsianCall(vol=Uniform(0.1, 0.5), maturity=360 / 365), "asian_call.csv",
        {"spot": "spot", "vol": "vol"}, {"spot": "delta", "vol": "vega"}, keep={"n_fixings": "12"},
    ),
    "two-asset": lambda: _case(
        "two-asset", TwoAssetCall(), "two_asset.csv", {"spot1": "S1", "spot2": "S2"},
        {"spot1": "delta1", "spot2": "delta2"},
        keep={"kind": "min_call", "vol1": "0.2", "rho": "0.5", "T": "1"},
    ),
    "autocall": lambda: _case(
        "autocall", WorstOfAutocall(), "autocall_worst_of.csv", _SPOTS, _DELTAS,
        keep={"kind": "hard"}, arms=CONDITIONS,
    ),
    "bermudan-put": lambda: _case(
        "bermudan-put", BermudanPut(), "american_bermudan_put.csv", {"spot": "spot"},
        {"spot": "delta"}, keep={"n_exercise": "10", "vol": "0.2"},
    ),
    "bermudan-swaption": lambda: _case(
        "bermudan-swaption", BermudanSwaption(), "bermudan_swaption_state_T1.csv", {"x": "x"},
        {"x": "d_hold_dx"}, price="hold_value",
    ),
}  # fmt: skip


def run(experiment: Experiment, arm: str, seed: int, rows: int) -> dict[str, float]:
    """Errors of one surrogate."""
    case, market = experiment.case, experiment.case.market
    if arm in CONDITIONS:
        market = market.changed(labels=arm)
    # A market without conditions keeps its labels; their check has its own tests.
    labels = market.sample(rows, seed=seed, check_labels=False, unconnected="zero")
    known = labels.dydx if arm != "values only" else None
    model = DifferentialRegressor(random_state=seed, progress=False, check_labels=False)
    with cpu_seconds() as spent:
        model.fit(
            labels.x.numpy(), labels.y[:, 0].numpy(), None if known is None else known[:, 0].numpy()
        )
    states = case.states()
    x = torch.cat([part.reshape(len(part), -1) for part in states.values()], dim=1)
    y, dydx = model.predict(x.numpy(), return_gradient=True)
    errors = {"price": _error(y, case.column(case.price))}
    for name, column in case.greeks.items():
        truth = case.column(column)
        errors[column] = _error(dydx[:, labels.columns.inputs.index(name)], truth)
    return {**errors, "cpu seconds": spent[0]}


def _error(predicted: np.ndarray, truth: torch.Tensor) -> float:
    """Root mean square in per mille of the largest."""
    exact = truth.numpy()
    return 1000 * float(np.sqrt(np.mean((predicted - exact) ** 2)) / np.abs(exact).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("markets", nargs="*", default=list(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="one seed, 1,024 rows")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    seeds, rows = (1, 1024) if arguments.quick else (arguments.seeds, ROWS)
    torch.set_num_threads(1)
    console, results, claims = Console(width=110), {}, []
    table = Table(
        "market", "labels", "price", "Greeks", "CPU s", title=f"{rows:,} rows, {seeds} seeds"
    )
    for name in arguments.markets:
        experiment = EXPERIMENTS[name]()
        means = {}
        for arm in ("values only", *experiment.arms):
            runs = [run(experiment, arm, seed, rows) for seed in range(seeds)]
            results[f"{name}, {arm}"] = runs
            mean = {key: float(np.mean([r[key] for r in runs])) for key in runs[0]}
            means[arm] = mean
            table.add_row(
                name, arm, f"{mean['price']:.1f}", _greeks(mean), f"{mean['cpu seconds']:.1f}"
            )
        claims += _claims(name, experiment, means)
    save("markets", {**results, "claims": claims_as_json(claims)})
    console.print(table)
    conclude(claims, console)


def _greeks(mean: dict[str, float]) -> str:
    """Each, or the mean and the worst of many."""
    errors = {k: v for k, v in mean.items() if k not in ("price", "cpu seconds")}
    if len(errors) <= 4:
        return "  ".join(f"{name} {error:.1f}" for name, error in errors.items())
    worst = max(errors, key=errors.__getitem__)
    return f"mean of {len(errors)}: {np.mean(list(errors.values())):.1f}  worst {errors[worst]:.1f}"


def _claims(name: str, experiment: Experiment, means: dict[str, dict[str, float]]) -> list[Claim]:
    """Good labels are better than none, and raw labels of conditions worse."""
    good = "likelihood-ratio" if "raw" in experiment.arms else "differential"
    first = next(iter(experiment.case.greeks.values()))
    none, with_them = means["values only"], means[good]
    claims = [
        Claim(
            f"{name}: {kind} error with derivatives, in that of values only",
            with_them[kind] / none[kind], 1.0, above=False,
        )
        for kind in ("price", first)
    ]  # fmt: skip
    if "raw" in means:
        text = f"{name}: delta error of raw labels, in that of values only"
        claims.append(Claim(text, means["raw"][first] / none[first], 1.0, premise=True))
    return claims


if __name__ == "__main__":
    main()
