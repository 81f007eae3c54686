"""What to write instead of a condition or a root that has no useful derivative."""

import torch
from torch import Tensor

from pullback.errors import InputError


def soft_step(u: Tensor, width: float) -> Tensor:
    """Return a ramp from 0 to 1 in place of 1{u > 0}: min(max(u / width + 1/2, 0), 1).

    With u = S - K a digital becomes a call spread of this width around K, and with u = B - S a
    barrier becomes soft. Value and derivative are then unbiased for the *smoothed* contract. Its
    value is off by O(width²) where the density is smooth, and a derivative label is noisier the
    narrower the ramp, as 1/√width. For a digital on S = 1, K = 1.1, volatility 0.2, one year
    (value 0.282, delta 1.69): off by 0.0006, 0.0022 and 0.0088 at widths of 0.05, 0.1 and 0.2, and
    one delta label deviates by 5.8, 3.9 and 2.5.

    Args:
        u: any shape; positive where the condition holds.
        width: of the ramp, in units of u.

    Raises:
        InputError: the width is not positive.

    >>> soft_step(torch.tensor([-1.0, 0.0, 0.025, 1.0]), width=0.1)
    tensor([0.0000, 0.5000, 0.7500, 1.0000])
    """
    if not width > 0:
        raise InputError(f"soft_step: expected a positive width, got {width}")
    return torch.clamp(u / width + 0.5, 0.0, 1.0)


def value_hard_derivative_soft(hard: Tensor, soft: Tensor) -> Tensor:
    """Return the value of `hard` with the derivative of `soft`.

    Values stay those of the contract, and only derivatives are smoothed, as ORE does with its
    separate smoothing of indicators in values and in derivatives.

    Args:
        hard: any shape; its derivative is dropped.
        soft: the same shape; its value is dropped.

    >>> u = torch.tensor([-0.01, 0.01], requires_grad=True)
    >>> step = value_hard_derivative_soft((u > 0).float(), soft_step(u, width=0.1))
    >>> step.detach(), torch.autograd.grad(step.sum(), u)[0]
    (tensor([0., 1.]), tensor([10., 10.]))
    """
    # In this order the soft value cancels exactly, before anything can be rounded.
    return hard.detach() + (soft - soft.detach())


def safe_sqrt(v: Tensor) -> Tensor:
    """Return √v for v > 0, and 0 with derivative 0 elsewhere.

    The derivative of √v is infinite at 0. `torch.where(v > 0, v.sqrt(), 0)` multiplies that by
    zero, which is NaN; here the argument is replaced before the root is taken.

    >>> v = torch.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(v).detach(), torch.autograd.grad(safe_sqrt(v).sum(), v)[0]
    (tensor([0., 0., 2.]), tensor([0.0000, 0.0000, 0.2500]))
    """
    positive = v > 0
    return torch.where(positive, torch.where(positive, v, 1.0).sqrt(), 0.0)
