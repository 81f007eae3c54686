"""A European call in Black and Scholes' model.

    dS = (r - q) S dt + σ S dW,   payoff e^{-rT} (S_T - K)+,
    value S e^{-qT} N(d₁) - K e^{-rT} N(d₂),   d₁,₂ = (ln(S/K) + (r - q ± σ²/2) T) / (σ√T).

Black and Scholes, The pricing of options and corporate liabilities, 1973. The defaults are the
one-dimensional case of the reference notebooks of Huge and Savine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.markets.formulas import black_scholes, lognormal_step
from pullback.pathwise.markets.market import Market, Parameter

_SPOT = LogNormal(1.0, 0.3)


@dataclass(frozen=True)
class BlackScholesCall(Market):
    """A call on one asset; make any parameter an input by giving it a distribution.

    >>> from pullback.pathwise import Uniform
    >>> market = BlackScholesCall(vol=Uniform(0.1, 0.4))
    >>> market.inputs, market.sample(1024).dydx.shape
    (('spot', 'vol'), torch.Size([1024, 1, 2]))
    """

    spot: Parameter = _SPOT
    strike: Parameter = 1.1
    vol: Parameter = 0.2
    maturity: Parameter = 1.0
    rate: Parameter = 0.0
    dividend: Parameter = 0.0
    parameters = ("spot", "strike", "vol", "maturity", "rate", "dividend")
    noise = (1,)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        end = lognormal_step(p.spot, p.rate - p.dividend, p.vol, p.maturity, noise[:, 0])
        return torch.exp(-p.rate * p.maturity) * torch.relu(end - p.strike)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        received, paid = black_scholes(p.spot, p.strike, p.vol, p.maturity, p.rate, p.dividend)
        return received - paid
