"""A worst-of autocallable note on n correlated assets in Black and Scholes' model.

On date k of m, equally spaced: if the worst performance is at or above the call level, 1 +
k·coupon is paid and the note ends. If it never was, at maturity 1 if the worst is at or above the
protection level, else the worst itself. All discounted at r.

Every condition jumps, so plain pathwise derivatives are wrong (a published note of this kind had
0.168 for 0.646). There is no closed form: the engine that stands in is the mean over 2^16
scrambled Sobol paths a state, with likelihood-ratio derivatives unless labels are soft.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import NormalVector
from pullback.pathwise.draws import Sobol
from pullback.pathwise.likelihood import likelihood_ratio, normal_vector_log_density
from pullback.pathwise.markets.conditions import Differentiation, check_differentiation, condition
from pullback.pathwise.markets.market import Market, Parameter

_VOLS = (0.20, 0.24, 0.28, 0.32)
_PATHS = 2**16


def _spread_out(vols: tuple[float, ...], correlation: float, years: float = 1.0) -> NormalVector:
    """Lognormal spots around 1 with 1.5 times these volatilities."""
    vol = 1.5 * torch.tensor(vols, dtype=torch.float64) * years**0.5
    matrix = torch.full((len(vols), len(vols)), correlation, dtype=torch.float64).fill_diagonal_(
        1.0
    )
    return NormalVector((1.0,) * len(vols), vol[:, None] * matrix * vol, log=True)


_SPOT = _spread_out(_VOLS, 0.5)


@dataclass(frozen=True)
class WorstOfAutocall(Market):
    """An autocallable note.

    Attributes:
        dividends: yields of the assets.
        correlation: between all pairs.
        dates: m.
        coupon: a date, paid for all dates so far when the note is called.
        call_level, protection: of the worst performance.
        labels: how conditions are differentiated, see `conditions`.
        width: of the ramps that stand for them.
    """

    spot: Parameter = _SPOT
    vol: Parameter = _VOLS
    rate: Parameter = 0.02
    maturity: Parameter = 3.0
    dividends: tuple[float, ...] = (0.0, 0.01, 0.02, 0.0)
    correlation: float = 0.5
    dates: int = 6
    coupon: float = 0.05
    call_level: float = 1.0
    protection: float = 0.6
    labels: Differentiation = "soft"
    width: float = 0.04
    parameters = ("spot", "vol", "rate", "maturity")
    exact_rows = 1

    def __post_init__(self) -> None:
        check_differentiation("WorstOfAutocall", self.labels)

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (self.dates, len(self.dividends))

    @cached_property
    def _factor(self) -> Tensor:
        n = len(self.dividends)
        matrix = torch.full((n, n), self.correlation, dtype=torch.float64).fill_diagonal_(1.0)
        return torch.linalg.cholesky(matrix)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        if self.labels == "likelihood-ratio":
            with torch.no_grad():
                logs = self._log_paths(p, noise)
            return likelihood_ratio(self._cash(p, logs), self._log_density(p, logs))
        return self._cash(p, self._log_paths(p, noise))

    def _log_paths(self, p: SimpleNamespace, noise: Tensor) -> list[Tensor]:
        dt = p.maturity / self.dates
        drift, logs = self._drift(p, dt), [p.spot.log()]
        for z in noise.unbind(1):
            shock = z @ self._factor.to(z).T
            logs.append(logs[-1] + drift + p.vol * dt.sqrt()[..., None] * shock)
        return logs[1:]

    def _drift(self, p: SimpleNamespace, dt: Tensor) -> Tensor:
        dividends = p.spot.new_tensor(self.dividends)
        return (p.rate[..., None] - dividends - 0.5 * p.vol.square()) * dt[..., None]

    def _log_density(self, p: SimpleNamespace, logs: list[Tensor]) -> Tensor:
        """Of the whole path, so that every parameter has a derivative."""
        dt = p.maturity / self.dates
        factor = (p.vol * dt.sqrt()[..., None])[..., :, None] * self._factor.to(p.spot)
        drift, total, before = self._drift(p, dt), torch.zeros_like(logs[0][:, 0]), p.spot.log()
        for after in logs:
            total = total + normal_vector_log_density(after, before + drift, factor)
            before = after
        return total

    def _cash(self, p: SimpleNamespace, logs: list[Tensor]) -> Tensor:
        alive, cash = torch.ones_like(logs[0][:, 0]), torch.zeros_like(logs[0][:, 0])
        for date, log in enumerate(logs, 1):
            worst = log.amin(1).exp()
            discount = torch.exp(-p.rate * p.maturity * (date / self.dates))
            called = alive * condition(worst - self.call_level, self.width, self.labels)
            cash = cash + discount * (1.0 + date * self.coupon) * called
            alive = alive - called
        safe = condition(worst - self.protection, self.width, self.labels)
        return cash + discount * alive * (safe + (1.0 - safe) * worst)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`: a mean over Sobol paths, the same for every state."""
        smooth = self if self.labels == "soft" else replace(self, labels="likelihood-ratio")
        noise = Sobol(0, 0, self.noise, 1).normals(0, _PATHS)[:, 0].to(p.spot)
        state = {
            n: v.expand(_PATHS, *v.shape[1:]) if n == "spot" else v for n, v in vars(p).items()
        }
        return smooth.payoff(state, noise).mean(0, keepdim=True)
