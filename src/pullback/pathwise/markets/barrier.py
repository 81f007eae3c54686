"""An up-and-out call in Black and Scholes' model, watched continuously or on dates.

    payoff e^{-rT} (S_T - K)+ · Π_i 1{S(t_i) < B},   K < B.

Watched continuously, the path's survival given its end has probability
1 - exp(-2 ln(B/S) ln(B/S_T) / σ²T) (Brownian bridge), which is smooth: labels are exact in one
step. On dates the conditions jump, and are smoothed over B ± width/2. Values: Reiner and
Rubinstein 1991 in closed form; on dates by backward Gauss–Legendre quadrature with panels that end
at every kink.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.special import ndtr

from pullback.pathwise.distributions import LogNormal
from pullback.pathwise.markets.conditions import Differentiation, check_differentiation, condition
from pullback.pathwise.markets.formulas import density, gauss_legendre, lognormal_step
from pullback.pathwise.markets.market import Market, Parameter
from pullback.pathwise.remedies import soft_step

_NODES = 96  # a panel; more for many dates, since a shorter step has a narrower density

_SPOT = LogNormal(1.0, 0.2)


@dataclass(frozen=True)
class UpAndOutCall(Market):
    """A call that is lost at a barrier above.

    Attributes:
        dates: equally spaced, maturity included; 0 for a barrier that is watched continuously.
        labels: how the conditions are differentiated, see `conditions`.
        width: of the ramp that stands for each, in units of the spot.
    """

    spot: Parameter = _SPOT
    strike: Parameter = 1.0
    barrier: Parameter = 1.3
    vol: Parameter = 0.2
    maturity: Parameter = 1.0
    rate: Parameter = 0.02
    dates: int = 12
    labels: Differentiation = "soft"
    width: float = 0.06
    parameters = ("spot", "strike", "barrier", "vol", "maturity", "rate")
    exact_rows = 8

    def __post_init__(self) -> None:
        check_differentiation("UpAndOutCall", self.labels, without=("likelihood-ratio",))

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`."""
        return (max(1, self.dates),)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        spot, dt, alive = p.spot, p.maturity / noise.shape[1], torch.ones_like(noise[:, 0])
        for z in noise.unbind(1):
            spot = lognormal_step(spot, p.rate, p.vol, dt, z)
            if self.dates:
                alive = alive * condition(p.barrier - spot, self.width, self.labels)
        if not self.dates:
            alive = self._survival(p, spot)
        return torch.exp(-p.rate * p.maturity) * torch.relu(spot - p.strike) * alive

    @staticmethod
    def _survival(p: SimpleNamespace, end: Tensor) -> Tensor:
        """Of a path from spot to end; 0 if one of them is above."""
        gaps = torch.relu((p.barrier / p.spot).log()) * torch.relu((p.barrier / end).log())
        return -torch.expm1(-2.0 * gaps / (p.vol.square() * p.maturity))

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        return self._on_dates(p) if self.dates else self._continuous(p)

    def _continuous(self, p: SimpleNamespace) -> Tensor:
        """Reiner and Rubinstein's A - B + C - D."""
        deviation = p.vol * p.maturity.sqrt()
        power = p.rate / p.vol.square() - 0.5
        discount = torch.exp(-p.rate * p.maturity)
        image = p.barrier / p.spot

        def term(ratio: Tensor, sign: float, reflected: bool) -> Tensor:
            d = ratio.log() / deviation + (1.0 + power) * deviation
            up = image ** (2.0 * (power + 1.0)) if reflected else 1.0
            down = image ** (2.0 * power) if reflected else 1.0
            spot, strike = p.spot * up * ndtr(sign * d), p.strike * discount * down
            return spot - strike * ndtr(sign * (d - deviation))

        value = (
            term(p.spot / p.strike, 1.0, False)
            - term(p.spot / p.barrier, 1.0, False)
            + term(p.barrier.square() / (p.spot * p.strike), -1.0, True)
            - term(image, -1.0, True)
        )
        return torch.where(p.spot < p.barrier, value, 0.0)

    def _on_dates(self, p: SimpleNamespace) -> Tensor:
        """V_i = e^{-r dt} E[V_{i+1} alive_{i+1}] on nodes in ln S, and once more from the spot."""
        dt = p.maturity / self.dates
        drift, deviation = (p.rate - 0.5 * p.vol.square()) * dt, p.vol * dt.sqrt()
        nodes, weights, spots = self._nodes(p)
        alive = self._alive(p.barrier[..., None] - spots)
        held = torch.relu(spots - p.strike[..., None]) * alive * weights

        def back(x: Tensor) -> Tensor:
            z = (nodes[..., None, :] - x[..., None] - drift[..., None, None]) / deviation[
                ..., None, None
            ]
            mean = (density(z) * held[..., None, :]).sum(-1) / deviation[..., None]
            return torch.exp(-p.rate * dt)[..., None] * mean

        for _ in range(self.dates - 1):
            held = back(nodes) * alive * weights
        return back(p.spot.log()[..., None])[..., 0]

    def _alive(self, u: Tensor) -> Tensor:
        return soft_step(u, self.width) if self.labels == "soft" else (u > 0).to(u.dtype)

    def _nodes(self, p: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor]:
        """In ln S, with panels that end at the strike and at both ends of the ramp."""
        half = 0.5 * self.width if self.labels == "soft" else 0.0
        reach = 8.0 * float((p.vol * p.maturity.sqrt()).detach().max())
        low = float(torch.minimum(p.spot.min(), p.strike.min()).detach().log()) - reach
        top = (p.barrier + half).log()
        edges = [torch.full_like(top, low), p.strike.log(), (p.barrier - half).log(), top]
        edges = [edge.expand_as(top) for edge in (edges if half else edges[:3])]
        nodes, weights = gauss_legendre(torch.stack(edges, -1), max(_NODES, 5 * self.dates))
        return nodes, weights, nodes.exp()
