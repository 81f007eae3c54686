"""A call on the minimum or the maximum of two assets in Black and Scholes' model.

    payoff e^{-rT} (min(S₁, S₂) - K)+ or e^{-rT} (max(S₁, S₂) - K)+.

Stulz, Options on the minimum or the maximum of two risky assets, 1982. His bivariate normals are
one integral here: given S₁ = a > K, the call on the minimum is a call spread on S₂ from K to a; and
max-call + min-call = call on S₁ + call on S₂.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.markets.formulas import (
    black_scholes,
    density,
    gauss_legendre,
    lognormal_step,
)
from pullback.pathwise.markets.market import Market, Parameter

_PANELS, _NODES, _REACH = 8, 24, 10.0

_SPOT1 = LogNormal(100.0, 0.3)
_SPOT2 = LogNormal(100.0, 0.4)


@dataclass(frozen=True)
class TwoAssetCall(Market):
    """A call on the worse or the better of two assets.

    Attributes:
        on: "min" or "max".
    """

    spot1: Parameter = _SPOT1
    spot2: Parameter = _SPOT2
    strike: Parameter = 100.0
    vol1: Parameter = 0.2
    vol2: Parameter = 0.3
    correlation: Parameter = 0.5
    maturity: Parameter = 1.0
    rate: Parameter = 0.03
    dividend1: Parameter = 0.01
    dividend2: Parameter = 0.0
    on: Literal["min", "max"] = "min"
    parameters = (
        "spot1", "spot2", "strike", "vol1", "vol2", "correlation", "maturity", "rate", "dividend1",
        "dividend2",
    )  # fmt: skip
    noise = (2,)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        z1 = noise[:, 0]
        z2 = p.correlation * z1 + (1.0 - p.correlation.square()).sqrt() * noise[:, 1]
        end1 = lognormal_step(p.spot1, p.rate - p.dividend1, p.vol1, p.maturity, z1)
        end2 = lognormal_step(p.spot2, p.rate - p.dividend2, p.vol2, p.maturity, z2)
        chosen = torch.minimum(end1, end2) if self.on == "min" else torch.maximum(end1, end2)
        return torch.exp(-p.rate * p.maturity) * torch.relu(chosen - p.strike)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        least = self._on_minimum(p)
        if self.on == "min":
            return least
        first = _call(p.spot1, p.strike, p.vol1, p.maturity, p.rate, p.dividend1)
        second = _call(p.spot2, p.strike, p.vol2, p.maturity, p.rate, p.dividend2)
        return first + second - least

    def _on_minimum(self, p: SimpleNamespace) -> Tensor:
        """∫ over z₁ beyond the kink S₁ = K of the call spread on S₂."""
        deviation1 = p.vol1 * p.maturity.sqrt()
        drift1 = (p.rate - p.dividend1 - 0.5 * p.vol1.square()) * p.maturity
        kink = ((p.strike / p.spot1).log() - drift1) / deviation1
        start = torch.clamp(kink, -_REACH, _REACH)[..., None]
        edges = torch.linspace(0.0, 1.0, _PANELS + 1, dtype=start.dtype, device=start.device)
        z, weights = gauss_legendre(start + edges * (_REACH + 1.0 - start), _NODES)
        p = SimpleNamespace(**{name: value[..., None] for name, value in vars(p).items()})
        reached = p.spot1 * torch.exp(drift1[..., None] + deviation1[..., None] * z)
        # S₂ given z₁: a lognormal with the rest of its variance.
        rho = p.correlation
        vol = p.vol2 * (1.0 - rho.square()).sqrt()
        tilt = rho * p.vol2 * p.maturity.sqrt() * z - 0.5 * (rho * p.vol2).square() * p.maturity
        spot2 = p.spot2 * tilt.exp()
        spread = [
            _call(spot2, strike, vol, p.maturity, p.rate, p.dividend2)
            for strike in (p.strike, reached)
        ]
        return (weights * density(z) * (spread[0] - spread[1])).sum(-1)


def _call(*arguments: Tensor) -> Tensor:
    received, paid = black_scholes(*arguments)
    return received - paid
