"""A European call in Heston's model.

    dS = (r - q) S dt + √v S dW₁,   dv = κ(θ - v) dt + σ √v dW₂,   dW₁ dW₂ = ρ dt,
    payoff e^{-rT} (S_T - K)+.

Paths follow Andersen's quadratic-exponential scheme (Simple and efficient simulation of the Heston
model, 2008): an Euler scheme has a √v whose derivative has infinite variance where v reaches zero
(2κθ < σ²), while here v' is smooth in v on each branch, and both branches have the same two
moments, so that the switch between them does not bias. Given the variance path, ln S_T is normal:
one normal is enough for it. The value is Lewis' integral (Option valuation under stochastic
volatility, 2000), by Gauss–Legendre quadrature.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from pullback.pathwise.distributions import LogNormal, Uniform
from pullback.pathwise.markets.formulas import gauss_legendre
from pullback.pathwise.markets.market import Market, Parameter

_SWITCH = 1.5  # of the variance's coefficient of variation squared; Andersen's choice
_EDGES, _NODES = (0.0, 8.0, 32.0, 128.0, 512.0, 2048.0), 96

_SPOT = LogNormal(100.0, 0.3)
_VARIANCE = Uniform(0.01, 0.12)


@dataclass(frozen=True)
class HestonCall(Market):
    """A call under stochastic variance.

    Attributes:
        steps: of the scheme.
    """

    spot: Parameter = _SPOT
    variance: Parameter = _VARIANCE
    strike: Parameter = 100.0
    maturity: Parameter = 1.0
    rate: Parameter = 0.02
    dividend: Parameter = 0.0
    reversion: Parameter = 2.0
    mean_variance: Parameter = 0.04
    vol_of_variance: Parameter = 0.3
    correlation: Parameter = -0.7
    steps: int = 16
    parameters = (
        "spot", "variance", "strike", "maturity", "rate", "dividend", "reversion", "mean_variance",
        "vol_of_variance", "correlation",
    )  # fmt: skip
    exact_rows = 1024

    @property
    def noise(self) -> tuple[int, ...]:
        """See `Market.noise`: one a step for the variance, one for the spot."""
        return (self.steps + 1,)

    def payoff(self, state: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """See `Market.payoff`."""
        p = self.at(state)
        dt = p.maturity / self.steps
        variance, integral = p.variance, torch.zeros_like(noise[:, 0])
        for z in noise[:, :-1].unbind(1):
            after = _next_variance(p, variance, dt, z)
            integral = integral + 0.5 * dt * (variance + after)
            variance = after
        # ∫√v dW₂ from the equation of v itself.
        shock = variance - p.variance - p.reversion * (p.mean_variance * p.maturity - integral)
        rho = p.correlation
        mean = (p.rate - p.dividend) * p.maturity - 0.5 * integral + rho / p.vol_of_variance * shock
        deviation = ((1.0 - rho.square()) * integral).sqrt()
        end = p.spot * torch.exp(mean + deviation * noise[:, -1])
        return torch.exp(-p.rate * p.maturity) * torch.relu(end - p.strike)

    def value(self, p: SimpleNamespace) -> Tensor:
        """See `Market.value`."""
        u, weights = gauss_legendre(p.spot.new_tensor(_EDGES), _NODES)
        moneyness = (p.spot / p.strike).log() + (p.rate - p.dividend) * p.maturity
        wide = SimpleNamespace(**{name: part[..., None] for name, part in vars(p).items()})
        wave = torch.exp(1j * u * moneyness[..., None]) * _characteristic(wide, u - 0.5j)
        integral = (weights * wave.real / (u.square() + 0.25)).sum(-1)
        geometric = (p.spot * p.strike).sqrt() * torch.exp(
            -0.5 * (p.rate + p.dividend) * p.maturity
        )
        return p.spot * torch.exp(-p.dividend * p.maturity) - geometric * integral / torch.pi


def _next_variance(p: SimpleNamespace, v: Tensor, dt: Tensor, z: Tensor) -> Tensor:
    """One quadratic-exponential step: matches mean m and variance s² of v' given v."""
    decay = torch.exp(-p.reversion * dt)
    loss = p.vol_of_variance.square() * (1.0 - decay) / p.reversion
    m = p.mean_variance + (v - p.mean_variance) * decay
    s2 = loss * (v * decay + 0.5 * p.mean_variance * (1.0 - decay))
    psi = s2 / m.square()
    # Each branch has the other's arguments clamped away, so that no derivative is 0 · NaN.
    inverse = 2.0 / psi.clamp(max=_SWITCH)
    b2 = inverse - 1.0 + (inverse * (inverse - 1.0)).sqrt()
    quadratic = m / (1.0 + b2) * (b2.sqrt() + z).square()
    larger = psi.clamp(min=_SWITCH)
    log_above = (2.0 / (larger + 1.0)).log()  # ln of the mass above zero
    exponential = torch.relu(log_above - torch.special.log_ndtr(-z)) * m * 0.5 * (larger + 1.0)
    return torch.where(psi <= _SWITCH, quadratic, exponential)


def _characteristic(p: SimpleNamespace, w: Tensor) -> Tensor:
    """E[exp(i w X)] of the driftless log return, so written that its logarithm has one branch."""
    beta = p.reversion - p.correlation * p.vol_of_variance * 1j * w
    sigma2 = p.vol_of_variance.square()
    d = (beta.square() + sigma2 * (1j * w + w.square())).sqrt()
    g = (beta - d) / (beta + d)
    decay = torch.exp(-d * p.maturity)
    level = (beta - d) * p.maturity - 2.0 * ((1.0 - g * decay) / (1.0 - g)).log()
    slope = (beta - d) / sigma2 * (1.0 - decay) / (1.0 - g * decay)
    return torch.exp(p.reversion * p.mean_variance / sigma2 * level + slope * p.variance)
