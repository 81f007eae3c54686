"""A Bermudan put in Black and Scholes' model; with many dates an American one.

    payoff e^{-rτ} (K - S_τ)+, τ the best of the dates T/n, …, T (today is none).

Labels: exercise by least-squares Monte Carlo, held fixed in the derivative. Value: backward
quadrature split at the exercise boundary; see `early_exercise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.draws import PseudoRandom
from pullback.pathwise.markets.early_exercise import Policy, fit_policy, hold_value
from pullback.pathwise.markets.market import Market, Parameter

_SPOT = LogNormal(100.0, 0.3)


@dataclass(frozen=True)
class BermudanPut(Market):
    """A put with early exercise. All parameters but the spot are fixed, as the policy is.

    Attributes:
        dates: n.
        policy_rows: paths that the policy is regressed on.
        policy_seed: of those paths.
    """

    spot: Parameter = _SPOT
    strike: float = 100.0
    vol: float = 0.2
    maturity: float = 1.0
    rate: float = 0.05
    dividend: float = 0.0
    dates: int = 10
    policy_rows: int = 65_536
    policy_seed: int = 20_260
    parameters = ("spot", "strike", "vol", "maturity", "rate", "dividend")

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (self.dates,)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        exercise, log_spot = self._paths(self.at(state), noise)
        return self.policy.cash(exercise, log_spot)

    @cached_property
    def policy(self) -> Policy:
        """Of the fixed parameters, from spots drawn around the strike."""
        around = LogNormal(self.strike, 1.5 * self.vol * self.maturity**0.5)
        draws = PseudoRandom(self.policy_seed, 1, self.noise, 1)
        p = self.at({"spot": around.shaped(draws.uniforms(0, self.policy_rows))})
        paths = self._paths(p, draws.normals(0, self.policy_rows)[:, 0])
        time = torch.arange(1, self.dates + 1) * p.maturity / self.dates
        return fit_policy(*paths, self._drift(p) * time, p.vol.square() * time)

    def _paths(self, p: SimpleNamespace, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Deflated exercise values and log spots, [N, n]."""
        dt = p.maturity / self.dates
        steps = self._drift(p) * dt + p.vol * dt.sqrt() * noise
        log_spot = p.spot.log()[:, None] + steps.cumsum(1)
        return self._exercise(p, torch.arange(1, self.dates + 1).to(noise), log_spot), log_spot

    def _exercise(self, p: SimpleNamespace, date: Tensor | int, log_spot: Tensor) -> Tensor:
        discount = torch.exp(-p.rate * p.maturity / self.dates * date)
        return discount * (p.strike - log_spot.exp())

    @staticmethod
    def _drift(p: SimpleNamespace) -> Tensor:
        return p.rate - p.dividend - 0.5 * p.vol.square()

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        dt = p.maturity / self.dates
        return hold_value(
            p.spot.log(),
            lambda date, x: self._exercise(p, date + 1, x),
            [self._drift(p) * dt] * self.dates,
            [p.vol * dt.sqrt()] * self.dates,
            exercise_above=False,
            nodes=96 + 4 * self.dates,  # a shorter step has a narrower density
        )
