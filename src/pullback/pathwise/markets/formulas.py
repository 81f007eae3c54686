"""Steps, closed forms and quadrature that several markets share."""

import numpy as np
import torch
from torch import Tensor
from torch.special import ndtr


def lognormal_step(spot: Tensor, drift: Tensor, vol: Tensor, dt: Tensor, z: Tensor) -> Tensor:
    """Exact step of dS = drift S dt + vol S dW."""
    return spot * torch.exp((drift - 0.5 * vol.square()) * dt + vol * dt.sqrt() * z)


def black_scholes(
    spot: Tensor, strike: Tensor, vol: Tensor, maturity: Tensor, rate: Tensor, dividend: Tensor
) -> tuple[Tensor, Tensor]:
    """What a call receives and what it pays: S e^{-qT} N(d₁) and K e^{-rT} N(d₂).

    Their difference is the call (Black and Scholes 1973), the second over K the digital.
    """
    deviation = vol * maturity.sqrt()
    d1 = ((spot / strike).log() + (rate - dividend) * maturity) / deviation + 0.5 * deviation
    received = spot * torch.exp(-dividend * maturity) * ndtr(d1)
    return received, strike * torch.exp(-rate * maturity) * ndtr(d1 - deviation)


def density(z: Tensor) -> Tensor:
    """Of the standard normal."""
    return torch.exp(-0.5 * z.square()) / np.sqrt(2.0 * np.pi)


def gauss_legendre(edges: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of panels between successive edges, [..., (E - 1) · count].

    Args:
        edges: ascending, [..., E].
        count: nodes a panel.
    """
    nodes, weights = (torch.from_numpy(a).to(edges) for a in np.polynomial.legendre.leggauss(count))
    half = 0.5 * (edges[..., 1:] - edges[..., :-1])[..., None]
    middle = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    return (middle + half * nodes).flatten(-2), (half * weights).flatten(-2)
