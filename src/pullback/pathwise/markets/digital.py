"""A cash-or-nothing call in Black and Scholes' model: where plain pathwise derivatives are zero.

    payoff e^{-rT} 1{S_T > K},   value e^{-rT} N(d₂);
    smoothed over a width ε: the call spread (C(K - ε/2) - C(K + ε/2)) / ε.

Likelihood-ratio labels follow Glasserman and Karmarkar, 2025.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.likelihood import likelihood_ratio, lognormal_log_density
from pullback.pathwise.markets.conditions import Differentiation, check_differentiation, condition
from pullback.pathwise.markets.formulas import black_scholes, lognormal_step
from pullback.pathwise.markets.market import Market, Parameter

_SPOT = LogNormal(1.0, 0.3)


@dataclass(frozen=True)
class DigitalCall(Market):
    """Pays 1 above the strike.

    Attributes:
        labels: how the condition is differentiated, see `conditions`.
        width: of the ramp that stands for it, in units of the spot.
    """

    spot: Parameter = _SPOT
    strike: Parameter = 1.1
    vol: Parameter = 0.2
    maturity: Parameter = 1.0
    rate: Parameter = 0.0
    labels: Differentiation = "likelihood-ratio"
    width: float = 0.05
    parameters = ("spot", "strike", "vol", "maturity", "rate")
    noise = (1,)

    def __post_init__(self) -> None:
        check_differentiation("DigitalCall", self.labels)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        end = lognormal_step(p.spot, p.rate, p.vol, p.maturity, noise[:, 0])
        discount = torch.exp(-p.rate * p.maturity)
        if self.labels != "likelihood-ratio":
            return discount * condition(end - p.strike, self.width, self.labels)
        # The density is that of S_T / K, so that the strike has a derivative as well.
        log_density = lognormal_log_density(
            end / p.strike, p.spot / p.strike, p.rate, p.vol, p.maturity
        )
        return likelihood_ratio(discount * (end > p.strike), log_density)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""

        def call(strike: Tensor) -> tuple[Tensor, Tensor]:
            return black_scholes(
                p.spot, strike, p.vol, p.maturity, p.rate, torch.zeros_like(p.rate)
            )

        if self.labels != "soft":
            return call(p.strike)[1] / p.strike
        received, paid = call(p.strike - 0.5 * self.width)
        received_above, paid_above = call(p.strike + 0.5 * self.width)
        return (received - paid - received_above + paid_above) / self.width
