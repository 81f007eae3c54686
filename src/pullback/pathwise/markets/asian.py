"""A call on the arithmetic mean of n fixings in Black and Scholes' model.

    payoff e^{-rT} (1/n Σ_i S(iT/n) - K)+.

There is no closed form. With S_i = S_{i-1} R_i, the sum of fixings is S_0 R_1 (1 + R_2 (1 + …)):
the density of l_i = ln(R_i (1 + e^{l_{i+1}})) follows from that of l_{i+1} by one integral, and
the last step is a Black–Scholes call (Carverhill and Clewlow, Flexible convolution, 1990).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.markets.formulas import black_scholes, density, lognormal_step
from pullback.pathwise.markets.market import Market, Parameter

_NODES = 401

_SPOT = LogNormal(100.0, 0.3)


@dataclass(frozen=True)
class AsianCall(Market):
    """A call on a mean.

    Attributes:
        fixings: n, equally spaced, the last at maturity and none today.
    """

    spot: Parameter = _SPOT
    strike: Parameter = 100.0
    vol: Parameter = 0.2
    maturity: Parameter = 1.0
    rate: Parameter = 0.05
    fixings: int = 12
    parameters = ("spot", "strike", "vol", "maturity", "rate")
    exact_rows = 4

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (self.fixings,)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        spot, total, dt = p.spot, torch.zeros_like(noise[:, 0]), p.maturity / self.fixings
        for z in noise.unbind(1):
            spot = lognormal_step(spot, p.rate, p.vol, dt, z)
            total = total + spot
        return torch.exp(-p.rate * p.maturity) * torch.relu(total / self.fixings - p.strike)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        dt = p.maturity / self.fixings
        drift, deviation = (p.rate - 0.5 * p.vol.square()) * dt, p.vol * dt.sqrt()
        rest = torch.exp(-p.rate * (p.maturity - dt))
        if self.fixings == 1:
            return self._call(p, p.spot, dt)
        nodes, weight = self._nodes(p)
        masses = self._density(nodes, drift, deviation) * weight
        steps = nodes.exp().log1p()  # ln(1 + e^l)
        for _ in range(self.fixings - 2):
            moved = (nodes[:, None] - steps - drift[..., None, None]) / deviation[..., None, None]
            kernel = density(moved) / deviation[..., None, None]
            masses = (kernel * masses[..., None, :]).sum(-1) * weight
        sums = p.spot[..., None] / self.fixings * (1.0 + nodes.exp())
        return rest * (masses * self._call(p, sums, dt)).sum(-1)

    @staticmethod
    def _density(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        return density((x - mean[..., None]) / deviation[..., None]) / deviation[..., None]

    @staticmethod
    def _call(p: SimpleNamespace, spot: Tensor, dt: Tensor) -> Tensor:
        wide = spot.dim() > p.spot.dim()
        strike, vol, rate, dt = (v[..., None] if wide else v for v in (p.strike, p.vol, p.rate, dt))
        received, paid = black_scholes(spot, strike, vol, dt, rate, torch.zeros_like(rate))
        return received - paid

    def _nodes(self, p: SimpleNamespace) -> tuple[Tensor, float]:
        """For all l_i at once: they lie between ln R and ln of a sum of n - 1 of them."""
        reach = 8.0 * float((p.vol * p.maturity.sqrt()).detach().max())
        high = torch.tensor(float(self.fixings)).log().item() + reach
        nodes = torch.linspace(-reach, high, _NODES, dtype=p.spot.dtype, device=p.spot.device)
        return nodes, float(nodes[1] - nodes[0])
