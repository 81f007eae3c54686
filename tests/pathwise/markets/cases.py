"""One table: which market answers which rows of which independent reference.

Files in tests/reference come from closed forms at high precision, quadrature and QuantLib engines;
each says in its head how. A column of a file is a parameter of the market, or a derivative.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from pullback.pathwise.distributions import NormalVector
from pullback.pathwise.markets import (
    AsianCall,
    BasketCall,
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

REFERENCE = Path(__file__).parents[2] / "reference"


@dataclass(frozen=True)
class Case:
    """Rows of a file that one market answers.

    Attributes:
        name: of the case.
        market: with the settings of these rows.
        file, keep: the file, and what its rows must say.
        state: column by parameter; several for a vector.
        greeks: column of the file by column of the state.
        every: take each so many-th row.
        least, most: of the price; rows where hardly any path, or hardly any other, pays have no
            normal error.
        paths: a row, for labels; 0 where they are not compared.
        exact: tolerance of the exact answer; None where there is none.
        price: the column that holds it.
    """

    name: str
    market: Market
    file: str
    state: Mapping[str, str | tuple[str, ...]]
    greeks: Mapping[str, str]
    keep: Mapping[str, str] = field(default_factory=dict)
    every: int = 1
    least: float = 1e-3
    most: float = float("inf")
    paths: int = 8192
    exact: float | None = 1e-10
    price: str = "price"

    def rows(self) -> list[dict[str, str]]:
        with (REFERENCE / self.file).open() as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        kept = [r for r in rows if all(r[k] == v for k, v in self.keep.items())]
        kept = [r for r in kept if self.least < float(r[self.price]) < self.most]
        assert kept, f"{self.name}: no row of {self.file} is left"
        return kept[:: self.every]

    def column(self, name: str) -> torch.Tensor:
        return torch.tensor([float(r[name]) for r in self.rows()], dtype=torch.float64)

    def states(self) -> dict[str, torch.Tensor]:
        return {
            name: self.column(columns)
            if isinstance(columns, str)
            else torch.stack([self.column(c) for c in columns], dim=1)
            for name, columns in self.state.items()
        }


_BS = {"spot": "spot", "strike": "strike", "vol": "vol", "maturity": "T", "rate": "r"}
_TWO = {
    "spot1": "S1", "spot2": "S2", "strike": "strike", "vol1": "vol1", "vol2": "vol2",
    "correlation": "rho", "maturity": "T", "rate": "r", "dividend1": "q1", "dividend2": "q2",
}  # fmt: skip
_TWO_GREEKS = {
    "spot1": "delta1", "spot2": "delta2", "vol1": "vega1", "vol2": "vega2",
    "correlation": "dV_drho",
}  # fmt: skip
_HESTON = {
    "spot": "spot", "variance": "v0", "strike": "strike", "maturity": "T", "rate": "r",
    "dividend": "q", "reversion": "kappa", "mean_variance": "theta", "vol_of_variance": "sigma",
    "correlation": "rho",
}  # fmt: skip
_HESTON_GREEKS = {
    "spot": "delta", "variance": "dV_dv0", "strike": "dV_dK", "rate": "dV_dr",
    "reversion": "dV_dkappa", "mean_variance": "dV_dtheta", "vol_of_variance": "dV_dsigma",
    "correlation": "dV_drho",
}  # fmt: skip
_SPOTS = {"spot": ("s1", "s2", "s3", "s4")}
_SWAPTION = {"strike": "K", "curve": "f", "reversion": "a", "vol": "sigma"}
_SWAPTION_GREEKS = {"strike": "dV_dK", "curve": "dV_df", "reversion": "dV_da", "vol": "dV_dsigma"}
_VEGA = {"spot": "delta", "vol": "vega"}


def _basket(dim: int) -> Case:
    with (REFERENCE / "bachelier_basket_params.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    rows = [r for r in rows if r["dim"] == str(dim)]
    # The file names its weights and volatilities "weight" and "vol".
    weights = tuple(float(r["weight"]) for r in rows)
    vols = torch.tensor([float(r["vol"]) for r in rows], dtype=torch.float64)
    index = torch.arange(dim, dtype=torch.float64)
    covariance = vols[:, None] * 0.7 ** (index[:, None] - index).abs() * vols
    market = BasketCall(weights, covariance, NormalVector((1.0,) * dim, 2.25 * covariance))
    columns = {"spot": tuple(f"s{i}" for i in range(dim))}
    greeks = {f"spot{i + 1}": f"delta{i}" for i in range(dim)}
    file_name = f"bachelier_basket_d{dim}.csv"
    return Case(f"basket-{dim}", market, file_name, columns, greeks, every=5, exact=1e-12)


def _puts() -> list[Case]:
    base = BermudanPut()
    longer = replace(base, vol=0.3, maturity=2.0, rate=0.03, dividend=0.02)
    cases = []
    for dates in (5, 10):
        for market, keep in (
            (base, {"vol": "0.2", "T": "1"}),
            (longer, {"vol": "0.3", "T": "2"}),
        ):
            rows = {"n_exercise": str(dates), **keep}
            cases.append(
                Case(
                    f"put-{dates}-{keep['vol']}", replace(market, dates=dates),
                    "american_bermudan_put.csv", {"spot": "spot"}, {"spot": "delta"}, rows,
                )
            )  # fmt: skip
    return cases


CASES = [
    Case(
        "black-scholes", BlackScholesCall(), "bs_call.csv", {**_BS, "dividend": "q"},
        {**_VEGA, "rate": "rho", "dividend": "dV_dq", "strike": "dV_dK", "maturity": "dV_dT"},
        every=6, exact=1e-13,
    ),
    Case(
        "digital-likelihood", DigitalCall(), "digital_call.csv", _BS, _VEGA, {"smoothing_eps": "0"},
        every=3, least=0.02, most=0.95, exact=1e-12,
    ),
    *(
        Case(
            f"digital-soft-{eps}", DigitalCall(labels="soft", width=float(eps)), "digital_call.csv",
            _BS, _VEGA, {"smoothing_eps": eps}, every=5, least=0.02, most=0.95, exact=1e-12,
        )
        for eps in ("0.02", "0.05", "0.1")
    ),
    Case(
        "up-and-out-continuous", UpAndOutCall(dates=0), "up_and_out_call.csv",
        {**_BS, "barrier": "barrier"}, _VEGA, {"monitoring": "cont"}, every=3,
    ),
    Case(
        "up-and-out-soft", UpAndOutCall(dates=12, width=0.06), "up_and_out_call.csv",
        {**_BS, "barrier": "barrier"}, _VEGA, {"monitoring": "12", "smooth_h": "0.03"}, every=4,
    ),
    Case(
        "up-and-out-hard", UpAndOutCall(dates=4, labels="raw"), "up_and_out_call.csv",
        {**_BS, "barrier": "barrier"}, _VEGA, {"monitoring": "4", "smooth_h": "0"}, every=4,
        paths=0,
    ),
    *(_basket(dim) for dim in (1, 5, 20)),
    *(
        Case(
            f"heston-{which}-{years}", HestonCall(steps=steps), "heston_call.csv", _HESTON,
            _HESTON_GREEKS,
            {"set": which, "T": years}, every=2, least=1e-2, exact=1e-4,
        )
        for which in "ABC"
        for years, steps in (("0.2", 16), ("1", 16), ("5", 64))
    ),
    *(
        Case(
            f"asian-{n}", AsianCall(fixings=n), "asian_call.csv", _BS, {**_VEGA, "rate": "dV_dr"},
            {"n_fixings": str(n)}, every=3,
        )
        for n in (5, 12)
    ),
    *(
        Case(
            f"two-asset-{on}", TwoAssetCall(on=on), "two_asset.csv", _TWO, _TWO_GREEKS,
            {"kind": f"{on}_call"}, every=4,
        )
        for on in ("min", "max")
    ),
    Case(
        "autocall-soft", WorstOfAutocall(width=0.1), "autocall_worst_of.csv", _SPOTS,
        {f"spot{i}": f"delta{i}" for i in range(1, 5)}, {"kind": "smoothed", "smooth_h": "0.05"},
        exact=None,
    ),
    Case(
        "autocall-likelihood", WorstOfAutocall(labels="likelihood-ratio"), "autocall_worst_of.csv",
        _SPOTS, {f"spot{i}": f"delta{i}" for i in range(1, 5)}, {"kind": "hard"}, exact=None,
    ),
    *_puts(),
    *(
        Case(
            f"swaption-{strike}", BermudanSwaption(start=0, x=0.0, strike=float(strike)),
            "bermudan_swaption_hw.csv", _SWAPTION, _SWAPTION_GREEKS,
            {"kind": "bermudan_1to9", "a": "0.05", "K": strike},
        )
        for strike in ("0.02", "0.04")
    ),
    Case(
        "swaption-european", BermudanSwaption(start=0, x=0.0, exercise=(5,)),
        "bermudan_swaption_hw.csv", _SWAPTION, _SWAPTION_GREEKS, {"kind": "european_5"},
    ),
    Case(
        "swaption-state", BermudanSwaption(), "bermudan_swaption_state_T1.csv", {"x": "x"},
        {"x": "d_hold_dx"}, every=4, price="hold_value",
    ),
]  # fmt: skip
