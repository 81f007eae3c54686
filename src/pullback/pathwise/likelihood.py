"""Likelihood-ratio derivatives: differentiate the density of the paths instead of the payoff.

With p(s; x) the density of what the payoff looks at, s,

    ∂/∂x E[f(s)] = E[f(s) ∂ log p(s; x)/∂x],

for any f, jumps or not (Glasserman, Monte Carlo Methods in Financial Engineering, 7.3; as labels:
Glasserman and Karmarkar, 2025). The density must be smooth in x, and s held fixed. Labels are
noisier the shorter the step: their deviation grows as 1/(σ√dt).
"""

import math

import torch
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def likelihood_ratio(value: Tensor, log_density: Tensor) -> Tensor:
    """Return `value` with the derivative ∂value/∂x + value · ∂log p/∂x.

    Args:
        value: payoff of a path, [N]; whatever it has of a derivative is kept (a discount factor),
            so the simulated s in it must be detached.
        log_density: log p(s; x) of the path at the detached s, [N]; constants do not matter.

    >>> x = torch.zeros(1, requires_grad=True)
    >>> s = (x + 0.5).detach()                          # one draw of N(x, 1)
    >>> y = likelihood_ratio((s > 0).float(), normal_log_density(s, x, 1.0))
    >>> y.detach(), torch.autograd.grad(y.sum(), x)[0]  # 1{s > 0} · (s - x)
    (tensor([1.]), tensor([0.5000]))
    """
    return value * torch.exp(log_density - log_density.detach())


def normal_log_density(s: Tensor, mean: Tensor | float, deviation: Tensor | float) -> Tensor:
    """Log density at s (held fixed) of a normal, elementwise."""
    deviation = torch.as_tensor(deviation)
    z = (s.detach() - mean) / deviation
    return -0.5 * z.square() - deviation.log() - _LOG_SQRT_2PI


def lognormal_log_density(
    s: Tensor, spot: Tensor, drift: Tensor | float, vol: Tensor | float, dt: Tensor | float
) -> Tensor:
    """Log density at s (held fixed) of spot · exp((drift - vol²/2) dt + vol √dt Z), elementwise.

    It is that of log s, which differs by a constant.
    """
    vol, dt = torch.as_tensor(vol), torch.as_tensor(dt)
    mean = spot.log() + (drift - 0.5 * vol.square()) * dt
    return normal_log_density(s.detach().log(), mean, vol * dt.sqrt())


def normal_vector_log_density(s: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Log density at s [N, n] (held fixed) of a normal with covariance L Lᵀ, [N].

    Args:
        s: draws.
        mean: [N, n] or [n].
        factor: L, lower triangular, [n, n] or [N, n, n].
    """
    rest = (s.detach() - mean).unsqueeze(-1)
    z = torch.linalg.solve_triangular(factor, rest, upper=False).squeeze(-1)
    scale = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * z.square().sum(-1) - scale - s.shape[-1] * _LOG_SQRT_2PI
